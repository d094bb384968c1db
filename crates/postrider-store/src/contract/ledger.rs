//! The ledger. The database counts appended events at insert; the settle counts its own outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

/// Age up to which the ledger is shown by the minute. All older minutes form one window, at the
/// start of 1970, whose sums must balance like any other's.
pub const LEDGER_BY_MINUTE: Duration = Duration::from_secs(35 * 24 * 3600);

/// Age from which maintenance sums up minutes. It is an hour more than the age up to which readers
/// show minutes: a reader that took the time just before must not find half of a window summed up.
pub(crate) const LEDGER_SUMMED_AFTER: Duration =
    Duration::from_secs(LEDGER_BY_MINUTE.as_secs() + 3600);

/// Count and sum of ids of one set of events. The sum reveals two errors that cancel out in the
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LedgerLine {
    /// Number of events.
    pub count: i64,
    /// Sum of their ids.
    pub id_sum: i128,
}

impl std::ops::Add for LedgerLine {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, id_sum: self.id_sum + other.id_sum }
    }
}

/// The ledger of one window of `created_at`, read in one snapshot with the live rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerWindow {
    /// Start of the window: a minute, or 1970 for everything older than [`LEDGER_BY_MINUTE`].
    pub window: DateTime<Utc>,
    /// Counted by the database at insert.
    pub appended: LedgerLine,
    /// Counted by the settle that removed the rows.
    pub delivered: LedgerLine,
    /// Counted by the settle that moved them to the dead letters, plus rows marked `DEAD_LETTER`.
    pub dead: LedgerLine,
    /// Live rows, counted in the table.
    pub pending: LedgerLine,
}

impl LedgerWindow {
    /// Returns whether `appended = delivered + dead + pending`, in counts and in sums of ids.
    pub fn balanced(&self) -> bool {
        self.appended == self.delivered + self.dead + self.pending
    }
}

/// The state of one outbox, from the ledger; the table itself is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Statistics {
    /// Events appended since the outbox was created.
    pub appended: i64,
    /// Events delivered.
    pub delivered: i64,
    /// Events moved to the dead letters.
    pub dead: i64,
    /// `appended - delivered - dead`: PENDING, PROCESSING and FAILED.
    pub pending: i64,
    /// Unresolved dead letters.
    pub unresolved: i64,
    /// Age of the oldest live event in seconds, on the database's clock.
    pub oldest_age_s: Option<i64>,
    /// The totals by event type.
    pub by_type: Vec<TypeStatistics>,
}

/// The totals of one event type in [`Statistics`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TypeStatistics {
    /// The event type.
    pub event_type: String,
    /// Events appended.
    pub appended: i64,
    /// Events delivered.
    pub delivered: i64,
    /// Events moved to the dead letters.
    pub dead: i64,
}

impl Statistics {
    /// Adds up the totals of the event types.
    pub(crate) fn from_types(by_type: Vec<TypeStatistics>, unresolved: i64) -> Self {
        let total = |of: fn(&TypeStatistics) -> i64| by_type.iter().map(of).sum::<i64>();
        let (appended, delivered, dead) =
            (total(|t| t.appended), total(|t| t.delivered), total(|t| t.dead));
        Self {
            appended,
            delivered,
            dead,
            pending: appended - delivered - dead,
            unresolved,
            oldest_age_s: None,
            by_type,
        }
    }
}

/// Groups the lines of each window by kind into [`LedgerWindow`].
pub(crate) fn windows_from_lines(
    lines: BTreeMap<DateTime<Utc>, Vec<(String, LedgerLine)>>,
) -> Vec<LedgerWindow> {
    lines
        .into_iter()
        .map(|(window, lines)| {
            let of = |kind: &str| {
                lines
                    .iter()
                    .filter(|(line_kind, _)| line_kind == kind)
                    .fold(LedgerLine::default(), |sum, (_, line)| sum + *line)
            };
            LedgerWindow {
                window,
                appended: of("appended"),
                delivered: of("delivered"),
                dead: of("dead"),
                pending: of("pending"),
            }
        })
        .collect()
}
