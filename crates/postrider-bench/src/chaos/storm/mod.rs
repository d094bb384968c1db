//! `postrider chaos storm`: repeatedly kills relays, cuts sessions and withholds answers, and then
//! accounts for every event.

mod fleet;
mod journal;
mod judge;
mod link;
mod lull;
mod page;
mod receiver;
mod receiving;
mod relay;
mod run;
#[cfg(feature = "kafka")]
mod topic;
#[cfg(not(feature = "kafka"))]
#[path = "no_topic.rs"]
mod topic;
mod verdict;
mod writers;

use std::path::PathBuf;
use std::sync::Arc;

use postrider_command::Failure;
use postrider_command::output;
use postrider_command::stop_on_signal;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use super::n19::write_page;
use super::stage::Stage;
use crate::cli::StormArgs;
use journal::Journal;
use lull::Lull;
use receiving::Receiving;
pub use relay::serve_relay;
use run::Run;

pub(super) async fn storm(
    url: &str,
    connections_max: u32,
    args: &StormArgs,
) -> Result<(), Failure> {
    if let Some(file) = &args.report {
        // Fails before a run of minutes if the file cannot be written, not after it.
        write_page(file, "")?;
    }
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let mut dice = StdRng::seed_from_u64(seed);
    let journal = Arc::new(Journal::start());
    let backup = BackupFolder::new();
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let stage = Stage::create(url, connections_max, args.claim).await?;
    let lull = Lull::default();
    let mut receiving = match Receiving::start(args, &journal, &lull, &mut dice).await {
        Ok(receiving) => receiving,
        Err(failure) => return stage.drop_after(Err(failure)).await,
    };
    let run = Run {
        url,
        connections_max,
        args,
        seed,
        backup: &backup.0,
        journal: &journal,
        lull: &lull,
        backlog: Arc::default(),
    };
    let played = stop.run_until_cancelled(run.play(&stage, &mut receiving, &mut dice)).await;
    let played = played.unwrap_or(Err(Failure::Interrupted));
    if matches!(played, Err(Failure::Interrupted)) {
        eprintln!("interrupted: relays are stopped, dropping the tables of this run");
    }
    let removed = receiving.remove().await;
    let (verdict, samples) = stage.drop_after(played).await?;
    removed?;
    match args.json {
        true => output::print_json(&verdict)?,
        false => verdict.print()?,
    }
    if let Some(file) = &args.report {
        write_page(file, &page::page(&verdict, &samples))?;
    }
    verdict.outcome()
}

/// The folder where relays save dead letters that the database refuses. Their rows stay in the
/// outbox, so the folder is removed after the run.
struct BackupFolder(PathBuf);

impl BackupFolder {
    fn new() -> Self {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        Self(std::env::temp_dir().join(format!("postrider-storm-{unique}")))
    }
}

impl Drop for BackupFolder {
    fn drop(&mut self) {
        // The folder does not exist if nothing was saved.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
