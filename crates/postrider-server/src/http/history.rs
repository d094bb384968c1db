//! The history of outboxes, as samples in memory: closely spaced for the last hour, and more widely
//! for the last month.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// Interval between samples.
pub(super) const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// How far back samples reach, and how closely they are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// An hour, every ten seconds.
    Hour,
    /// Two days, every minute.
    Days,
    /// Thirty days, every quarter of an hour.
    Month,
}

impl Reach {
    const ALL: [Self; 3] = [Self::Hour, Self::Days, Self::Month];

    /// Returns `(n, count)`: every n-th sample is kept, and `count` of them.
    fn kept(self) -> (usize, usize) {
        match self {
            Self::Hour => (1, 360),
            Self::Days => (6, 2_880),
            Self::Month => (90, 2_880),
        }
    }
}

/// A point of the history.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Sample {
    pub(super) at: DateTime<Utc>,
    pub(super) appended: i64,
    pub(super) delivered: i64,
    pub(super) dead: i64,
    pub(super) pending: i64,
    pub(super) unresolved: i64,
    pub(super) oldest_age_s: Option<i64>,
    /// Events that were sent and not answered yet, by all relays.
    pub(super) in_flight: u64,
    /// Attempts that failed, per second of the minute before.
    pub(super) failed_per_s: f64,
    /// From insert to delivery, of the minute before: half of the events took no longer.
    pub(super) latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub(super) latency_p99_ms: Option<f64>,
}

/// The samples of all outboxes.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<HashMap<String, Samples>>);

#[derive(Debug, Default)]
struct Samples {
    taken: usize,
    kept: [VecDeque<Sample>; 3],
}

impl History {
    pub(super) fn remember(&self, outbox: &str, sample: &Sample) {
        let mut all = self.lock();
        let known = all.entry(outbox.to_owned()).or_default();
        for (samples, reach) in known.kept.iter_mut().zip(Reach::ALL) {
            let (every, max) = reach.kept();
            if known.taken.is_multiple_of(every) {
                if samples.len() >= max {
                    samples.pop_front();
                }
                samples.push_back(sample.clone());
            }
        }
        known.taken += 1;
    }

    /// Returns the samples of an outbox, oldest first.
    pub(super) fn of(&self, outbox: &str, reach: Reach) -> Vec<Sample> {
        let all = self.lock();
        let known = all.get(outbox).map(|known| &known.kept[reach as usize]);
        known.into_iter().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Samples>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_back_the_fewer_and_never_more_than_there_is_room_for() {
        let history = History::default();
        let start = DateTime::<Utc>::UNIX_EPOCH;
        for number in 0..4_000_i64 {
            let sample = Sample {
                at: start + SAMPLE_EVERY * u32::try_from(number).unwrap(),
                appended: number,
                delivered: 0,
                dead: 0,
                pending: 0,
                unresolved: 0,
                oldest_age_s: None,
                in_flight: 0,
                failed_per_s: 0.0,
                latency_p50_ms: None,
                latency_p99_ms: None,
            };
            history.remember("orders", &sample);
        }
        let numbers = |reach| -> Vec<i64> {
            history.of("orders", reach).iter().map(|sample| sample.appended).collect()
        };
        assert_eq!(numbers(Reach::Hour), (3_640..4_000).collect::<Vec<_>>());
        assert_eq!(numbers(Reach::Days)[..3], [0, 6, 12]);
        assert_eq!(numbers(Reach::Month), (0..4_000).step_by(90).collect::<Vec<_>>());
        assert!(history.of("others", Reach::Hour).is_empty());
    }
}
