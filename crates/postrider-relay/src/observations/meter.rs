//! Measures what is in flight, and how old events were when they were delivered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_store::Ages;
use tokio::time::Instant;

/// Time that the measurements cover.
const WINDOW: Duration = Duration::from_secs(60);
/// Deliveries within this time are counted together.
const SLOT: Duration = Duration::from_secs(5);

/// Counts the events of one outbox. It has at most 13 slots, however many events there are.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    in_flight: AtomicU64,
    slots: Mutex<VecDeque<(Instant, Ages)>>,
}

/// Events that are in flight until this is dropped, which also happens when a delivery is cut off.
pub(crate) struct Flight<'a> {
    meter: &'a Meter,
    events: u64,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.meter.in_flight.fetch_sub(self.events, Ordering::Relaxed);
    }
}

impl Meter {
    /// Counts events as in flight.
    pub(crate) fn fly(&self, events: usize) -> Flight<'_> {
        let events = events as u64;
        self.in_flight.fetch_add(events, Ordering::Relaxed);
        Flight { meter: self, events }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Records events that were settled as delivered, with their ages.
    pub(crate) fn delivered(&self, ages: &Ages, now: Instant) {
        let mut slots = self.lock();
        let current = |from: &Instant| now.saturating_duration_since(*from) < SLOT;
        if !slots.back().is_some_and(|(from, _)| current(from)) {
            let over = |from: &Instant| now.saturating_duration_since(*from) >= WINDOW;
            while slots.front().is_some_and(|(from, _)| over(from)) {
                slots.pop_front();
            }
            slots.push_back((now, Ages::default()));
        }
        if let Some((_, known)) = slots.back_mut() {
            known.add(ages);
        }
    }

    /// Returns the ages of the last minute.
    pub(crate) fn ages(&self, now: Instant) -> Ages {
        let mut all = Ages::default();
        for (from, ages) in self.lock().iter() {
            if now.saturating_duration_since(*from) < WINDOW {
                all.add(ages);
            }
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Ages)>> {
        // A panic while the lock was held leaves at most one count out of date.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_count_for_a_minute_and_the_memory_is_bounded() {
        let (meter, start) = (Meter::default(), Instant::now());
        let mut one = Ages::default();
        one.note(Duration::from_millis(7));
        for second in 0..1_000 {
            meter.delivered(&one, start + Duration::from_secs(second));
        }
        assert!(meter.lock().len() <= 13, "{}", meter.lock().len());
        assert_eq!(meter.ages(start + Duration::from_secs(999)).count(), 60);
        assert_eq!(meter.ages(start + Duration::from_secs(1_060)).count(), 0);
    }

    #[test]
    fn a_flight_ends_when_it_is_cut_off() {
        let meter = Meter::default();
        let (first, second) = (meter.fly(3), meter.fly(2));
        assert_eq!(meter.in_flight(), 5);
        drop(first);
        assert_eq!(meter.in_flight(), 2);
        drop(second);
        assert_eq!(meter.in_flight(), 0);
    }
}
