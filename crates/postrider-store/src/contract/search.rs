//! Searches a table of any size within a time budget: newest first, in steps whose number of rows
//! depends on how fast the previous step was.

use std::ops::Range;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{CountLimit, Counted, DeadLetter, Identified, Listed, Page, Result};
use crate::EventRecord;

/// Number of rows of the first step, and of the smallest and the largest one.
const ROWS: i64 = 1_000;
const ROWS_MIN: i64 = 500;
const ROWS_MAX: i64 = 100_000;
/// No further step starts when less than this fraction of the budget is left.
const LAST_PART: u32 = 8;

/// The range of the next step below an id.
pub(crate) struct Below {
    /// Id of the last row of the step, if there is any row.
    pub(crate) from_id: Option<i64>,
    /// The time on the database's clock.
    pub(crate) now: DateTime<Utc>,
}

/// A table with a filter.
#[async_trait]
pub(crate) trait Search: Sync {
    /// Type of the rows that the search finds.
    type Row: Send;

    /// Finds the next `rows` rows below an id, whether they match or not.
    async fn below(&self, before_id: i64, rows: i64) -> Result<Below>;

    /// Returns matching rows with these ids, newest first.
    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<Self::Row>>;

    /// Returns the id of a row.
    fn id(row: &Self::Row) -> i64;
}

/// A search that can also count.
#[async_trait]
pub(crate) trait Counting: Search {
    /// Counts the matching rows with these ids.
    async fn count(&self, ids: Range<i64>) -> Result<i64>;
}

/// The progress of a search through its table.
pub(crate) struct Walk {
    before_id: i64,
    started: Instant,
    step_started: Instant,
    budget: Duration,
    rows: i64,
    pub(crate) now: DateTime<Utc>,
}

impl Walk {
    pub(crate) fn new(before_id: Option<i64>, budget: Duration) -> Self {
        let started = Instant::now();
        let before_id = before_id.unwrap_or(i64::MAX);
        Self { before_id, started, step_started: started, budget, rows: ROWS, now: Utc::now() }
    }

    /// Returns the ids of the next step; `None` at the end of the table.
    pub(crate) async fn next<S: Search + ?Sized>(
        &mut self,
        search: &S,
    ) -> Result<Option<Range<i64>>> {
        self.step_started = Instant::now();
        let Below { from_id, now } = search.below(self.before_id, self.rows).await?;
        self.now = now;
        Ok(from_id.map(|from_id| {
            let ids = from_id..self.before_id;
            self.before_id = from_id;
            ids
        }))
    }

    /// Returns whether the budget is used up after a step. If not, sizes the next step to take half
    /// of the remaining budget.
    pub(crate) fn is_over(&mut self) -> bool {
        let left = self.budget.saturating_sub(self.started.elapsed());
        let took = self.step_started.elapsed().max(Duration::from_micros(1));
        let fits = (self.rows as f64 * left.as_secs_f64() / 2.0 / took.as_secs_f64()) as i64;
        self.rows = fits.clamp(ROWS_MIN, ROWS_MAX);
        left < self.budget / LAST_PART || left.is_zero()
    }

    /// Returns the id below which rows have not been searched yet.
    pub(crate) fn before_id(&self) -> i64 {
        self.before_id
    }
}

/// Lists one page.
pub(crate) async fn list<S: Search>(search: &S, page: Page) -> Result<Listed<S::Row>> {
    let mut walk = Walk::new(page.before_id, page.budget);
    let mut rows: Vec<S::Row> = Vec::new();
    let limit = i64::from(page.limit);
    while let Some(ids) = walk.next(search).await? {
        let wanted = limit - i64::try_from(rows.len()).unwrap_or(limit);
        rows.extend(search.rows(ids, wanted).await?);
        if rows.len() >= page.limit as usize {
            let next = rows.last().map(S::id);
            return Ok(Listed { rows, complete: true, next, as_of: walk.now });
        }
        if walk.is_over() {
            let next = Some(walk.before_id());
            return Ok(Listed { rows, complete: false, next, as_of: walk.now });
        }
    }
    Ok(Listed { rows, complete: true, next: None, as_of: walk.now })
}

/// Counts the matching rows.
pub(crate) async fn count<S: Counting>(search: &S, limit: CountLimit) -> Result<Counted> {
    let mut walk = Walk::new(None, limit.budget);
    let mut count = 0;
    while let Some(ids) = walk.next(search).await? {
        count += search.count(ids).await?;
        if count > limit.count_max {
            return Ok(Counted { count: limit.count_max, at_least: true });
        }
        if walk.is_over() {
            return Ok(Counted { count, at_least: true });
        }
    }
    Ok(Counted { count, at_least: false })
}

/// Maximum number of rows with one event id that are returned, of each kind.
pub(crate) const IDENTICAL_MAX: u32 = 100;

/// Finds the rows with one event id within the budget: half of it is for the live events.
pub(crate) async fn identified<S: Search<Row = EventRecord>>(
    live: &S,
    archived: &S,
    dead_letters: Vec<DeadLetter>,
    budget: Duration,
) -> Result<Identified> {
    let (started, page) = (Instant::now(), Page::first(IDENTICAL_MAX));
    let live = list(live, page.within(budget / 2)).await?;
    let rest = budget.saturating_sub(started.elapsed());
    let archived = list(archived, page.within(rest)).await?;
    let complete = live.complete && archived.complete;
    let events = live.rows.into_iter().chain(archived.rows).collect();
    Ok(Identified { events, dead_letters, complete })
}
