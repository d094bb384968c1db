//! `postrider chaos`: reproduces failures of production with the product itself.

pub(crate) mod api;
mod limit;
mod n19;
mod page;
mod plot;
mod samples;
mod stage;
mod storm;
mod target;
mod verdict;

pub(crate) use storm::serve_relay;

use crate::cli::ChaosCommand;
use crate::commands::{Context, Failure};

/// Event types of a call that the API accepts, and of one that it always rejects.
const CALL: &str = "CharacterLookup";
const POISON: &str = "Poison";
/// Payload of a call.
const PAYLOAD: &str = r#"{"ocid":"0f3a9c1be0724d6d8f7e5a4b3c2d1e0f","world":"Scania","fields":["name","level","class","guild"],"requested_by":"profile-page"}"#;

pub(crate) async fn chaos(context: &Context, command: ChaosCommand) -> Result<(), Failure> {
    let config = context.load()?;
    let (url, connections_max) = (config.store.url.expose(), config.store.connections_max);
    match command {
        ChaosCommand::N19(args) => n19::n19(url, connections_max, &args).await,
        ChaosCommand::Storm(args) => storm::storm(url, connections_max, &args).await,
    }
}
