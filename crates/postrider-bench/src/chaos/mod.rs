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

pub use storm::serve_relay;

use postrider_command::Failure;

use crate::cli::ChaosCommand;

/// Event types of a call that the API accepts, and of one that it always rejects.
const CALL: &str = "CharacterLookup";
const POISON: &str = "Poison";
/// Payload of a call.
const PAYLOAD: &str = "{\"ocid\":\"0f3a9c1be0724d6d8f7e5a4b3c2d1e0f\",\"world\":\"Scania\",\
     \"fields\":[\"name\",\"level\",\"class\",\"guild\"],\"requested_by\":\"profile-page\"}";

/// Plays through a failure on the store with this URL.
///
/// # Errors
/// If a promise was broken, the store failed, or the run was interrupted.
pub async fn chaos(url: &str, connections_max: u32, command: ChaosCommand) -> Result<(), Failure> {
    match command {
        ChaosCommand::N19(args) => n19::n19(url, connections_max, &args).await,
        ChaosCommand::Storm(args) => storm::storm(url, connections_max, &args).await,
    }
}
