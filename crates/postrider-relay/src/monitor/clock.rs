//! The database's clock, as this process can know it without asking.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// How long the best estimate holds before it must be confirmed: clocks drift.
const TRUSTED_FOR: Duration = Duration::from_secs(600);

/// How far the database's clock is ahead of this machine's. Every claim says what time it was there;
/// when it is heard of, time has passed, so the largest difference is the truest.
#[derive(Debug, Default)]
pub(crate) struct DatabaseClock(Mutex<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    ahead: TimeDelta,
    made_at: Instant,
}

impl DatabaseClock {
    /// It was `there` on the database's clock, a moment before it was `here` on ours.
    pub(crate) fn heard(&self, there: DateTime<Utc>, here: DateTime<Utc>, now: Instant) {
        let ahead = there - here;
        let mut estimate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let better = estimate.is_none_or(|known| {
            ahead >= known.ahead || now.saturating_duration_since(known.made_at) > TRUSTED_FOR
        });
        if better {
            *estimate = Some(Estimate { ahead, made_at: now });
        }
    }

    /// The database's time when it is `here` on our clock.
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
        clock.heard(here + second(7), here, start);
        assert_eq!(clock.at(here), here + second(7));
        clock.heard(here + second(2), here, start + Duration::from_secs(60));
        assert_eq!(clock.at(here), here + second(7), "heard of late");
        clock.heard(here + second(9), here, start + Duration::from_secs(70));
        assert_eq!(clock.at(here), here + second(9));
        clock.heard(here + second(2), here, start + TRUSTED_FOR * 2);
        assert_eq!(clock.at(here), here + second(2), "the clocks have drifted");
    }
}
