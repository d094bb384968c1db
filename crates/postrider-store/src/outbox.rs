//! The settings of an outbox table.

use std::time::Duration;

use postrider::Outbox;

use crate::ClaimMode;
use crate::adopt::Adoption;

/// How long a `request_id` is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dedupe {
    /// For this time, and always while the event is in the outbox.
    Window(Duration),
    /// While the event is in the outbox.
    Open,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self::Window(Duration::from_secs(7 * 24 * 3600))
    }
}

/// The settings with which `migrate` creates one outbox.
#[derive(Debug, Clone)]
pub struct OutboxSpec {
    /// Name and table.
    pub outbox: Outbox,
    /// How long a `request_id` is remembered.
    pub dedupe: Dedupe,
    /// PostgreSQL: whether an insert sends a notification that wakes relays. A `NOTIFY` takes a
    /// database-wide lock at commit, so it is off by default.
    pub notify: bool,
    /// How relays share the work, for a new outbox. `set_mode` changes it later.
    pub claim: ClaimMode,
    /// A table of another program that this outbox serves.
    pub adoption: Option<Adoption>,
}

impl OutboxSpec {
    /// Returns the specification of an outbox with the default settings.
    pub fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            dedupe: Dedupe::default(),
            notify: false,
            claim: ClaimMode::default(),
            adoption: None,
        }
    }
}
