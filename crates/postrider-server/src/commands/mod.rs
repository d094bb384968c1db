//! The commands.

pub(crate) mod adopt;
pub(crate) mod alert;
pub(crate) mod append;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod buffer;
pub(crate) mod buffer_ledger;
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod inbox;
pub(crate) mod jobs;
pub(crate) mod migrate;
pub(crate) mod outbox;
pub(crate) mod pauses;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod starting;
pub(crate) mod stats;
pub(crate) mod token;

use std::path::PathBuf;
use std::sync::Arc;

use postrider::Outbox;
use postrider_command::{Failure, connect};
use postrider_store::{Database, SchemaState};

use crate::config::{self, Built, Config};

/// Options that all commands share.
pub(crate) struct Context {
    pub(crate) config: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

impl Context {
    pub(crate) fn load(&self) -> Result<Config, Failure> {
        Ok(config::load(self.config.as_deref(), self.store.as_deref())?)
    }

    /// Opens configuration, store and outboxes, for commands that need existing tables.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let config = self.load()?;
        let (url, connections_max) =
            (config.store.url.expose().to_owned(), config.store.connections_max);
        // Errors in the configuration are reported first, whether the database answers or not.
        let built = config.build()?;
        let store = connect(&url, connections_max, false).await?;
        let outboxes: Vec<Outbox> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
        require_schema(store.as_ref(), &outboxes).await?;
        Ok(Opened { url, store, built })
    }
}

/// A store that is ready for use.
pub(crate) struct Opened {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Database>,
    pub(crate) built: Built,
}

impl Opened {
    /// Returns the outbox with this name; without a name, the only one.
    pub(crate) fn outbox(&self, name: Option<&str>) -> Result<Outbox, Failure> {
        let mut found = self.outboxes(name)?;
        match found.len() {
            1 => Ok(found.remove(0)),
            _ => {
                let names = found.iter().map(Outbox::name).collect::<Vec<_>>().join(", ");
                Err(Failure::Usage(format!("name one of the outboxes with --outbox: {names}")))
            }
        }
    }

    /// Returns all outboxes, or the one with this name.
    pub(crate) fn outboxes(&self, name: Option<&str>) -> Result<Vec<Outbox>, Failure> {
        let all: Vec<Outbox> = self.built.outboxes.iter().map(|o| o.outbox.clone()).collect();
        let Some(name) = name else { return Ok(all) };
        let names = all.iter().map(Outbox::name).collect::<Vec<_>>().join(", ");
        all.into_iter().find(|outbox| outbox.name() == name).map(|found| vec![found]).ok_or_else(
            || {
                Failure::Usage(format!(
                    "no outbox `{name}` is configured; there is: {names} (name one with --outbox)"
                ))
            },
        )
    }
}

pub(crate) async fn require_schema(
    store: &dyn Database,
    outboxes: &[Outbox],
) -> Result<(), Failure> {
    match store.schema_state(outboxes).await? {
        SchemaState::Ready => Ok(()),
        SchemaState::NeedsMigration(what) => {
            Err(Failure::Schema(format!("{what}; run `postrider migrate` first")))
        }
        SchemaState::TooNew(what) => {
            Err(Failure::Schema(format!("{what}; install a newer postrider")))
        }
    }
}
