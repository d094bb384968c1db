//! What several commands of `bench` and `chaos` share on their command lines.

use std::ops::RangeBounds;
use std::path::PathBuf;

use clap::builder::{RangedI64ValueParser, RangedU64ValueParser};
use clap::{Args, ValueEnum};
use postrider_store::ClaimMode;

/// Accepts whole numbers of this range.
pub(super) fn u32_in(range: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(range)
}

/// Accepts whole numbers of this range.
pub(super) fn u64_in(range: impl RangeBounds<u64>) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(range)
}

/// Where events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SinkKind {
    /// Nowhere: what remains is the cost of the relay
    Null,
    /// One request per event
    Http,
    /// A topic of a Kafka broker
    Kafka,
}

#[derive(Debug, Args)]
pub(crate) struct EventArgs {
    /// Bytes of payload per event
    #[arg(long, default_value_t = 256, value_name = "BYTES", value_parser = u32_in(32..=4_194_304))]
    pub(crate) payload: u32,
    /// Distinct aggregates (ordering keys)
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = u64_in(1..=10_000_000))]
    pub(crate) keys: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// Claim mode: rows or lanes
    #[arg(long, default_value_t = ClaimMode::Rows, value_name = "MODE")]
    pub(crate) claim: ClaimMode,
    /// Events per claim
    #[arg(long, default_value_t = 2_000, value_name = "N", value_parser = u32_in(1..=100_000))]
    pub(crate) batch: u32,
}

#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    /// Where to
    #[arg(long, value_enum, default_value_t = SinkKind::Null)]
    pub(crate) sink: SinkKind,
    /// Kafka: brokers, HOST:PORT and more with commas
    #[arg(long, default_value = "localhost:9092", value_name = "LIST")]
    pub(crate) brokers: String,
    /// Kafka: a topic that exists [default: one that the bench makes and deletes]
    #[arg(long, value_name = "NAME")]
    pub(crate) topic: Option<String>,
    /// HTTP: URL to post to [default: a target that the bench starts inside itself]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Name of the outbox to make; refused if it exists [default: bench_ and random characters]
    #[arg(long, value_name = "NAME")]
    pub(crate) outbox: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a report with plots; opens without a network
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}
