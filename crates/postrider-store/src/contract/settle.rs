//! The writes of a relay after a delivery.
//!
//! A row is settled only if it still has the id, the event id and the version that the relay read.
//! Id and version alone do not identify an event: in claim mode `lanes` reads do not change the
//! version, and ids are reused after a fail-over that lost the last commits, a restore, or a
//! `TRUNCATE` that restarts the sequence.

use std::num::NonZeroU64;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider::Outbox;

use super::{DeadReason, Result};
use crate::StoreError;
use crate::event::Event;

/// A delivered event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another event id is another event, and is not
    /// changed.
    pub event_id: String,
    /// The version that the claim returned.
    pub version: i64,
    /// See [`Event::place`].
    pub place: Option<NonZeroU64>,
    /// Type of the event, for the ledger.
    pub event_type: String,
    /// When it was appended, for the ledger and for the delivery time.
    pub created_at: DateTime<Utc>,
    /// Fan-out: the branches that take it, one bit each.
    pub branches: u64,
    /// The destination's answer, if it is kept with the event: at most
    /// [`RESPONSE_BYTES_MAX`](postrider::limits::RESPONSE_BYTES_MAX), without NUL.
    pub response: Option<String>,
}

impl Delivery {
    /// Returns whether the branch with this number takes a copy.
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

/// Fails if a fan-out made fewer copies than it has events: a copy that the child skipped would be
/// lost. If two events of one batch share a request id, repeating the settle with fewer rows
/// separates them.
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

/// Maximum number of branches of a fan-out.
pub const BRANCHES_MAX: usize = 64;

/// An event whose attempt failed and that has attempts left.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another event id is another event, and is not
    /// changed.
    pub event_id: String,
    /// The version that the claim returned.
    pub version: i64,
    /// Time until the next attempt, added to the database's clock.
    pub delay: Duration,
    /// The error; cut to the column.
    pub error: String,
    /// How long the attempt took.
    pub took: Duration,
}

/// An event to release without spending an attempt.
#[derive(Debug, Clone)]
pub struct Deferral {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another event id is another event, and is not
    /// changed.
    pub event_id: String,
    /// The version that the claim returned.
    pub version: i64,
    /// Time until it is due again; zero means immediately.
    pub delay: Duration,
    /// The error, if the destination answered (it is down); `None` if the event was not tried. An
    /// answer shows that the event does not crash the process, so it clears `crash_count`.
    pub error: Option<String>,
}

/// An event to move to the dead letters.
#[derive(Debug, Clone)]
pub struct Death {
    /// Row id.
    pub id: i64,
    /// [`Event::event_id`]: a row with this id and another event id is another event, and is not
    /// changed.
    pub event_id: String,
    /// The version that the claim returned.
    pub version: i64,
    /// Reason why it is given up.
    pub reason: DeadReason,
    /// The error in a sentence; cut to the column.
    pub message: String,
    /// Details of the error, such as the body of an answer.
    pub detail: Option<String>,
    /// Whether the last attempt counts.
    pub attempted: bool,
}

/// The treatment of a delivered row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSuccess {
    /// It is deleted.
    Delete,
    /// It moves to the archive as `COMPLETED`, for the retention time.
    Archive,
}

/// The result of a settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Number of changed rows. If it is smaller than the number of events, the rest was settled
    /// before (a repeated call), no longer belongs to this relay, or is another event under a
    /// reused id.
    pub rows: u64,
}
