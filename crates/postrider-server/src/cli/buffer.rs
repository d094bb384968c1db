//! The command line of `postrider buffer`.

use std::path::PathBuf;

use clap::Subcommand;

use super::operator::{operator, operator_name};

#[derive(Debug, Subcommand)]
pub(crate) enum BufferCommand {
    /// Show what waits in Redis, which batches are on their way, and the ledger
    Status {
        /// Only this buffer
        #[arg(long, short)]
        buffer: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// End batches of workers that are gone; relays that run do it by themselves
    Recover {
        /// Only this buffer
        #[arg(long, short)]
        buffer: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Save batches from a backup file, each once, under its own id
    Import {
        /// Files (JSON lines)
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Your name, for the audit trail
        #[arg(long, default_value_t = operator(), value_parser = operator_name)]
        operator: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}
