//! `postrider inbox`

use std::time::Duration;

use clap::Subcommand;
use postrider_command::parse_time;

use super::By;

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// List unresolved messages that consumers could not handle, newest first
    List {
        /// Only of this consumer
        #[arg(long)]
        consumer: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only those with a smaller id, for the next page
        #[arg(long, value_name = "ID")]
        before: Option<i64>,
        /// Print as JSON, with key, headers and payload
        #[arg(long)]
        json: bool,
    },
    /// Have the consumer handle a message again
    Retry {
        /// Id of the message, as `list` shows it
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Resolve a message by hand; it is not handled
    Resolve {
        /// Id of the message, as `list` shows it
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Forget old events and sum up the ledger. A relay of this database does it by itself
    CleanUp {
        /// Only of this consumer
        #[arg(long)]
        consumer: Option<String>,
        /// Events received longer ago are forgotten (default: `inbox_retention` in the section
        /// `relay`)
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        retention: Option<Duration>,
    },
}
