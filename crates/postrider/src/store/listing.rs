//! Lists and counts that answer in time, however large the table is.
//!
//! A list is searched newest first in steps of ids. When the budget of time is used up, it answers
//! what it has with `complete: false` and where to go on.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

/// Time that a search takes by default.
pub const SEARCH_BUDGET: Duration = Duration::from_millis(30);
/// Rows that are counted by default, before a count says "at least".
pub const COUNT_MAX: i64 = 10_000;

/// One page of a list: newest first, below an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows below this id; `None` starts at the newest. [`Listed::next`] of the page before.
    pub before_id: Option<i64>,
    /// Rows at most.
    pub limit: u32,
    /// Time for the search. One step is always made.
    pub budget: Duration,
}

impl Page {
    /// The first page, with the default budget.
    pub const fn first(limit: u32) -> Self {
        Self { before_id: None, limit, budget: SEARCH_BUDGET }
    }

    /// The page below an id.
    #[must_use]
    pub const fn below(self, before_id: Option<i64>) -> Self {
        Self { before_id, ..self }
    }

    /// With another budget; [`Duration::MAX`] searches to the end.
    #[must_use]
    pub const fn within(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    /// Newest first.
    pub rows: Vec<T>,
    /// `false` where the budget ended before the page was full or the list at its end.
    pub complete: bool,
    /// Where the next page begins ([`Page::before_id`]); `None` at the end of the list.
    pub next: Option<i64>,
    /// The database's clock during the search.
    pub as_of: DateTime<Utc>,
}

/// How far to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimit {
    /// Beyond this, the answer is "at least".
    pub count_max: i64,
    /// Time for counting.
    pub budget: Duration,
}

impl CountLimit {
    /// Counts to the end, however long that takes.
    pub const NONE: Self = Self { count_max: i64::MAX, budget: Duration::MAX };
}

impl Default for CountLimit {
    fn default() -> Self {
        Self { count_max: COUNT_MAX, budget: SEARCH_BUDGET }
    }
}

/// A count, or the least that it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counted {
    /// Rows counted.
    pub count: i64,
    /// There may be more: "10,000+".
    pub at_least: bool,
}

impl Counted {
    /// What a count says that went one further than asked.
    pub(crate) fn up_to(found: i64, count_max: i64) -> Self {
        Self { count: found.min(count_max), at_least: found > count_max }
    }

    /// Whether the count reaches a number; `None` where it was cut short below it.
    pub fn reaches(self, number: i64) -> Option<bool> {
        match self.count >= number {
            true => Some(true),
            false => (!self.at_least).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_was_cut_short_does_not_say_that_a_number_is_not_reached() {
        assert_eq!(Counted::up_to(9, 100).reaches(10), Some(false));
        assert_eq!(Counted::up_to(10, 100).reaches(10), Some(true));
        assert_eq!(Counted { count: 9, at_least: true }.reaches(10), None);
        assert_eq!(Counted { count: 10, at_least: true }.reaches(10), Some(true));
        assert_eq!(Counted::up_to(101, 100), Counted { count: 100, at_least: true });
    }
}
