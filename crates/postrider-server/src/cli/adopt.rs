//! `postrider outbox adopt`

use clap::Args;

use super::operator::{operator, operator_name};

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// Name of the outbox
    pub(crate) outbox: String,
    /// Only show how many rows and dead letters would be taken, and how many delivered rows the
    /// clean-up will delete
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Your name, for the audit trail
    #[arg(long, default_value_t = operator(), value_parser = operator_name)]
    pub(crate) operator: String,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
