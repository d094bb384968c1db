//! The command line.

mod adopt;
mod buffer;
mod inbox;
mod operator;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use postrider_bench::{BenchCommand, BenchRelayArgs, ChaosApiArgs, ChaosCommand, ChaosRelayArgs};
use postrider_command::parse_time;

pub(crate) use adopt::AdoptArgs;
pub(crate) use buffer::BufferCommand;
pub(crate) use inbox::InboxCommand;
pub(crate) use operator::{
    ActArgs, AuditArgs, By, DlqCommand, EditArgs, EventFilterArgs, EventsCommand, ExportArgs,
    FilterArgs, JobsCommand, OutboxCommand, PaceArgs, PageArgs, ReplayArgs, SinkCommand,
};
pub(crate) use token::TokenCommand;

/// A transactional outbox: events written with the business change, delivered at least once.
///
/// Start with `postrider demo`, which needs nothing. Then: `postrider config > postrider.toml`,
/// edit it, `postrider migrate`, `postrider run`.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Configuration file [default: ./postrider.toml if it is there, else the built-in default]
    #[arg(long, short, global = true, env = "POSTRIDER_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Store URL, instead of the one in the configuration
    #[arg(long, global = true, value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// What to log: error, warn, info, debug, or a filter such as postrider=debug
    #[arg(
        long,
        global = true,
        env = "POSTRIDER_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log: String,

    /// Log as JSON lines
    #[arg(long, global = true)]
    pub(crate) log_json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Deliver events, until stopped by SIGTERM or Ctrl-C
    Run(RunArgs),
    /// Watch an outbox at work: traffic, an outage, recovery, dead letters. Needs nothing
    Demo(DemoArgs),
    /// Make or update the tables of the configured outboxes
    Migrate(MigrateArgs),
    /// Append one event, for trying things out
    Append(AppendArgs),
    /// Show how the outboxes are doing
    Stats(ReadArgs),
    /// Look at events
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at dead letters, send them again, edit or resolve them
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Send delivered events again, from the archive
    Replay(ReplayArgs),
    /// Look at bulk jobs, stop them or have them go on
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Pause an outbox, change how relays share the work, import what an adopted table had
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Pause everything that leads to a sink
    #[command(subcommand)]
    Sink(SinkCommand),
    /// Look at buffers, end batches of dead workers, import batches from the backup file
    #[command(subcommand)]
    Buffer(BufferCommand),
    /// Look after consumers of this database: messages they could not handle, and their clean-up
    #[command(subcommand)]
    Inbox(InboxCommand),
    /// Who did what to which event
    Audit(AuditArgs),
    /// Check the ledger: appended = delivered + dead + pending, that of consumers: received =
    /// applied + ignored + dead, and those of buffers. Exits with 3 if they do not balance
    Reconcile(ReconcileArgs),
    /// Look for what keeps events from being delivered, and say what to do about it
    Doctor(DoctorArgs),
    /// Make tokens for the API
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the OpenAPI document of the API
    Openapi,
    /// Try the channels for alerts
    #[command(subcommand)]
    Alert(AlertCommand),
    /// Print the commented default configuration
    Config,
    /// Measure speed, latency and memory, against what the database and the sink can give
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Play through what goes wrong in production, and check that nothing is lost
    #[command(subcommand)]
    Chaos(ChaosCommand),
    /// The API that `chaos` breaks
    #[command(hide = true)]
    ChaosApi(ChaosApiArgs),
    /// One of the relays that `chaos storm` kills; stops when its standard input ends
    #[command(hide = true)]
    ChaosRelay(ChaosRelayArgs),
    #[command(hide = true)]
    BenchRelay(BenchRelayArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Make or update the tables first (always done for SQLite)
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Only check configuration, store and sinks, then exit
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// End by itself after this many seconds (at least 15), with the reconciliation
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<u64>,

    /// Events per second
    #[arg(
        long,
        default_value_t = 20,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) rate: u32,

    /// Open the page in the browser of this desktop
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Only print the SQL, with the GRANTs for application, relay and viewer
    #[arg(long)]
    pub(crate) print: bool,

    /// Only what consumers need: for a database with an inbox and no outbox
    #[arg(long)]
    pub(crate) consumer: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    /// Name of the outbox; may be left out if there is only one
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// First half of the ordering key, such as `account`
    #[arg(long)]
    pub(crate) aggregate_type: String,
    /// Second half of the ordering key, such as `42`
    #[arg(long)]
    pub(crate) aggregate_id: String,
    /// What happened, such as `TransferCompleted`
    #[arg(long)]
    pub(crate) event_type: String,
    /// The body; `-` reads standard input
    #[arg(long, default_value = "{}")]
    pub(crate) payload: String,
    /// A second event with this id is answered as a duplicate
    #[arg(long)]
    pub(crate) request_id: Option<String>,
    /// A header, NAME=VALUE; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Hold the first delivery back, such as 30s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) deliver_after: Option<Duration>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// Only this outbox
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Only the ledgers of consumers, also in a database without an outbox
    #[arg(long, conflicts_with_all = ["outbox", "watch"])]
    pub(crate) consumers: bool,
    /// Check again and again, a line per round; ends with 3 when a difference stays for two rounds
    #[arg(long)]
    pub(crate) watch: bool,
    /// Time between rounds
    #[arg(
        long,
        default_value = "60s",
        value_name = "TIME",
        value_parser = parse_time,
        requires = "watch"
    )]
    pub(crate) every: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// Send a test message to each channel, and show what each answered
    Test {
        /// Only this channel
        #[arg(long, value_name = "NAME")]
        channel: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Transactions open for longer than this are named: they hold back vacuum
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = parse_time)]
    pub(crate) long_transaction: Duration,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn header(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("`{text}` is not NAME=VALUE"))
}
