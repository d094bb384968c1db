//! The state of all destinations of this process, including those that are up, for operators.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use chrono::{DateTime, Utc};

use crate::destination::health::Health;

/// Whether events are sent to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// Down: events wait.
    Open,
    /// Down, with a probe in flight to find out whether it is back.
    Probing,
    /// Up.
    Closed,
}

/// A destination that events have been sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDestination {
    /// Where the events go.
    pub destination: String,
    /// Whether events are sent to it.
    pub state: BreakerState,
    /// Maximum number of events in flight; `None` means no limit.
    pub window: Option<u32>,
    /// When the last delivered event was sent, on the database's clock.
    pub last_success_at: Option<DateTime<Utc>>,
}

/// The destinations of all outboxes that this process serves.
#[derive(Debug, Default)]
pub struct DestinationRegistry(Mutex<BTreeMap<String, Weak<Health>>>);

impl DestinationRegistry {
    /// Returns at most `count_max` destinations of an outbox: those that are down first, then those
    /// with a limit. Returns none for an outbox that is paused or served by another process.
    pub fn of(&self, outbox: &str, count_max: usize) -> Vec<KnownDestination> {
        let health = self.lock().get(outbox).and_then(Weak::upgrade);
        let mut known = health.map(|health| health.destinations()).unwrap_or_default();
        known.sort_by(|a, b| {
            let key = |of: &KnownDestination| (of.state, of.window.is_none());
            key(a).cmp(&key(b)).then_with(|| a.destination.cmp(&b.destination))
        });
        known.truncate(count_max);
        known
    }

    /// Registers the destinations of a pipeline that starts. They disappear when the pipeline ends.
    pub(crate) fn enter(&self, outbox: &str, health: &Arc<Health>) {
        self.lock().insert(outbox.to_owned(), Arc::downgrade(health));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Health>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
