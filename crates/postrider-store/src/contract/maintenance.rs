//! Maintenance, which one relay at a time does for all.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;

use super::{DlqFilter, OldestLetters, Result, parse_stored};
use crate::{Dedupe, fingerprint};

/// The rows to recover.
#[derive(Debug, Clone)]
pub struct Recovery<'a> {
    /// Fenced relays: all of their rows.
    pub dead: &'a [String],
    /// Live relays: none of their rows.
    pub live: &'a [String],
    /// Rows of any other holder (a relay that is on no list) if held for longer than this.
    pub stalled_after: Duration,
}

/// Retention times of rows.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Time for archived events, counted from `delivered_at`.
    pub archive: Duration,
    /// Time for resolved dead letters, counted from `resolved_at`; unresolved ones are never
    /// removed. Also for jobs that are done, counted from their end; a job that stopped or failed
    /// is kept, because it can be resumed.
    pub resolved: Duration,
    /// Time for remembered request ids.
    pub dedupe: Dedupe,
    /// Maximum number of rows removed per statement.
    pub chunk: u32,
}

/// How long imports remember a dead letter that was resolved and cleaned up.
pub const CLOSED_LETTERS_KEPT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum number of marked rows that are moved one by one after a failed step.
const ONE_BY_ONE_MAX: u32 = 1_000;

/// A row that was marked `DEAD_LETTER` and is now in the dead-letter table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedLetter {
    /// Row id that the event had in the outbox.
    pub original_id: i64,
    /// Identity of the event.
    pub event_id: String,
}

impl From<(i64, String)> for MovedLetter {
    fn from((original_id, event_id): (i64, String)) -> Self {
        Self { original_id, event_id }
    }
}

/// The result of a clean-up.
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

/// Maintenance of an outbox. Several relays can run it at once; running it on one is only cheaper.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Returns `PROCESSING` rows that no relay works on any more to `PENDING`, and counts the crash
    /// on each. Walks the table in bounded steps.
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64>;

    /// Removes a fenced relay from the list, once its rows are recovered in all outboxes.
    async fn remove_relay(&self, relay_id: &str) -> Result<()>;

    /// Moves rows that were marked `DEAD_LETTER` (second safety net) into the dead-letter table.
    /// Returns the rows moved, by id. A row that the table refuses does not hold up the others.
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

    /// Moves at most `chunk` marked rows with ids in this range, in one transaction.
    async fn move_marked_within(
        &self,
        outbox: &Outbox,
        ids: RangeInclusive<i64>,
        chunk: u32,
    ) -> Result<Vec<MovedLetter>>;

    /// Returns the ids of at most `limit` marked rows.
    async fn marked_rows(&self, outbox: &Outbox, limit: u32) -> Result<Vec<i64>>;

    /// Computes the fingerprints of at most `chunk` dead letters that have none: those of
    /// [`Maintenance::move_marked`], and those that an older program wrote. Returns how many.
    async fn fingerprint_dead_letters(&self, outbox: &Outbox, chunk: u32) -> Result<u64>;

    /// Returns matching unresolved dead letters after an id, oldest first: at most `limit`, from a
    /// bounded number of rows.
    async fn oldest_dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        after_id: i64,
        limit: u32,
    ) -> Result<OldestLetters>;

    /// Sums up ledger entries and old minutes (see [`LEDGER_BY_MINUTE`](super::LEDGER_BY_MINUTE)),
    /// so that the ledger stays small however old the outbox is. Returns how many lines were
    /// folded.
    async fn fold_ledger(&self, outbox: &Outbox, chunk: u32) -> Result<u64>;

    /// Removes rows that are older than their retention, in bounded chunks. For
    /// [`CLOSED_LETTERS_KEPT`] the store remembers each removed dead letter, so that an import of
    /// an old backup file does not restore it.
    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned>;
}

/// Computes the fingerprints of dead letters that have none, given id, reason and error message.
pub(crate) fn fingerprints(unseen: Vec<(i64, String, String)>) -> Result<Vec<(i64, String)>> {
    let of = |(id, reason, message): (i64, String, String)| {
        Ok((id, fingerprint(parse_stored("reason", &reason)?, &message)))
    };
    unseen.into_iter().map(of).collect()
}
