//! Lists and counts with a time budget, so that they return in time however large the table is.
//!
//! A list is searched newest first in steps of ids. When the budget is used up, it returns the rows
//! found so far with `complete: false` and the id at which to continue.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

/// Default time budget of a search.
pub const SEARCH_BUDGET: Duration = Duration::from_millis(30);
/// Default number of rows up to which counts are exact; beyond it they are "at least".
pub const COUNT_MAX: i64 = 10_000;

/// One page of a list: newest first, below an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows below this id; `None` starts at the newest. Use [`Listed::next`] of the previous page.
    pub before_id: Option<i64>,
    /// Maximum number of rows.
    pub limit: u32,
    /// Time budget of the search. At least one step is made.
    pub budget: Duration,
}

impl Page {
    /// Returns the first page, with the default budget.
    pub const fn first(limit: u32) -> Self {
        Self { before_id: None, limit, budget: SEARCH_BUDGET }
    }

    /// Returns the page below an id.
    #[must_use]
    pub const fn below(self, before_id: Option<i64>) -> Self {
        Self { before_id, ..self }
    }

    /// Sets the budget; [`Duration::MAX`] searches to the end.
    #[must_use]
    pub const fn within(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// `false` if the budget ran out before the page was full or the end of the list was reached.
    pub complete: bool,
    /// Start of the next page ([`Page::before_id`]); `None` at the end of the list.
    pub next: Option<i64>,
    /// Time of the search, on the database's clock.
    pub as_of: DateTime<Utc>,
}

/// The limits of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimit {
    /// Beyond this, the result is "at least".
    pub count_max: i64,
    /// Time budget of the count.
    pub budget: Duration,
}

impl CountLimit {
    /// Counts to the end, however long it takes.
    pub const NONE: Self = Self { count_max: i64::MAX, budget: Duration::MAX };
}

impl Default for CountLimit {
    fn default() -> Self {
        Self { count_max: COUNT_MAX, budget: SEARCH_BUDGET }
    }
}

/// A count, or a lower bound of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counted {
    /// Rows counted.
    pub count: i64,
    /// There may be more: "10,000+".
    pub at_least: bool,
}

impl Counted {
    /// Builds the result of a count that went up to one beyond the limit.
    pub(crate) fn up_to(found: i64, count_max: i64) -> Self {
        Self { count: found.min(count_max), at_least: found > count_max }
    }

    /// Returns whether the count reaches a number; `None` if it was cut short below it.
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
