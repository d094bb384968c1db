//! What a claim asks for and answers.

use tokio::time::Instant;

use super::horizon::Horizon;
use super::{LaneRow, Share};
use crate::event::Event;

/// Rows of a read while nothing is known about their weight.
const FIRST_ROWS_MAX: u64 = 1_000;

/// How much one claim may take.
#[derive(Debug, Clone, Copy)]
pub struct ClaimLimit {
    /// Rows.
    pub rows: u32,
    /// Bytes of payload and headers. One event that is larger travels alone.
    pub bytes: u64,
    /// Only rows of this share.
    pub share: Share,
}

impl ClaimLimit {
    /// So many rows and bytes of the whole outbox.
    pub fn new(rows: u32, bytes: u64) -> Self {
        Self { rows, bytes, share: Share::WHOLE }
    }
}

/// The answer to a claim.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The events, ids ascending.
    pub events: Vec<Event>,
    /// There may be more that is due right now.
    pub full: bool,
}

/// What a caller of `claim` remembers between calls, per outbox.
///
/// A claim takes fresh rows (never tried, `next_retry_at` is NULL) by primary key from `low`, and
/// waiting rows by the index on `next_retry_at`. Everything at or below `low` is settled, held, or
/// waiting, so that neither a million waiting rows nor the dead tuples of delivered ones are read
/// again. `low` never passes the [`Horizon`]: a transaction that took a smaller id may still commit.
#[derive(Debug)]
pub struct Cursor {
    /// Fresh rows are above this id.
    pub low: i64,
    /// The id below which nothing can still commit.
    pub horizon: Horizon,
    /// When the horizon was last looked at.
    pub observed_at: Option<Instant>,
    /// When `low` was last reset. A row that was skipped because another relay held its lock, and
    /// whose holder then rolled back, is found by this sweep.
    pub swept_at: Instant,
    /// The last claim found no fresh rows, so waiting ones may fill the whole batch.
    pub fresh_was_empty: bool,
    /// What a row of the last read weighed on average.
    row_bytes: Option<u64>,
}

impl Cursor {
    /// Starts with a full sweep.
    pub fn new() -> Self {
        Self {
            low: 0,
            horizon: Horizon::default(),
            observed_at: None,
            swept_at: Instant::now(),
            fresh_was_empty: false,
            row_bytes: None,
        }
    }

    /// Rows to ask for, so that they will hardly weigh more than the limit allows.
    pub fn rows_within(&self, limit: ClaimLimit) -> u32 {
        let fitting = match self.row_bytes {
            None => FIRST_ROWS_MAX,
            Some(bytes) => limit.bytes / 5 * 4 / bytes.max(1),
        };
        u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, limit.rows.max(1))
    }

    /// Remembers what rows weigh.
    pub fn weigh(&mut self, rows: &[LaneRow]) {
        let bytes: u64 = rows.iter().map(|row| row.event.weight_bytes() as u64).sum();
        if let Some(average) = bytes.checked_div(rows.len() as u64) {
            self.row_bytes = Some(average);
        }
    }

    /// Starts from the beginning of the table where that is due.
    pub fn sweep_if_due(&mut self, every: std::time::Duration) {
        if self.swept_at.elapsed() >= every {
            self.low = 0;
            self.swept_at = Instant::now();
        }
    }

    /// Rows that the waiting half of a claim may take.
    pub fn waiting_limit(&self, rows: u32) -> u32 {
        if self.fresh_was_empty { rows } else { rows.div_ceil(2) }
    }

    /// Moves on after a claim. `closed_until` was known *before* the claim read the table;
    /// `scanned_to` is the last fresh id taken, or `None` when the scan reached the end.
    pub fn advance(&mut self, closed_until: i64, scanned_to: Option<i64>) {
        let reached = scanned_to.map_or(closed_until, |id| id.min(closed_until));
        self.low = self.low.max(reached);
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_rows_are_asked_for_than_will_fit() {
        let limit = ClaimLimit::new(5_000, 8_000_000);
        let weighing = |row_bytes| Cursor { row_bytes, ..Cursor::new() }.rows_within(limit);
        assert_eq!(weighing(None), 1_000, "nothing is known yet");
        assert_eq!(weighing(Some(500)), 5_000, "the limit of rows");
        assert_eq!(weighing(Some(64_000)), 100, "with a fifth to spare");
        assert_eq!(weighing(Some(1 << 40)), 1, "one at least");
    }

    #[test]
    fn low_never_passes_an_id_that_may_still_commit() {
        let mut cursor = Cursor::new();
        cursor.advance(5, Some(9));
        assert_eq!(cursor.low, 5, "ids 6 to 8 may be open transactions");
        cursor.advance(20, Some(12));
        assert_eq!(cursor.low, 12, "13 and above were not read");
        cursor.advance(20, None);
        assert_eq!(cursor.low, 20, "read to the end, and nothing below 20 is open");
        cursor.advance(3, None);
        assert_eq!(cursor.low, 20, "never backwards");
    }
}
