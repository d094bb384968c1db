//! The request and the result of a claim.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::horizon::Horizon;
use super::{LaneRow, Result, Share};
use crate::StoreError;
use crate::event::Event;

/// Maximum number of rows of a read while their average size is not known.
const FIRST_ROWS_MAX: u64 = 1_000;

/// The limits of one claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimLimit {
    /// Maximum number of rows.
    pub rows: u32,
    /// Maximum number of bytes of payload and headers. One larger event is claimed alone.
    pub bytes: u64,
    /// Share of the rows that the claim is limited to.
    pub share: Share,
}

impl ClaimLimit {
    /// Limits a claim by rows and bytes, on the whole outbox.
    pub fn new(rows: u32, bytes: u64) -> Self {
        Self { rows, bytes, share: Share::WHOLE }
    }
}

/// The result of a claim.
#[derive(Debug, Default)]
pub struct Claimed {
    /// The events, by ascending id.
    pub events: Vec<Event>,
    /// There may be more events that are due now.
    pub full: bool,
}

/// The state that a caller of `claim` keeps between calls, per outbox.
///
/// A claim takes fresh rows (never tried, `next_retry_at` is NULL) by primary key from `low`, and
/// waiting rows by the index on `next_retry_at`. Everything at or below `low` is settled, held, or
/// waiting, so neither a million waiting rows nor the dead tuples of delivered ones are read again.
/// `low` never passes the [`Horizon`]: a transaction that took a smaller id may still commit.
#[derive(Debug)]
pub struct Cursor {
    /// Fresh rows are above this id.
    pub low: i64,
    /// The id up to which no transaction can still commit.
    pub horizon: Horizon,
    /// When the horizon was last read.
    pub observed_at: Option<Instant>,
    /// When `low` was last reset. The sweep that follows finds rows that were skipped because
    /// another relay had locked them and then rolled back.
    pub swept_at: Instant,
    /// The last claim found no fresh rows, so waiting ones may fill the whole batch.
    pub fresh_was_empty: bool,
    /// Average size of a row of the last read, in bytes.
    row_bytes: Option<u64>,
    /// The last assigned id that was observed.
    last_id: i64,
    /// The largest id that the caller may remember.
    seen_id: i64,
    /// When the server started, and its timeline, if the store can tell.
    server: Option<(DateTime<Utc>, Option<String>)>,
    /// Identity of the counter that assigns ids, if the store can tell.
    counter: Option<i64>,
}

impl Cursor {
    /// Creates a cursor that starts with a full sweep.
    pub fn new() -> Self {
        Self {
            low: 0,
            horizon: Horizon::default(),
            observed_at: None,
            swept_at: Instant::now(),
            fresh_was_empty: false,
            row_bytes: None,
            last_id: 0,
            seen_id: 0,
            server: None,
            counter: None,
        }
    }

    /// Notes the last assigned id. A store calls this with each one, before the horizon.
    ///
    /// The id never goes back while the table is the same. If it does go back, but not below what
    /// the caller has seen, only ids that the caller does not know are assigned again: a crash
    /// loses the end of a sequence, and MariaDB forgets at a restart the ids that a statement
    /// reserved and did not use. Then the cursor goes back to the last id that was seen, because
    /// new rows may have been inserted above it.
    ///
    /// # Errors
    /// [`StoreError::HistoryChanged`] if ids that the caller may remember are assigned again. The
    /// cursor is reset.
    pub fn notice_last_id(&mut self, last_id: i64) -> Result<()> {
        let before = std::mem::replace(&mut self.last_id, last_id);
        if last_id < self.seen_id.min(before) {
            let seen = self.seen_id;
            self.start_over();
            return Err(StoreError::HistoryChanged(format!(
                "its last id is {last_id} and was {before}, and rows up to {seen} were read; it \
                 was truncated or restored, or a fail-over lost the last commits"
            )));
        }
        if last_id < before {
            self.low = self.low.min(self.seen_id);
            self.horizon.go_back_to(self.seen_id);
        }
        Ok(())
    }

    /// Notes the identity of the counter that assigns ids. Another counter starts anew, and its
    /// last id may have passed the old one by the next observation: then only the counter reveals
    /// the change.
    ///
    /// # Errors
    /// [`StoreError::HistoryChanged`] if ids that the caller may remember can be assigned again.
    /// The cursor is reset.
    pub fn notice_counter(&mut self, counter: i64) -> Result<()> {
        if self.counter.replace(counter).is_none_or(|before| before == counter) {
            return Ok(());
        }
        let seen = self.seen_id;
        self.start_over();
        self.counter = Some(counter);
        match seen {
            0 => Ok(()),
            _ => Err(StoreError::HistoryChanged(format!(
                "its ids began anew, and rows up to {seen} were read; it was truncated or restored"
            ))),
        }
    }

    /// Returns whether the server is the one of the last call, by the time at which it started.
    pub fn knows_server(&self, started_at: DateTime<Utc>) -> bool {
        self.server.as_ref().is_some_and(|(known, _)| *known == started_at)
    }

