//! The command line of `postrider chaos`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use postrider_command::parse_time;
use postrider_store::ClaimMode;

use super::shared::{u32_in, u64_in};

/// Play through what goes wrong in production, and check that nothing is lost
#[derive(Debug, Subcommand)]
pub enum ChaosCommand {
    /// An API is down for hours, millions of calls wait, and must all come back by themselves
    N19(N19Args),
    /// Relays are killed, sessions cut, answers withheld: nothing may be lost or out of order
    ///
    /// Run it on your staging database to see what Postrider promises kept there. It makes an
    /// outbox of its own (and drops it at the end, also after Ctrl-C), appends events to it, and
    /// starts relays as processes of their own. While they deliver to a receiver inside this
    /// command, relays are killed with SIGKILL, their connections to the database are cut or stall,
    /// and the receiver hangs, resets connections, answers late, refuses, or rejects single events
    /// for good. Writers commit, roll back, and keep transactions open while others overtake them.
    ///
    /// After the last kill the faults end and the outbox has to drain. Then every event is
    /// accounted for, and each promise is printed with pass or FAIL. The exit code is 1 if one
    /// was broken.
    ///
    /// Only processes and connections of this run are disturbed; the database gets the load of
    /// `--rate`. A run of 1,000 kills takes about 15 minutes.
    #[command(after_help = "Examples:\n  \
        postrider --store postgres://app@staging/app chaos storm --kills 1000 \
            --report storm.html\n  \
        postrider --store mysql://app@staging/app chaos storm --rate 200 --json\n  \
        postrider --store postgres://app@staging/app chaos storm --sink kafka \
            --brokers kafka:9092")]
    Storm(StormArgs),
}

#[derive(Debug, Args)]
pub struct N19Args {
    /// Calls that fail during the outage [default: rps × outage]
    #[arg(long, value_name = "N", value_parser = u64_in(1..=100_000_000))]
    pub(crate) events: Option<u64>,
    /// Calls per second during the outage
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = u64_in(1..=1_000_000))]
    pub(crate) rps: u64,
    /// How long the API is down, before compression
    #[arg(long, default_value = "6h", value_name = "TIME", value_parser = parse_time)]
    pub(crate) outage: Duration,
    /// Compression: the outage and all waits of the relay are this many times shorter
    #[arg(long, default_value_t = 360, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) scale: u32,
    /// Calls among them that the API will always refuse
    #[arg(long, default_value_t = 52, value_name = "N")]
    pub(crate) poison: u64,
    /// Claim mode of the relay: rows or lanes
    #[arg(long, default_value_t = ClaimMode::Lanes, value_name = "MODE")]
    pub(crate) claim: ClaimMode,
    /// Events per claim
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = u32_in(1..=10_000))]
    pub(crate) batch: u32,
    /// Requests at the same time
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = u32_in(1..=10_000))]
    pub(crate) concurrency: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with plots, which opens without a network
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// The API that `chaos` breaks
#[derive(Debug, Args)]
pub struct ChaosApiArgs {
    /// Calls that are numbered below this are remembered
    #[arg(long)]
    pub(crate) calls: usize,
}

/// Where the events of a storm go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StormSink {
    /// A receiver inside this command, which misbehaves
    Http,
    /// A topic of its own on a Kafka broker, which behaves: only relays and sessions are disturbed
    Kafka,
}

#[derive(Debug, Args)]
pub struct StormArgs {
    /// Relays to kill in all; the run ends by itself after the last
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) kills: u32,
    /// Time between two kills, on average; they come in bursts, with pauses and lulls between them
    #[arg(long, default_value = "700ms", value_name = "TIME", value_parser = parse_time)]
    pub(crate) kill_every: Duration,
    /// Relays at the same time; one that was killed is started again at once
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = u32_in(1..=16))]
    pub(crate) relays: u32,
    /// Claim mode: lanes, which keeps the order of each key, or rows
    #[arg(long, default_value_t = ClaimMode::Lanes, value_name = "MODE")]
    pub(crate) claim: ClaimMode,
    /// Events appended per second
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) rate: u32,
    /// Ordering keys; fewer keys have more events each
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) keys: u32,
    /// Sessions that append at the same time; a third of them commits late
    #[arg(long, default_value_t = 6, value_name = "N", value_parser = u32_in(1..=100))]
    pub(crate) writers: u32,
    /// Where the events go
    #[arg(long, value_enum, default_value_t = StormSink::Http, value_name = "KIND")]
    pub(crate) sink: StormSink,
    /// Kafka brokers, for `--sink kafka`
    #[arg(long, env = "KAFKA_BROKERS", required_if_eq("sink", "kafka"), value_name = "HOST:PORT")]
    pub(crate) brokers: Option<String>,
    /// Repeats the same plan of faults; their timing still depends on the machine [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Time for the outbox to drain after the last kill
    #[arg(long, default_value = "3m", value_name = "TIME", value_parser = parse_time)]
    pub(crate) drain_timeout: Duration,
    /// Append the log of all relays to this file, to look into a broken promise
    #[arg(long, value_name = "FILE")]
    pub(crate) relay_log: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with plots, which opens without a network
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// One relay of `chaos storm`.
#[derive(Debug, Args)]
pub struct ChaosRelayArgs {
    #[arg(long)]
    pub(crate) outbox: String,
    #[arg(long)]
    pub(crate) claim: ClaimMode,
    /// Folder of the backup file
    #[arg(long)]
    pub(crate) backup_folder: PathBuf,
    /// Kafka, instead of HTTP
    #[arg(long, requires = "topic")]
    pub(crate) brokers: Option<String>,
    #[arg(long)]
    pub(crate) topic: Option<String>,
}
