//! The command line of `postrider bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use postrider_store::ClaimMode;

use super::shared::{EventArgs, OutputArgs, RelayArgs, SinkArgs, u32_in, u64_in};

/// Each run makes an outbox of its own in the given store, and drops it at the end, also after
/// Ctrl-C. Each prints the limit that it is measured against, taken in the same run, and the ratio.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Fill an outbox, then measure how fast relays empty it
    Drain(DrainArgs),
    /// Append at a fixed rate and measure the time from commit to delivery
    Latency(LatencyArgs),
    /// Measure appends: one by one and in batches, with and without request id
    Append(AppendBenchArgs),
    /// Measure a consumer with an inbox, against the same effects without one
    Inbox(InboxBenchArgs),
    /// Measure how fast ready events flow past events that wait behind failing keys
    BlockedKeys(BlockedKeysArgs),
    /// Measure whether destinations that are up keep their rate while another one is down
    Destinations(DestinationsArgs),
    /// Append at a fixed rate while a transaction elsewhere is kept open for the whole run
    HeldXmin(HeldXminArgs),
    /// Take the destination away under a steady load and bring it back, by commands of yours
    Outage(OutageArgs),
    /// Drain the same number of events with 1, 2 and 4 relays; count duplicates and order
    /// violations
    Scale(ScaleArgs),
    /// Kill relays, and measure how long their lanes wait for another one
    Takeover(TakeoverArgs),
    /// Measure the time of one claim with few and with many events waiting
    Backlog(BacklogArgs),
    /// Measure the API's answers with many events and dead letters in the tables
    Api(ApiBenchArgs),
    /// Fill a buffer in Redis, then measure how fast it is saved: as new rows, and onto known ones
    Buffer(BufferBenchArgs),
    /// Send dead letters again by filter: at full speed, then with a rate, interrupted half-way
    BulkRetry(BulkRetryArgs),
    /// Measure what a gateway answers from its cache
    Gateway(GatewayBenchArgs),
    /// Measure how long each page takes in Chromium, with many events in the table
    Page(PageBenchArgs),
    /// Measure the application's transactions, without relays and beside relays that drain a
    /// backlog
    Producers(ProducersArgs),
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Events to drain
    #[arg(
        long, default_value_t = 200_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) events: u64,
    /// Relays, each with connections and a lease of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) relays: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct LatencyArgs {
    /// Events per second, whatever the answers
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = u32_in(1..=1_000_000))]
    pub(crate) rate: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = u32_in(1..=86_400))]
    pub(crate) seconds: u32,
    /// Seconds at the same rate before that, which do not count: connections are made meanwhile
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = u32_in(0..=3_600))]
    pub(crate) warm_up: u32,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub struct HeldXminArgs {
    /// Events per second, whatever the answers
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = u32_in(1..=1_000_000))]
    pub(crate) rate: u32,
    /// Seconds to measure, once with the transaction and once without
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = u32_in(1..=86_400))]
    pub(crate) seconds: u32,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Debug, Args)]
pub struct OutageArgs {
    /// Shell command that takes the destination away, such as `systemctl kill -s KILL kafka`
    #[arg(long, value_name = "COMMAND")]
    pub(crate) stop: String,
    /// Shell command that brings it back, and ends when it answers
    #[arg(long, value_name = "COMMAND")]
    pub(crate) start: String,
    /// How long it is away
    #[arg(
        long,
        default_value = "30s",
        value_name = "TIME",
        value_parser = postrider_command::parse_time
    )]
    pub(crate) away: Duration,
    /// Seconds of deliveries before it goes, and about as many after its return
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = u32_in(1..=3_600))]
    pub(crate) around: u32,
    /// Events per second, whatever the answers
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = u32_in(1..=1_000_000))]
    pub(crate) rate: u32,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// What the benches with a fixed rate share.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Connections that append
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) writers: u32,
    /// Relays, each with connections and a lease of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) relays: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct AppendBenchArgs {
    /// Events to append one by one; in batches ten times as many
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) events: u64,
    /// Events per batch append
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = u32_in(1..=5_000))]
    pub(crate) batch: u32,
    /// Writers at the same time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) writers: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct InboxBenchArgs {
    /// Events to consume, and then once more as repeats
    #[arg(long, default_value_t = 200_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) events: u64,
    /// Events per transaction
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = u32_in(1..=5_000))]
    pub(crate) batch: u32,
    /// Identities in random order, as a plain INSERT gets them, instead of ascending as the
    /// library's
    #[arg(long)]
    pub(crate) random_ids: bool,
    /// Consumers at the same time
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) consumers: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct BlockedKeysArgs {
    /// Events that wait behind failing keys
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) blocked: u64,
    /// Keys that fail
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = u64_in(1..=100_000))]
    pub(crate) failing_keys: u64,
    /// Events of other keys, appended after the blocked ones
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) ready: u64,
    /// Rounds, each without and with the blocked events; the fastest of each counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = u32_in(1..=100))]
    pub(crate) rounds: u32,
    /// Relays, each with connections and a lease of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) relays: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct DestinationsArgs {
    /// HTTP destinations
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = u32_in(2..=200))]
    pub(crate) destinations: u32,
    /// How many of them refuse every connection
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = u32_in(1..=199))]
    pub(crate) down: u32,
    /// Events of those that are up
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) events: u64,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Numbers of relays; the first is what the others are compared with
    #[arg(
        long,
        default_value = "1,2,4", value_delimiter = ',',
        value_name = "LIST",
        value_parser = u32_in(1..=64)
    )]
    pub(crate) relays: Vec<u32>,
    /// Rounds, each with all numbers of relays in turn; the fastest of each counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = u32_in(1..=100))]
    pub(crate) rounds: u32,
    /// Events to drain with each number of relays
    #[arg(
        long, default_value_t = 200_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) events: u64,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct TakeoverArgs {
    /// Relays that share the lanes, each a process of its own
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = u32_in(2..=16))]
    pub(crate) relays: u32,
    /// How often one of them is killed
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = u32_in(1..=100))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// One relay of `bench takeover`.
#[derive(Debug, Args)]
pub struct BenchRelayArgs {
    #[arg(long)]
    pub(crate) outbox: String,
}

