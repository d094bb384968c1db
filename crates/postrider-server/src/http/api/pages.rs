//! Types that lists and counts share.

use postrider_store::{CountLimit, Counted, Listed, Page};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::ServerState;
use crate::http::problem::Problem;

/// Default and maximum number of rows per page.
const LIMIT: u32 = 50;
pub(super) const LIMIT_MAX: u32 = 500;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rows<T> {
    /// Newest first.
    rows: Vec<T>,
    /// `false`: there was no time to search further; go on with `next`.
    complete: bool,
    /// `before` of the next page; absent at the end of the list.
    next: Option<i64>,
    /// The database's clock.
    as_of: chrono::DateTime<chrono::Utc>,
}

impl<T> Rows<T> {
    pub(super) fn of<R>(listed: Listed<R>, row: impl Fn(R) -> T) -> Self {
        Self {
            rows: listed.rows.into_iter().map(row).collect(),
            complete: listed.complete,
            next: listed.next,
            as_of: listed.as_of,
        }
    }
}

/// A count, or the least that it can be.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(super) struct Count {
    count: i64,
    /// There may be more: counting was cut off here.
    at_least: bool,
}

impl From<Counted> for Count {
    fn from(counted: Counted) -> Self {
        Self { count: counted.count, at_least: counted.at_least }
    }
}

/// Why an operator does something; it is audited.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Note {
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub(super) note: String,
}

impl Note {
    pub(super) fn checked(self) -> Result<String, Problem> {
        note(self.note)
    }
}

/// Checks that a note fits its column.
pub(super) fn note(note: String) -> Result<String, Problem> {
    match note.contains('\0') || note.chars().count() > 1_000 {
        true => Err(Problem::new(422, "`note` is longer than 1000 characters, or contains NUL")),
        false => Ok(note),
    }
}

pub(super) fn page(
    state: &ServerState,
    before: Option<i64>,
    limit: Option<u32>,
) -> Result<Page, Problem> {
    let limit = limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("`limit` is {limit}; allowed is 1 to {LIMIT_MAX}");
        return Err(Problem::new(400, detail));
    }
    Ok(Page::first(limit).below(before).within(state.list_budget))
}

pub(super) fn count_limit(state: &ServerState) -> CountLimit {
    CountLimit { budget: state.list_budget, ..CountLimit::default() }
}
