//! Workers of write-behind buffers: they move counts from Redis into the database, each batch
//! exactly once.
//!
//! A round reads the list of batches, continues those of its own and of workers that are gone, then
//! moves and saves new ones. A worker keeps no state from one round to the next: what it was doing
//! when it was interrupted is on the list in Redis, and what the database decided is in the
//! database.
//!
//! | interrupted | what is found | what follows |
//! |---|---|---|
//! | before the move | nothing | – |
//! | after the move | a batch, undecided | it is saved, under the same id |
//! | COMMIT sent, no answer | undecided, or applied | saved, or *ignored* and deleted |
//! | after the commit | applied | *ignored* and deleted |
//! | cancelled | cancelled | its counts return to the buffer |
//! | in the backup file | cancelled | its counts return to the buffer; an import refuses it |
//! | recorded as dead | dead | deleted; an import saves it |

mod dead_batch;
mod entries;
mod recover;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::{Buffer, BufferError};
use postrider_store::{BatchTarget, Database, StoreKind};

pub use recover::{RecoveredBuffer, recover_buffers};
pub(crate) use worker::Worker;

use crate::error::RelayError;

/// Default maximum of fields per batch: a script of about 10 ms.
const FIELDS_MAX: u32 = 10_000;

/// The same on SQLite, where a transaction blocks all other writers.
const SQLITE_FIELDS_MAX: u32 = 1_000;

/// How the relay reacts to a Redis server that does not persist its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The relay does not start.
    #[default]
    Require,
    /// The relay starts and logs a warning.
    Warn,
}

/// A buffer and the target of its counts.
#[derive(Debug, Clone)]
pub struct BufferConfig {
    /// The buffer, used by this worker only.
    pub buffer: Arc<Buffer>,
    /// Where its counts are added.
    pub target: BatchTarget,
    /// Interval between rounds; after a full batch the next one follows at once.
    pub flush_every: Duration,
    /// Maximum number of fields per batch: one script and one transaction.
    pub fields_max: u32,
    /// How the relay reacts to a Redis server that does not persist its data.
    pub durability: Durability,
}

impl BufferConfig {
    /// Creates a configuration with the defaults: every second, 10,000 fields, durability required.
    pub fn new(buffer: Arc<Buffer>, target: BatchTarget) -> Self {
        Self {
            buffer,
            target,
            flush_every: Duration::from_secs(1),
            fields_max: FIELDS_MAX,
            durability: Durability::default(),
        }
    }

    fn fields_max(&self, store: StoreKind) -> u32 {
        match store {
            StoreKind::Sqlite => self.fields_max.min(SQLITE_FIELDS_MAX),
            StoreKind::Postgres | StoreKind::Mysql => self.fields_max,
        }
    }

    /// Checks that a relay may start with it: the target can take counts, and the server persists
    /// them. A server that is unreachable does not prevent the start.
    ///
    /// # Errors
    /// [`RelayError::Buffer`] says what is wrong.
    pub async fn check(&self, store: &dyn Database) -> Result<(), RelayError> {
        let name = self.buffer.name();
        let failed = |why: String| RelayError::Buffer(format!("buffer `{name}`: {why}"));
        if self.fields_max == 0 {
            return Err(failed("fields_max = 0: at least 1".to_owned()));
        }
        match store.check_target(&self.target).await {
            Err(error) if !error.is_transient() => return Err(failed(error.to_string())),
            Ok(()) | Err(_) => {}
        }
        match self.unsafe_because().await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                Err(failed(format!("{why} (or set durability = \"warn\" to accept that)")))
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(buffer = name, %error, "Redis cannot be asked yet; trying again");
                Ok(())
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Returns why counts must not be entrusted to this server; `None` if they may. Logs doubts as
    /// warnings.
    async fn unsafe_because(&self) -> Result<Option<String>, BufferError> {
        let safety = self.buffer.check().await?;
        for doubt in &safety.doubts {
            tracing::warn!(buffer = self.buffer.name(), "{doubt}");
        }
        if self.durability == Durability::Warn {
            for danger in &safety.dangers {
                tracing::warn!(buffer = self.buffer.name(), "{danger}");
            }
            return Ok(None);
        }
        Ok((!safety.dangers.is_empty()).then(|| safety.dangers.join("; ")))
    }
}
