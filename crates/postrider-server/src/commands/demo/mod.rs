//! `postrider demo`: a complete system that needs nothing but this binary.
//!
//! Everything is real: the daemon as `postrider run` starts it, an embedded SQLite store, and the
//! demo's own HTTP API, which fails on a schedule.

mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::{NewEvent, Outbox};
use postrider_command::{Failure, output, stop_on_signal};
use postrider_store::{Appender, Database, Statistics};
use tokio_util::sync::CancellationToken;

use crate::cli::DemoArgs;
use crate::commands::reconcile::{self, Reconciliation};
use crate::commands::run::Daemon;
use crate::config;
use target::{Mood, Target};

/// Minimum length: a shorter run cannot show all acts.
const SECONDS_MIN: u64 = 15;
/// Length of one round if no length is given.
const ROUND_SECONDS: u64 = 60;
const FOLDER: &str = "postrider-data/demo";
const OUTBOX: &str = "orders";
/// Time limit for emptying the outbox at the end.
const DRAIN: Duration = Duration::from_secs(30);

/// One act of the demo; `until` is its end, as a share of the round.
struct Act {
    until: f64,
    mood: Mood,
    poison: bool,
    words: &'static str,
}

const ACTS: [Act; 4] = [
    Act {
        until: 0.25,
        mood: Mood::Well,
        poison: false,
        words: "Orders are placed. Each writes an event in its own transaction; the relay calls \
                the API.",
    },
    Act {
        until: 0.55,
        mood: Mood::Down,
        poison: false,
        words: "OUTAGE: the API answers 503. Events wait in the outbox; no attempt is spent on \
                them.",
    },
    Act {
        until: 0.80,
        mood: Mood::Well,
        poison: false,
        words: "The API is back. The backlog drains by itself.",
    },
    Act {
        until: 1.0,
        mood: Mood::Well,
        poison: true,
        words: "A few orders that the API will never take (422): dead letters at once, with an \
                alert.",
    },
];

pub(crate) async fn demo(args: &DemoArgs) -> Result<(), Failure> {
    if args.seconds.is_some_and(|seconds| seconds < SECONDS_MIN) {
        return Err(Failure::Usage(format!("--seconds: at least {SECONDS_MIN}")));
    }
    let target = Target::start().await.map_err(Failure::Output)?;
    let folder = fresh_folder()?;
    let file = write_config(&folder, &target.url)?;
    let daemon = start_daemon(&file).await?;
    let (store, address) = (Arc::clone(&daemon.store), daemon.address);
    let outbox = Outbox::new(OUTBOX).map_err(config::ConfigError::from)?;
    let appender = Appender::connect(&store_url(&folder), 1).await?;
    introduce(&file, address)?;
    if args.open {
        open_page(&format!("http://{address}/"))?;
    }

    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let relaying = tokio::spawn(daemon.run(stop.clone()));
    let mut story =
        Story { store: store.as_ref(), outbox: &outbox, target: &target, args, order: 0 };
    story.run(&appender, &stop).await?;
    let left = story.drain(&stop).await?;
    stop.cancel();
    match relaying.await {
        Ok(outcome) => outcome?,
        Err(error) => return Err(Failure::Partly(format!("the relay ended with {error}"))),
    }
    conclude(store.as_ref(), &outbox, &target, left, &file).await
}

struct Story<'a> {
    store: &'a dyn Database,
    outbox: &'a Outbox,
    target: &'a Target,
    args: &'a DemoArgs,
    order: u64,
}

