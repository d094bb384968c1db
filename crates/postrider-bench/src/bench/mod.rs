//! `postrider bench`: speed, latency and memory, measured with the product itself.
//!
//! Each run creates its own tables in the given store, and drops them at the end, also after
//! Ctrl-C. In the same run, it also measures the limit that its figure is compared with.

mod api;
mod append;
mod backlog;
mod bare;
mod blocked_keys;
mod buffer;
mod buffer_bare;
mod bulk_retry;
mod checker;
mod claims;
mod destinations;
mod drain;
mod event;
pub(crate) mod facts;
mod gateway;
mod held_xmin;
mod inbox;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
pub(crate) mod kafka;
mod latency;
mod letters;
mod limit;
pub(crate) mod machine;
mod numbers;
mod outage;
mod paced;
mod page;
mod producers;
mod relays;
mod report;
mod scale;
mod schedule;
mod sinks;
mod stage;
pub(crate) mod takeover;

use postrider_command::Failure;
use postrider_command::output::number;
use postrider_store::ClaimMode;
use serde::Serialize;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ServeApi;
use crate::cli::{BenchCommand, OutputArgs};
use facts::Soundness;
use report::Report;
use stage::Stage;

/// Runs a bench on the store with this URL.
///
/// # Errors
/// If the store or the sink failed, or the run was interrupted.
pub async fn bench(
    url: &str,
    connections_max: u32,
    serve_api: ServeApi,
    command: BenchCommand,
) -> Result<(), Failure> {
    let (output, claim) = shared(&command);
    report::check_path(output.report.as_deref())?;
    let mut interrupts = Interrupts::listen()?;
    let stage =
        Stage::open(url, connections_max, output.outbox.as_deref(), claim, serve_api).await?;
    let outcome = tokio::select! {
        outcome = run(&stage, &command) => outcome,
        () = interrupts.next() => Err(Failure::Interrupted),
    };
    if matches!(outcome, Err(Failure::Interrupted)) {
        eprintln!("interrupted: dropping the tables of this bench (once more to leave them)");
    }
    let cleaned = tokio::select! {
        cleaned = stage.clean_up() => cleaned,
        () = interrupts.next() => Err(Failure::Interrupted),
    };
    let report = outcome?;
    cleaned?;
    report.give_out(shared(&command).0)
}

async fn run(stage: &Stage, command: &BenchCommand) -> Result<Report, Failure> {
    match command {
        BenchCommand::Drain(args) => drain::drain(stage, args).await,
        BenchCommand::Latency(args) => latency::latency(stage, args).await,
        BenchCommand::Append(args) => append::append(stage, args).await,
        BenchCommand::Inbox(args) => inbox::inbox(stage, args).await,
        BenchCommand::BlockedKeys(args) => blocked_keys::blocked_keys(stage, args).await,
        BenchCommand::Destinations(args) => destinations::destinations(stage, args).await,
        BenchCommand::HeldXmin(args) => held_xmin::held_xmin(stage, args).await,
        BenchCommand::Outage(args) => outage::outage(stage, args).await,
        BenchCommand::Scale(args) => scale::scale(stage, args).await,
        BenchCommand::Takeover(args) => takeover::takeover(stage, args).await,
        BenchCommand::Backlog(args) => backlog::backlog(stage, args).await,
        BenchCommand::Api(args) => api::api(stage, args).await,
        BenchCommand::Buffer(args) => buffer::buffer(stage, args).await,
        BenchCommand::BulkRetry(args) => bulk_retry::bulk_retry(stage, args).await,
        BenchCommand::Gateway(args) => gateway::gateway(stage, args).await,
        BenchCommand::Page(args) => page::page(stage, args).await,
        BenchCommand::Producers(args) => producers::producers(stage, args).await,
    }
}

fn shared(command: &BenchCommand) -> (&OutputArgs, ClaimMode) {
    match command {
        BenchCommand::Drain(args) => (&args.output, args.relay.claim),
        BenchCommand::Latency(args) => (&args.load.output, args.load.relay.claim),
        BenchCommand::Append(args) => (&args.output, ClaimMode::default()),
        BenchCommand::Inbox(args) => (&args.output, ClaimMode::default()),
        BenchCommand::BlockedKeys(args) => (&args.output, args.relay.claim),
        BenchCommand::Destinations(args) => (&args.output, args.relay.claim),
        BenchCommand::HeldXmin(args) => (&args.load.output, args.load.relay.claim),
        BenchCommand::Outage(args) => (&args.load.output, args.load.relay.claim),
        BenchCommand::Scale(args) => (&args.output, args.relay.claim),
        BenchCommand::Takeover(args) => (&args.output, ClaimMode::Lanes),
        BenchCommand::Backlog(args) => (&args.output, args.claim),
        BenchCommand::Api(args) => (&args.output, ClaimMode::default()),
        BenchCommand::Buffer(args) => (&args.output, ClaimMode::default()),
        BenchCommand::BulkRetry(args) => (&args.output, ClaimMode::default()),
        BenchCommand::Gateway(args) => (&args.output, ClaimMode::default()),
        BenchCommand::Page(args) => (&args.output, ClaimMode::default()),
        BenchCommand::Producers(args) => (&args.output, args.relay.claim),
    }
}

/// A listener for Ctrl-C and SIGTERM.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Partly(format!("no signals can be heard: {error}")))
        };
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Converts the data that are particular to a bench to JSON.
fn details(details: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(details).map_err(|error| Failure::Output(std::io::Error::other(error)))
}

/// Formats events per second for people.
fn rate(events_per_s: f64) -> String {
    format!("{} events/s", number(events_per_s.round() as i128))
}

fn rounds_figure(rounds: u32) -> (String, String) {
    ("rounds".to_owned(), format!("{rounds} of each in turn; the fastest counts"))
}

fn soundness_figures(soundness: &Soundness) -> Vec<(String, String)> {
    let Soundness { rss_max_mb, rss_idle_mb, duplicates, order_violations, balanced } = soundness;
    vec![
        ("resident memory".to_owned(), format!("{rss_max_mb} MB, idle {rss_idle_mb} MB")),
        ("duplicates".to_owned(), number(i128::from(*duplicates))),
        ("out of order in a key".to_owned(), number(i128::from(*order_violations))),
        ("ledger".to_owned(), if *balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
    ]
}
