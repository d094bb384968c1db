//! How the destinations of this process are doing, for whoever asks: those that are up as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use chrono::{DateTime, Utc};

use crate::health::Health;

/// Whether events are sent to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// Down: events wait.
    Open,
    /// Down, and an event is under way to see whether it is back.
    Probing,
    /// Up.
    Closed,
}

/// A destination that events were sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDestination {
    /// Where the events go.
    pub destination: String,
    /// Whether they are sent.
    pub state: BreakerState,
    /// Events at the same time; `None` is no limit.
    pub window: Option<u32>,
    /// When the last event was sent that it took, on the database's clock.
    pub last_success_at: Option<DateTime<Utc>>,
}

/// The destinations of all outboxes that this process serves.
#[derive(Debug, Default)]
pub struct DestinationBook(Mutex<BTreeMap<String, Weak<Health>>>);

impl DestinationBook {
    /// The destinations of an outbox, those that are down first, then those with a limit; no more
    /// than `count_max`. Nothing is known of an outbox that is paused or served elsewhere.
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

    /// A pipeline of the outbox begins. What it knows goes with it.
    pub(crate) fn enter(&self, outbox: &str, health: &Arc<Health>) {
        self.lock().insert(outbox.to_owned(), Arc::downgrade(health));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Health>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
