//! Workers of write-behind buffers: from Redis into the database, each batch exactly once.
//!
//! A round looks at the list of batches, goes on with what is its own or nobody's, then moves and
//! saves new ones. A worker keeps nothing in mind from one round to the next: whatever it was doing
//! when it was interrupted is on the list in Redis, and what the database decided is in the database.
//!
//! | interrupted | what is found | what follows |
//! |---|---|---|
//! | before the move | nothing | – |
//! | after the move | a batch, undecided | it is saved, under the same id |
//! | COMMIT sent, no answer | undecided, or applied | saved, or *ignored* and deleted |
//! | after the commit | applied | *ignored* and deleted |
//! | cancelled | cancelled | its counts are given back |
//! | in the backup file | cancelled | given back; an import refuses |
//! | recorded as dead | dead | deleted; an import saves it |

mod bury;
mod recover;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::{Buffer, BufferError};
use postrider::store::{BatchTarget, Database, StoreKind};

pub use recover::{RecoveredBuffer, recover_buffers};
pub(crate) use worker::Worker;

use crate::relay::RelayError;

/// Fields of one batch at most, where nothing else is said: a script of about 10 ms.
const FIELDS_MAX: u32 = 10_000;

/// The same on SQLite, where a transaction holds up everybody else's writes.
const SQLITE_FIELDS_MAX: u32 = 1_000;

/// What happens where Redis does not keep what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The relay does not start.
    #[default]
    Require,
    /// It only says so.
    Warn,
}

/// A buffer and where its counts go.
#[derive(Debug, Clone)]
pub struct BufferConfig {
    /// The buffer; the worker's own.
    pub buffer: Arc<Buffer>,
    /// Where its counts go.
    pub target: BatchTarget,
    /// Time between rounds; a full batch is followed at once by the next.
    pub flush_every: Duration,
    /// Fields of one batch at most: one script, and one transaction.
    pub fields_max: u32,
    /// What happens where Redis does not keep what it is given.
    pub durability: Durability,
}

impl BufferConfig {
    /// The defaults: every second, 10,000 fields, durability required.
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

    /// Whether a relay may start with it: a target that counts can be added to, and a server that
    /// keeps them. A server that is away is no reason not to start.
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

    /// Why counts must not be trusted to this server; `None` if they may. Says what it doubts.
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
