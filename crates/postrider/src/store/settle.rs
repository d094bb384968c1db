//! What a relay writes after a delivery.
//!
//! A row is settled only if it has the id, the identity and the version that the relay read. Id and
//! version alone do not name an event: in claim mode `lanes` no read changes the version, and ids
//! come again after a fail-over that lost the last commits, a restore, or a `TRUNCATE` that restarts
//! the sequence.

use std::num::NonZeroU64;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{DeadReason, Result};
use crate::event::Event;
use crate::{Outbox, StoreError};

/// A delivered event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another identity is another event, and is left
    /// as it is.
    pub event_id: String,
    /// The version that the claim answered.
    pub version: i64,
    /// See [`Event::place`].
    pub place: Option<NonZeroU64>,
    /// What happened: for the books.
    pub event_type: String,
    /// When it was appended: for the books, and for how long it took.
    pub created_at: DateTime<Utc>,
    /// Fan-out: the branches that take it, a bit each.
    pub branches: u64,
    /// What the destination answered, where that is kept with the event: at most
    /// [`RESPONSE_BYTES_MAX`](crate::limits::RESPONSE_BYTES_MAX) and no NUL.
    pub response: Option<String>,
}

impl Delivery {
    /// Whether the branch of that number takes a copy.
    pub(crate) fn goes_to(&self, branch: usize) -> bool {
        branch < BRANCHES_MAX && self.branches >> branch & 1 == 1
    }
}

impl From<Event> for Delivery {
    fn from(event: Event) -> Self {
        let Event { id, event_id, version, place, event_type, created_at, .. } = event;
        let (branches, response) = (0, None);
        Self { id, event_id, version, place, event_type, created_at, branches, response }
    }
}

impl From<&Event> for Delivery {
    fn from(event: &Event) -> Self {
        Self {
            id: event.id,
            event_id: event.event_id.clone(),
            version: event.version,
            place: event.place,
            event_type: event.event_type.clone(),
            created_at: event.created_at,
            branches: 0,
            response: None,
        }
    }
}

/// Refuses a fan-out that made fewer copies than it has events: a copy that the child passed over
/// would be lost. A request id that two events of one batch share is told apart when the settle is
/// repeated with fewer rows.
pub(crate) fn check_copies(child: &Outbox, events: usize, copied: u64) -> Result<()> {
    if u64::try_from(events) == Ok(copied) {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "outbox {} took {copied} of {events} copies, so none is kept; if this repeats, a trigger \
         of that outbox is altered: run `postrider migrate`",
        child.name()
    )))
}

/// Branches of a fan-out at most.
pub const BRANCHES_MAX: usize = 64;

/// An event whose attempt failed and that has attempts left.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another identity is another event, and is left
    /// as it is.
    pub event_id: String,
    /// The version that the claim answered.
    pub version: i64,
    /// Time until the next attempt, added to the database's clock.
    pub delay: Duration,
    /// What went wrong; cut to the column.
    pub error: String,
    /// How long the attempt took.
    pub took: Duration,
}

/// An event to give back without spending an attempt.
#[derive(Debug, Clone)]
pub struct Deferral {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another identity is another event, and is left
    /// as it is.
    pub event_id: String,
    /// The version that the claim answered.
    pub version: i64,
    /// Time until it is due again; zero is at once.
    pub delay: Duration,
    /// Why, where the destination answered (it is down); `None` where the event was not tried.
    /// An answer shows that the event does not kill the process, so it clears `crash_count`.
    pub error: Option<String>,
}

/// An event that is given up.
#[derive(Debug, Clone)]
pub struct Death {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another identity is another event, and is left
    /// as it is.
    pub event_id: String,
    /// The version that the claim answered.
    pub version: i64,
    /// Why it is given up.
    pub reason: DeadReason,
    /// The error in a sentence; cut to the column.
    pub message: String,
    /// More about the error, such as the body of an answer.
    pub detail: Option<String>,
    /// Whether the last attempt is to be counted.
    pub attempted: bool,
}

/// What becomes of a delivered row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSuccess {
    /// It is deleted.
    Delete,
    /// It moves to the archive as `COMPLETED`, for the retention time.
    Archive,
}

/// The answer to a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Rows that were changed. Fewer than asked for: the rest was settled before (a repeated call),
    /// is not this relay's any more, or is another event under an id that was used again.
    pub rows: u64,
}
