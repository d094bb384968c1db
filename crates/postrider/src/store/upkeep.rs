//! House-keeping: what one relay at a time does for all.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;

use super::{DlqFilter, OldestLetters, Result, parse_stored};
use crate::{Dedupe, Outbox, fingerprint};

/// Whose rows to recover.
#[derive(Debug, Clone)]
pub struct Recovery<'a> {
    /// Relays that are fenced: all of their rows.
    pub dead: &'a [String],
    /// Relays that live: none of their rows.
    pub live: &'a [String],
    /// Rows of anybody else (a relay that is on no list) when held for longer than this.
    pub stalled_after: Duration,
}

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Archived events, counted from `delivered_at`.
    pub archive: Duration,
    /// Resolved dead letters, counted from `resolved_at`; unresolved ones are never removed. Also
    /// jobs that are done, counted from their end; one that stopped or failed can be resumed.
    pub resolved: Duration,
    /// Remembered request ids.
    pub dedupe: Dedupe,
    /// Rows removed per statement.
    pub chunk: u32,
}

/// How long a dead letter that was resolved and cleaned up is known to imports.
pub const CLOSED_LETTERS_KEPT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Marked rows that are moved one by one after a step that failed.
const ONE_BY_ONE_MAX: u32 = 1_000;

/// A row that was marked `DEAD_LETTER`, and is in the dead-letter table now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedLetter {
    /// Row id that the event had in the outbox.
    pub original_id: i64,
    /// Identity.
    pub event_id: String,
}

impl From<(i64, String)> for MovedLetter {
    fn from((original_id, event_id): (i64, String)) -> Self {
        Self { original_id, event_id }
    }
}

/// What a clean-up removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Rows of the archive.
    pub archived: u64,
    /// Resolved dead letters.
    pub dead_letters: u64,
    /// Remembered request ids.
    pub keys: u64,
    /// Recorded attempts.
    pub attempts: u64,
    /// Bulk jobs that are done.
    pub jobs: u64,
}

/// Safe to run from several relays at once; running it from one is only cheaper.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Returns `PROCESSING` rows that nobody works on any more to `PENDING`, and counts the crash
    /// on each. Walks the table in bounded steps.
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64>;

    /// Takes a fenced relay off the list, once its rows are recovered in all outboxes.
    async fn bury(&self, relay_id: &str) -> Result<()>;

    /// Moves rows that were marked `DEAD_LETTER` (second rung) into the dead-letter table.
    /// Answers what was moved, by id. A row that the table refuses does not keep the others.
    async fn move_marked(&self, outbox: &Outbox, chunk: u32) -> Result<Vec<MovedLetter>> {
        let failed = match self.move_marked_within(outbox, i64::MIN..=i64::MAX, chunk).await {
            Err(error) if !error.is_transient() => error,
            answer => return answer,
        };
        let (mut moved, mut refused) = (Vec::new(), 0);
        for id in self.marked_rows(outbox, ONE_BY_ONE_MAX).await? {
            match self.move_marked_within(outbox, id..=id, 1).await {
                Ok(one) => moved.extend(one),
                Err(_) => refused += 1,
            }
        }
        match moved.is_empty() {
            true => Err(failed),
            false => {
                let outbox = outbox.name();
                tracing::warn!(outbox, refused, error = %failed, "marked rows stay in the outbox");
                Ok(moved)
            }
        }
    }

    /// Moves at most `chunk` marked rows with ids in that range, in one transaction.
    async fn move_marked_within(
        &self,
        outbox: &Outbox,
        ids: RangeInclusive<i64>,
        chunk: u32,
    ) -> Result<Vec<MovedLetter>>;

    /// Ids of marked rows, at most so many.
    async fn marked_rows(&self, outbox: &Outbox, limit: u32) -> Result<Vec<i64>>;

    /// Computes the fingerprints of at most `chunk` dead letters that have none: those of
    /// [`Upkeep::move_marked`], and those that an older program wrote. Answers how many.
    async fn fingerprint_dead_letters(&self, outbox: &Outbox, chunk: u32) -> Result<u64>;

    /// Unresolved dead letters that fit, oldest first after an id: at most `limit`, of a bounded
    /// number of rows.
    async fn oldest_dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        after_id: i64,
        limit: u32,
    ) -> Result<OldestLetters>;

    /// Sums up book entries, and minutes older than [`BOOKS_BY_MINUTE`](super::BOOKS_BY_MINUTE), so
    /// that the books stay small however old the outbox is. Answers how many lines were folded.
    async fn fold_books(&self, outbox: &Outbox, chunk: u32) -> Result<u64>;

    /// Removes what is older than its retention, in bounded chunks. Of a dead letter the store
    /// remembers for [`CLOSED_LETTERS_KEPT`] that it was there, so that an import of an old backup
    /// file does not bring it back.
    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned>;
}

/// Fingerprints of dead letters that have none: id, reason and error message.
pub(crate) fn fingerprints(unseen: Vec<(i64, String, String)>) -> Result<Vec<(i64, String)>> {
    let of = |(id, reason, message): (i64, String, String)| {
        Ok((id, fingerprint(parse_stored("reason", &reason)?, &message)))
    };
    unseen.into_iter().map(of).collect()
}
