//! The command line of `postrider token`.

use std::time::Duration;

use clap::Subcommand;
use postrider_command::parse_time;

use crate::http::access::Role;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token: prints it once, and the line for the file that `api.tokens_file` names
    New {
        /// Whose it is; the audit trail has this name
        #[arg(long)]
        name: String,
        /// What its holder may do
        #[arg(long, value_enum)]
        role: Role,
        /// How long it works, such as 90d [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = parse_time)]
        expires: Option<Duration>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}
