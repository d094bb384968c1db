//! What a relay observes of an outbox while it works on it: attempts, deliveries, the database's
//! clock.

mod clock;
mod meter;
mod tally;

use std::sync::atomic::AtomicUsize;

use postrider_store::Traffic;
use tokio::time::Instant;

pub(crate) use clock::DatabaseClock;
pub(crate) use meter::Meter;
pub use tally::Attempts;
pub(crate) use tally::Tally;

/// A relay's observations of an outbox while it works on it.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    pub(crate) tally: Tally,
    pub(crate) meter: Meter,
    pub(crate) clock: DatabaseClock,
    /// Destinations that are down.
    pub(crate) open: AtomicUsize,
}

impl Observations {
    /// Returns what the heartbeat shows to other relays and operators.
    pub(crate) fn traffic(&self) -> Traffic {
        let now = Instant::now();
        Traffic {
            in_flight: self.meter.in_flight(),
            failed_in_minute: self.tally.attempts(now).failed_in_minute,
            ages: self.meter.ages(now),
        }
    }
}
