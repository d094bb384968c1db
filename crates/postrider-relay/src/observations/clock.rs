//! The database's clock, as far as this process knows it without asking.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// How long the best estimate is used before it must be confirmed: clocks drift.
const TRUSTED_FOR: Duration = Duration::from_secs(600);

/// How far the database's clock is ahead of this machine's. Every claim returns the database's
/// time, but some time passes until it arrives, so the largest difference is the most accurate.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock(Mutex<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    ahead: TimeDelta,
    made_at: Instant,
}

impl DatabaseClock {
    /// Records that it was `there` on the database's clock, a moment before it was `here` on the
    /// local clock.
    pub(crate) fn record(&self, there: DateTime<Utc>, here: DateTime<Utc>, now: Instant) {
        let ahead = there - here;
        let mut estimate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let better = estimate.is_none_or(|known| {
            ahead >= known.ahead || now.saturating_duration_since(known.made_at) > TRUSTED_FOR
        });
        if better {
            *estimate = Some(Estimate { ahead, made_at: now });
        }
    }

    /// Returns the database's time at local time `here`.
    pub(crate) fn at(&self, here: DateTime<Utc>) -> DateTime<Utc> {
        let estimate = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        here + estimate.map_or(TimeDelta::zero(), |known| known.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_answer_is_the_truest_until_it_is_old() {
        let (clock, start) = (DatabaseClock::default(), Instant::now());
        let here = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        let second = TimeDelta::seconds;
        assert_eq!(clock.at(here), here, "nothing known");
        clock.record(here + second(7), here, start);
        assert_eq!(clock.at(here), here + second(7));
        clock.record(here + second(2), here, start + Duration::from_secs(60));
        assert_eq!(clock.at(here), here + second(7), "record of late");
        clock.record(here + second(9), here, start + Duration::from_secs(70));
        assert_eq!(clock.at(here), here + second(9));
        clock.record(here + second(2), here, start + TRUSTED_FOR * 2);
        assert_eq!(clock.at(here), here + second(2), "the clocks have drifted");
    }
}
