//! Batches that were moved out of a buffer, and their outcomes.

use serde::Serialize;
use uuid::Uuid;

use super::BufferError;
use crate::store::BatchEntry;

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

impl MovedBatch {
    /// Returns the valid entries, and the invalid fields: not text, or not a non-negative integer.
    pub fn entries(&self) -> (Vec<BatchEntry>, Vec<(&[u8], String)>) {
        let (mut entries, mut unfit) = (Vec::new(), Vec::new());
        for (field, value) in &self.fields {
            match entry(field, value) {
                Ok(entry) => entries.push(entry),
                Err(reason) => unfit.push((field.as_slice(), reason)),
            }
        }
        (entries, unfit)
    }
}

fn entry(field: &[u8], value: &[u8]) -> Result<BatchEntry, String> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let name = text(field).filter(|name| !name.contains('\0'));
    let name = name.ok_or("the field is no text that a database can hold")?;
    let shown = String::from_utf8_lossy(value);
    let count: i64 = text(value)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("`{shown}` is no integer of 64 bits"))?;
    if count < 0 {
        return Err(format!("the count {shown} is negative"));
    }
    Ok(BatchEntry { field: name.to_owned(), count })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_count_is_told_apart() {
        let fields: [(&[u8], &[u8]); 6] = [
            (b"a", b"3"),
            (b"b", b"-1"),
            (b"c", b"1.5"),
            (b"d", b"9223372036854775808"),
            (b"\xff", b"1"),
            (b"f", b"9223372036854775807"),
        ];
        let fields = fields.map(|(field, value)| (field.to_vec(), value.to_vec())).to_vec();
        let batch = MovedBatch { id: Uuid::nil(), fields, confirmed: true };
        let (entries, unfit) = batch.entries();
        let entry = |field: &str, count| BatchEntry { field: field.to_owned(), count };
        assert_eq!(entries, [entry("a", 3), entry("f", i64::MAX)]);
        let unfit: Vec<&[u8]> = unfit.into_iter().map(|(field, _)| field).collect();
        assert_eq!(unfit, [b"b", b"c", b"d", b"\xff" as &[u8]]);
    }
}