impl Story<'_> {
    /// Plays the acts, once or until stopped.
    async fn run(&mut self, appender: &Appender, stop: &CancellationToken) -> Result<(), Failure> {
        let round = Duration::from_secs(self.args.seconds.unwrap_or(ROUND_SECONDS));
        while !stop.is_cancelled() {
            let started = Instant::now();
            for act in &ACTS {
                output::print(&format!("\n{}\n", act.words))?;
                self.target.set(act.mood);
                while started.elapsed() < round.mul_f64(act.until) && !stop.is_cancelled() {
                    self.second(appender, act).await?;
                }
            }
            if self.args.seconds.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Appends one second of traffic and prints a line about it.
    async fn second(&mut self, appender: &Appender, act: &Act) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for tick in 0..10 {
            ticks.tick().await;
            let share = u64::from(self.args.rate);
            let count = share * (tick + 1) / 10 - share * tick / 10;
            let events: Vec<NewEvent> = (0..count).map(|_| self.next_order(act)).collect();
            if !events.is_empty() {
                drop(appender.append_all(self.outbox, &events).await?);
            }
        }
        self.report(act.mood).await.map(|_| ())
    }

    fn next_order(&mut self, act: &Act) -> NewEvent {
        self.order += 1;
        let order = self.order;
        // One per second: enough to show, and few enough to inspect.
        let poison = act.poison && order.is_multiple_of(u64::from(self.args.rate));
        let (kind, amount) = if poison { ("OrderRefused", -1) } else { ("OrderPlaced", 25) };
        NewEvent::new(
            "order",
            order.to_string(),
            kind,
            format!(r#"{{"order":{order},"amount":{amount}}}"#),
        )
        .request_id(format!("order-{order}"))
    }

    async fn report(&self, mood: Mood) -> Result<Statistics, Failure> {
        let s = self.store.statistics(self.outbox).await?;
        let bar = "█".repeat(usize::try_from(s.pending / 5).unwrap_or(0).min(40));
        output::print(&format!(
            "  API {:<4}  appended {:>6}  delivered {:>6}  dead {:>3}  waiting {:>5} {bar}\n",
            mood.word(),
            output::number(s.appended),
            output::number(s.delivered),
            output::number(s.dead),
            output::number(s.pending),
        ))?;
        Ok(s)
    }

    /// Waits until nothing is pending. Returns the number of remaining events.
    async fn drain(&self, stop: &CancellationToken) -> Result<i64, Failure> {
        self.target.set(Mood::Well);
        let deadline = Instant::now() + DRAIN;
        output::print("\nNo new orders. Waiting until the outbox is empty.\n")?;
        loop {
            let left = self.report(Mood::Well).await?.pending;
            if left == 0 || Instant::now() > deadline || stop.is_cancelled() {
                return Ok(left);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

fn fresh_folder() -> Result<PathBuf, Failure> {
    let folder = PathBuf::from(FOLDER);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(Failure::Output)?;
    }
    std::fs::create_dir_all(&folder).map_err(Failure::Output)?;
    Ok(folder)
}

fn store_url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("demo.db").display())
}

/// Writes the demo's configuration. It is an ordinary file, so that users can try other commands on
/// it.
fn write_config(folder: &Path, target_url: &str) -> Result<PathBuf, Failure> {
    let file = folder.join("postrider.toml");
    let text = format!(
        r#"# Written by `postrider demo`. The waits are short, so that there is something to see.
[store]
url = "{store}"

[api]
stream_every = "1s"

[relay]
backup_folder = "{folder}/dead-letters"
alert_cool_down = "10s"
monitor_every = "5s"

[[outbox]]
name = "{OUTBOX}"
preset = "api-call"
sink = "api"
idle_poll = "500ms"
backoff_first = "1s"
backoff_max = "5s"
max_retries = 4
on_success = "archive"

[[sink]]
name = "api"
kind = "http"
url = "{target_url}/orders/{{aggregate_id}}"
timeout = "2s"
"#,
        store = store_url(folder),
        folder = folder.display(),
    );
    std::fs::write(&file, text).map_err(Failure::Output)?;
    Ok(file)
}

/// Starts the daemon on the usual port, or on any free one if that is taken.
async fn start_daemon(file: &Path) -> Result<Daemon, Failure> {
    let usual = config::load(Some(file), None)?;
    let mut other = usual.clone();
    other.server.listen.set_port(0);
    match tokio::net::TcpListener::bind(usual.server.listen).await {
        Ok(free) => {
            drop(free);
            Daemon::start(usual, true).await
        }
        Err(_) => Daemon::start(other, true).await,
    }
}

/// Returns how this program was called, so that users can copy the commands shown: after
/// `cargo run`, it is not in the PATH.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "postrider".to_owned())
}

fn introduce(file: &Path, address: std::net::SocketAddr) -> Result<(), Failure> {
    let file = file.display();
    output::print(&format!(
        "Postrider demo. Everything below runs in this process; nothing else is needed.\n\n\
         See the mail move:  http://{address}/\n\n\
         While it runs, in another terminal:\n  \
         curl -s http://{address}/metrics | grep postrider_outbox\n  \
         curl -s http://{address}/api/v1/outboxes/{OUTBOX}/events \\\n    \
         -H 'content-type: application/json' \\\n    \
         -d '{{\"aggregate_type\":\"order\",\"aggregate_id\":\"me\",\
         \"event_type\":\"OrderPlaced\",\"payload\":{{}}}}'\n  \
         {program} --config {file} stats\n  \
         {program} --config {file} dlq list --outbox {OUTBOX}\n",
        program = program(),
    ))
}

/// Opens the address in the desktop's browser.
fn open_page(url: &str) -> Result<(), Failure> {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = std::process::Stdio::null;
    let started = std::process::Command::new(opener)
        .arg(url)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn();
    match started {
        Ok(_) => Ok(()),
        Err(error) => output::print(&format!(
            "No browser opens by itself here ({opener}: {error}); go to the address above.\n"
        )),
    }
}

async fn conclude(
    store: &dyn Database,
    outbox: &Outbox,
    target: &Target,
    left: i64,
    file: &Path,
) -> Result<(), Failure> {
    let found = Reconciliation::new(outbox.name(), store.ledger(outbox).await?);
    output::print(
        "\nThe ledger, counted by the database at insert and by the relay at settling:\n",
    )?;
    reconcile::print(std::slice::from_ref(&found))?;
    let received = target.distinct();
    let delivered = found.delivered.count;
    output::print(&format!(
        "The API itself saw {} different events; {} are delivered, {} are dead letters.\n\n\
         Look at them:      {program} --config {file} dlq list --outbox {OUTBOX}\n\
         Deal with one:     {program} --config {file} dlq resolve 1 --note 'refunded by hand'\n\
         Start for real:    {program} config > postrider.toml\n",
        output::number(received as i128),
        output::number(delivered),
        output::number(found.dead.count),
        program = program(),
        file = file.display(),
    ))?;
    if !found.balanced {
        return Err(Failure::Unbalanced(format!("outbox {}", outbox.name())));
    }
    if i64::try_from(received).is_ok_and(|received| received < delivered) {
        return Err(Failure::Unbalanced(format!(
            "{delivered} events are counted as delivered, the API saw {received}"
        )));
    }
    match left {
        0 => Ok(()),
        left => Err(Failure::Partly(format!("{left} events were still waiting at the end"))),
    }
}