#[derive(Debug, Args)]
pub struct BacklogArgs {
    /// Events waiting; the first is what the others are compared with
    #[arg(
        long,
        default_value = "10000,1000000,5000000", value_delimiter = ',',
        value_name = "LIST",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) sizes: Vec<u64>,
    /// Claim mode: rows or lanes
    #[arg(long, default_value_t = ClaimMode::Rows, value_name = "MODE")]
    pub(crate) claim: ClaimMode,
    /// Events per claim
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) batch: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct ApiBenchArgs {
    /// Live events in the outbox
    #[arg(
        long, default_value_t = 5_000_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) events: u64,
    /// Delivered events in the archive
    #[arg(
        long, default_value_t = 1_000_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) archived: u64,
    /// Unresolved dead letters
    #[arg(
        long, default_value_t = 100_000,
        value_name = "N",
        value_parser = u64_in(10..=10_000_000)
    )]
    pub(crate) dead_letters: u64,
    /// Requests of each kind
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) requests: u32,
    /// Clients that ask at the same time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = u32_in(1..=200))]
    pub(crate) clients: u32,
    /// What each kind has to reach at the 99th percentile; the exit code is 1 otherwise
    #[arg(
        long,
        default_value = "50ms",
        value_name = "TIME",
        value_parser = postrider_command::parse_time
    )]
    pub(crate) target: Duration,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct BufferBenchArgs {
    /// Redis, or some nodes of a cluster: redis://host1:6379,host2:6379
    #[arg(long, env = "REDIS_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) redis: String,
    /// Distinct fields, each with a count
    #[arg(long, default_value_t = 500_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) entries: u64,
    /// Fields of one batch at most
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = u32_in(1..=50_000))]
    pub(crate) fields_max: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct BulkRetryArgs {
    /// Dead letters of each of the two jobs
    #[arg(
        long, default_value_t = 100_000,
        value_name = "N",
        value_parser = u64_in(100..=10_000_000)
    )]
    pub(crate) letters: u64,
    /// Events per second at most of the second job
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = u32_in(1..=1_000_000))]
    pub(crate) rate: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct PageBenchArgs {
    /// Live events in the outbox
    #[arg(
        long, default_value_t = 5_000_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) events: u64,
    /// Unresolved dead letters
    #[arg(
        long, default_value_t = 100_000,
        value_name = "N",
        value_parser = u64_in(10..=10_000_000)
    )]
    pub(crate) dead_letters: u64,
    /// Loads of each page
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = u32_in(1..=1_000))]
    pub(crate) loads: u32,
    /// What each load has to reach, data included; the exit code is 1 otherwise
    #[arg(
        long,
        default_value = "1s",
        value_name = "TIME",
        value_parser = postrider_command::parse_time
    )]
    pub(crate) target: Duration,
    /// The browser's driver
    #[arg(long, env = "CHROMEDRIVER", default_value = "chromedriver", value_name = "FILE")]
    pub(crate) chromedriver: PathBuf,
    /// The browser
    #[arg(long, env = "CHROMIUM", default_value = "/usr/bin/chromium", value_name = "FILE")]
    pub(crate) chromium: PathBuf,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct GatewayBenchArgs {
    /// Time to measure; the limit is measured as long
    #[arg(
        long,
        default_value = "10s",
        value_name = "TIME",
        value_parser = postrider_command::parse_time
    )]
    pub(crate) seconds: Duration,
    /// Clients that ask at the same time
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = u32_in(1..=200))]
    pub(crate) clients: u32,
    /// Different calls, all of them in the cache
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) keys: u32,
    /// Bytes of an answer
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = u32_in(1..=1_000_000))]
    pub(crate) answer: u32,
    /// Requests per second to reach; the exit code is 1 otherwise
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    pub(crate) target: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct ProducersArgs {
    /// Events that wait when the relays start
    #[arg(
        long, default_value_t = 500_000,
        value_name = "N",
        value_parser = u64_in(1..=100_000_000)
    )]
    pub(crate) events: u64,
    /// Transactions per second of the application
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) rate: u32,
    /// Seconds to measure, or until the backlog is gone
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = u32_in(1..=3_600))]
    pub(crate) seconds: u32,
    /// Transactions that must be measured in each run for its figures to count
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = u32_in(1..))]
    pub(crate) transactions_min: u32,
    /// Connections that append
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) writers: u32,
    /// Relays, each with connections and a lease of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = u32_in(1..=64))]
    pub(crate) relays: u32,
    #[command(flatten)]
    pub(crate) event: EventArgs,
    #[command(flatten)]
    pub(crate) relay: RelayArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
