//! `postrider bench`: speed and memory, measured with the product itself.
//!
//! Each run makes tables of its own in the given store and drops them at the end.

mod backlog;
mod drain;
mod outbox;
mod process;

use crate::cli::BenchCommand;
use crate::commands::{Context, Failure};

pub(crate) async fn bench(context: &Context, command: BenchCommand) -> Result<(), Failure> {
    let config = context.load()?;
    let url = config.store.url.expose().to_owned();
    let connections_max = config.store.connections_max;
    match command {
        BenchCommand::Drain(args) => drain::drain(&url, connections_max, &args).await,
        BenchCommand::Backlog(args) => backlog::backlog(&url, connections_max, &args).await,
    }
}
