//! Batches that were moved out of a buffer, and their outcomes.

use serde::Serialize;
use uuid::Uuid;

use super::BufferError;

/// A batch that was moved out of the buffer, as stored in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedBatch {
    /// Its identity, which never changes.
    pub id: Uuid,
    /// Fields and values. Any program can write them, so they may be anything.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether enough replicas have it. Until then it must not be saved: after a fail-over its
    /// counts would be in the buffer again.
    pub confirmed: bool,
}

/// The result of an attempt to take a batch over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// It belongs to the new owner.
    Batch(MovedBatch),
    /// Another worker has taken it.
    Taken,
    /// It has ended.
    Done,
    /// It is in the list, but its key is gone: dropped by the leak guard, or by Redis.
    Lost,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchEnd {
    /// It was saved.
    Applied,
    /// It was found to have been saved before.
    Ignored,
    /// It was written to the backup file.
    Dead,
    /// Its key was gone before it was saved. Not counted as any outcome, so that the ledger shows
    /// the loss.
    Lost,
}

impl BatchEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Ignored => "ignored",
            Self::Dead => "dead",
            Self::Lost => "lost",
        }
    }
}

/// A batch in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedBatch {
    /// Its id.
    pub id: Uuid,
    /// Number of fields.
    pub entries: u64,
    /// The owner: the id of a relay.
    pub owner: String,
}

/// The ledger in Redis: entries by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MovedLedger {
    /// Entries moved out of the buffer.
    pub moved: u64,
    /// Entries saved.
    pub applied: u64,
    /// Entries found to have been saved before.
    pub ignored: u64,
    /// Entries added to the buffer again, or passed on to other batches.
    pub given_back: u64,
    /// Entries written to the backup file.
    pub dead: u64,
}

/// The state of a buffer at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BufferLook {
    /// Number of fields that wait to be moved.
    pub fields: u64,
    /// Batches that are being saved.
    pub batches: Vec<ListedBatch>,
    /// The ledger.
    pub ledger: MovedLedger,
}

impl BufferLook {
    /// Returns the number of entries in batches that are being saved.
    pub fn waiting(&self) -> u64 {
        self.batches.iter().map(|batch| batch.entries).sum()
    }
}

/// Parses a line of the list of batches.
pub(super) fn listed((id, value): (String, String)) -> Result<ListedBatch, BufferError> {
    let parts = value.split_once(':').and_then(|(n, owner)| Some((n.parse().ok()?, owner)));
    match (id.parse(), parts) {
        (Ok(id), Some((entries, owner))) => {
            Ok(ListedBatch { id, entries, owner: owner.to_owned() })
        }
        _ => Err(BufferError::Refused(format!("the list of batches has `{id}` = `{value}`"))),
    }
}
