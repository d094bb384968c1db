//! `postrider bench takeover`: how long the lanes of a killed relay wait for another one.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider_command::{Failure, connect};
use postrider_relay::{OutboxConfig, Preset, Relay, RelayConfig, sinks::NullSink};
use postrider_store::ClaimMode;
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::event::Maker;
use super::facts::Facts;
use super::numbers::{median, rounded};
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use super::{details, relays};
use crate::cli::{BenchRelayArgs, TakeoverArgs};

/// Number of events per append: more than there are lanes, so that each lane gets some.
const EVENTS: u64 = 512;
const KEYS: u64 = 512;
const PAYLOAD_BYTES: u32 = 256;
/// Interval between checks of the table.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time limit for each awaited condition.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Serialize)]
struct Details {
    relays: u32,
    rounds: u32,
    lease_s: f64,
    heartbeat_s: f64,
    /// Seconds from the kill until everything that was appended right after it is settled, per
    /// round.
    served_again_s: Vec<f64>,
    served_again_median_s: f64,
    served_again_max_s: f64,
    /// The longest time, relative to the lease: no relay can know earlier that another one is dead.
    ratio: f64,
    /// The same without a kill.
    undisturbed_s: f64,
    balanced: bool,
}

pub(super) async fn takeover(stage: &Stage, args: &TakeoverArgs) -> Result<Report, Failure> {
    if !stage.store.capabilities().shares_lanes {
        let why = "one relay owns all lanes of this store: no other relay can take them over";
        return Err(Failure::Usage(why.to_owned()));
    }
    let outbox = stage.outbox("").await?;
    let run = Run { stage, outbox: &outbox, maker: Maker::new(KEYS, PAYLOAD_BYTES) };
    let mut processes = Vec::new();
    for _ in 0..args.relays {
        processes.push(run.start_relay()?);
    }
    run.shared_by(args.relays as usize).await?;
    let undisturbed = run.served_after(Instant::now()).await?;
    let bar = bar("killing", args.rounds.into());
    let mut times = Vec::new();
    for _ in 0..args.rounds {
        let mut killed = processes.remove(0);
        killed.start_kill().map_err(|error| failed(&error))?;
        let at = Instant::now();
        times.push(rounded(run.served_after(at).await?.as_secs_f64(), 2));
        processes.push(run.start_relay()?);
        run.shared_by(args.relays as usize).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    // Closing its input makes each relay release its lanes and stop.
    for mut process in processes {
        drop(process.stdin.take());
        let stopped = tokio::time::timeout(PATIENCE, process.wait()).await;
        stopped.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    }
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;
    report(stage, args, times, undisturbed, balanced).await
}

async fn report(
    stage: &Stage,
    args: &TakeoverArgs,
    times: Vec<f64>,
    undisturbed: Duration,
    balanced: bool,
) -> Result<Report, Failure> {
    let RelayConfig { lease, heartbeat_every: heartbeat, .. } = RelayConfig::default();
    let (half, longest) = (median(&times), times.iter().copied().fold(0.0, f64::max));
    let ratio = rounded(longest / lease.as_secs_f64(), 3);
    let bars: Vec<_> =
        times.iter().enumerate().map(|(n, s)| (format!("kill {}", n + 1), *s, None)).collect();
    Ok(Report {
        facts: Facts::gather("takeover", stage).await?,
        headline: format!("served again after {longest} s at the longest"),
        against: format!("of the lease of {lease:?}"),
        ratio,
        figures: vec![
            ("kills".to_owned(), format!("{} of one of {} relays", args.rounds, args.relays)),
            ("served again".to_owned(), format!("median {half} s, longest {longest} s")),
            ("undisturbed".to_owned(), format!("{undisturbed:.1?}")),
            ("lease, heartbeat".to_owned(), format!("{lease:?}, {heartbeat:?}")),
            ("ledger".to_owned(), if balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
        ],
        plots: vec![Plot::Bars(Bars {
            title: "From the kill until its lanes are served again",
            unit: "s",
            bars,
        })],
        failure: (!balanced).then(|| Failure::Partly("the ledger does not balance".to_owned())),
        details: details(&Details {
            relays: args.relays,
            rounds: args.rounds,
            lease_s: lease.as_secs_f64(),
            heartbeat_s: heartbeat.as_secs_f64(),
            served_again_median_s: half,
            served_again_max_s: longest,
            ratio,
            served_again_s: times,
            undisturbed_s: rounded(undisturbed.as_secs_f64(), 3),
            balanced,
        })?,
    })
}

struct Run<'a> {
    stage: &'a Stage,
    outbox: &'a Outbox,
    maker: Maker,
}

impl Run<'_> {
    /// Appends events of all lanes. Returns when the last of them is settled.
    async fn served_after(&self, since: Instant) -> Result<Duration, Failure> {
        self.stage.fill(self.outbox, &self.maker, EVENTS).await?;
        let started = Instant::now();
        while self.stage.store.statistics(self.outbox).await?.pending > 0 {
            if started.elapsed() > PATIENCE {
                return Err(Failure::Partly(format!("not served again within {PATIENCE:?}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(since.elapsed())
    }

    fn start_relay(&self) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        Command::new(program)
            .args(["bench-relay", "--outbox", self.outbox.name()])
            // Not as an argument: all users of the machine could read the password.
            .env("POSTRIDER_STORE__URL", &self.stage.url)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))
    }

    /// Waits until each of this many relays owns lanes.
    async fn shared_by(&self, relays: usize) -> Result<(), Failure> {
        let started = Instant::now();
        loop {
            let owners = self.stage.store.lane_owners(self.outbox).await?;
            let distinct: BTreeSet<_> =
                owners.iter().filter_map(|lane| lane.relay_id.as_deref()).collect();
            if distinct.len() == relays && owners.iter().all(|lane| lane.relay_id.is_some()) {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                let why = format!("{} of {relays} relays have lanes", distinct.len());
                return Err(Failure::Partly(why));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn failed(error: &impl std::fmt::Display) -> Failure {
    Failure::Partly(format!("a relay's process: {error}"))
}

/// Runs one relay in this process, until its input ends.
///
/// # Errors
/// If the store cannot be used.
pub async fn serve(url: &str, args: &BenchRelayArgs) -> Result<(), Failure> {
    let store = connect(url, 5, false).await?;
    let outbox = Outbox::new(&args.outbox)?;
    let preset = Preset { idle_poll: Duration::from_millis(100), ..Preset::broker() };
    let mut config = OutboxConfig::new(outbox, preset, Arc::new(NullSink::new("null")));
    config.claim = Some(ClaimMode::Lanes);
    let stop = CancellationToken::new();
    let relay =
        tokio::spawn(Relay::new(store, RelayConfig::default()).outbox(config).run(stop.clone()));
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    drop(input.await);
    stop.cancel();
    relay.await.map_err(|error| failed(&error))??;
    Ok(())
}