    /// Notes the server, if [`Cursor::knows_server`] returned that it was not known. A server that
    /// only restarted keeps its timeline; `None` if the timeline cannot be read.
    ///
    /// # Errors
    /// [`StoreError::HistoryChanged`] if the server is on another timeline. The cursor is reset.
    pub fn notice_server(
        &mut self,
        started_at: DateTime<Utc>,
        timeline: Option<String>,
    ) -> Result<()> {
        let before = self.server.replace((started_at, timeline.clone()));
        match (before.and_then(|(_, timeline)| timeline), timeline) {
            (Some(before), Some(now)) if before != now => {
                self.start_over();
                Err(StoreError::HistoryChanged(format!(
                    "the server is on timeline {now} and was on {before}; after a fail-over or a \
                     restore the last commits may be missing"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Notes the largest id among the rows that a read or a claim returned. With `hidden` keys
    /// there may have been other rows, which the caller knows of.
    pub fn saw(&mut self, largest_id: Option<i64>, hidden: bool) {
        let hidden_to = if hidden { self.last_id } else { 0 };
        self.seen_id = self.seen_id.max(largest_id.unwrap_or(0)).max(hidden_to);
    }

    fn start_over(&mut self) {
        *self = Self { row_bytes: self.row_bytes, ..Self::new() };
    }

    /// Returns how many rows to read so that they hardly exceed the limit of bytes.
    pub fn rows_within(&self, limit: ClaimLimit) -> u32 {
        let fitting = match self.row_bytes {
            None => FIRST_ROWS_MAX,
            Some(bytes) => limit.bytes / 5 * 4 / bytes.max(1),
        };
        u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, limit.rows.max(1))
    }

    /// Notes the average size of rows.
    pub fn weigh(&mut self, rows: &[LaneRow]) {
        let bytes: u64 = rows.iter().map(|row| row.event.weight_bytes() as u64).sum();
        if let Some(average) = bytes.checked_div(rows.len() as u64) {
            self.row_bytes = Some(average);
        }
    }

    /// Resets the cursor to the beginning of the table if a sweep is due.
    pub fn sweep_if_due(&mut self, every: std::time::Duration) {
        if self.swept_at.elapsed() >= every {
            self.low = 0;
            self.swept_at = Instant::now();
        }
    }

    /// Returns how many rows the waiting half of a claim may take.
    pub fn waiting_limit(&self, rows: u32) -> u32 {
        if self.fresh_was_empty { rows } else { rows.div_ceil(2) }
    }

    /// Moves forward after a claim. `closed_until` was known *before* the claim read the table;
    /// `scanned_to` is the last fresh id taken, or `None` if the scan reached the end.
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

    /// Creates a cursor that has read up to `seen`, of a table whose last id was `last`.
    fn at(last: i64, seen: i64) -> Cursor {
        let mut cursor = Cursor::new();
        cursor.notice_last_id(last).unwrap();
        cursor.horizon.observe(last, std::collections::BTreeSet::new());
        cursor.saw(Some(seen), false);
        cursor.advance(last, None);
        assert_eq!(cursor.low, last);
        cursor
    }

    #[test]
    fn ids_that_come_again_change_the_history_and_the_cursor_starts_from_nothing() {
        for last in [0, 5, 79] {
            let mut cursor = at(100, 80);
            let error = cursor.notice_last_id(last).unwrap_err();
            assert!(matches!(&error, StoreError::HistoryChanged(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("last id is {last} and was 100")), "{text}");
            assert_eq!((cursor.low, cursor.horizon.closed_until()), (0, 0));
            assert!(cursor.observed_at.is_none(), "the next call looks at once");
            cursor.notice_last_id(last).unwrap();
        }
    }

    #[test]
    fn ids_that_nobody_saw_may_come_again_and_are_not_passed_over() {
        let mut cursor = at(100, 80);
        cursor.notice_last_id(90).unwrap();
        assert_eq!((cursor.low, cursor.horizon.closed_until()), (80, 80), "81 to 90 may be new");
        cursor.notice_last_id(101).unwrap();
        assert_eq!(cursor.low, 80, "what was given out again is still to be read");
    }

    #[test]
    fn rows_that_a_read_left_out_count_as_seen() {
        let mut cursor = at(100, 80);
        cursor.saw(None, true);
        assert!(cursor.notice_last_id(99).is_err());
    }

    #[test]
    fn an_id_that_the_application_chose_itself_is_no_sign_of_a_change() {
        let mut cursor = at(100, 80);
        cursor.saw(Some(1_000_000), false);
        cursor.notice_last_id(100).unwrap();
        cursor.notice_last_id(101).unwrap();
        assert!(cursor.notice_last_id(100).is_err(), "but now it went back");
    }

    #[test]
    fn a_server_on_another_timeline_changes_the_history() {
        let time = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        let (one, two) = (Some("00000001".to_owned()), Some("00000002".to_owned()));
        let mut cursor = at(100, 80);
        assert!(!cursor.knows_server(time(1)));
        cursor.notice_server(time(1), one.clone()).unwrap();
        assert!(cursor.knows_server(time(1)) && !cursor.knows_server(time(2)));
        cursor.notice_server(time(2), one).unwrap();
        assert_eq!(cursor.low, 100, "a restart alone changes nothing");
        let error = cursor.notice_server(time(3), two.clone()).unwrap_err().to_string();
        assert!(error.contains("timeline 00000002 and was on 00000001"), "{error}");
        assert_eq!(cursor.low, 0);
        cursor.notice_server(time(3), two).unwrap();
        cursor.notice_server(time(4), None).unwrap();
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
