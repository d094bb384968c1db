//! Counts the outcomes of this relay's attempts on one outbox, over the last five minutes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_store::Event;
use tokio::time::Instant;

use crate::outcome::Outcome;
use crate::policy::Settlement;

/// Time over which rates are computed.
pub(crate) const WINDOW: Duration = Duration::from_secs(300);
/// Time over which failures per minute are counted.
const MINUTE: Duration = Duration::from_secs(60);
/// Attempts within this time are counted together.
const SLOT: Duration = Duration::from_secs(5);

/// Counts of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    /// Events that were sent and have an outcome.
    pub all: u64,
    /// Events among these that had spent an attempt before.
    pub retries: u64,
    /// Events among these whose destination was down.
    pub down: u64,
    /// Attempts spent without delivery, within the last minute.
    pub failed_in_minute: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    from: Instant,
    all: u64,
    retries: u64,
    down: u64,
    failed: u64,
}

/// Counts attempts. It has at most 60 slots, however many attempts there are.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<VecDeque<Slot>>);

impl Tally {
    /// Counts the outcome of an event. An event that was not sent is not counted.
    pub(crate) fn record(&self, event: &Event, outcome: &Outcome, now: Instant) {
        self.answered(event.retry_count > 0, outcome, now);
    }

    /// Counts the outcome of a call that was not made for an event. It counts towards the
    /// destination's availability.
    pub(crate) fn heard_live(&self, outcome: &Outcome, now: Instant) {
        self.answered(false, outcome, now);
    }

    fn answered(&self, retry: bool, outcome: &Outcome, now: Instant) {
        if outcome.is_silent() {
            return;
        }
        self.count(now, |slot| {
            slot.all += 1;
            slot.retries += u64::from(retry);
            slot.down += u64::from(matches!(outcome, Outcome::Down { .. }));
        });
    }

    /// Counts events that were delivered together.
    pub(crate) fn all_delivered(&self, events: &[&Event], now: Instant) {
        let retries = events.iter().filter(|event| event.retry_count > 0).count() as u64;
        self.count(now, |slot| {
            slot.all += events.len() as u64;
            slot.retries += retries;
        });
    }

    /// Counts the settlement of an event, if it spent an attempt without delivery.
    pub(crate) fn decided(&self, settlement: &Settlement, now: Instant) {
        let spent = matches!(
            settlement,
            Settlement::Failed { .. } | Settlement::Dead { attempted: true, .. }
        );
        if spent {
            self.count(now, |slot| slot.failed += 1);
        }
    }

    /// Returns the sums.
    pub(crate) fn attempts(&self, now: Instant) -> Attempts {
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let within = |window: Duration| {
            slots.iter().filter(move |slot| now.saturating_duration_since(slot.from) < window)
        };
        let sum = |of: fn(&Slot) -> u64| within(WINDOW).map(of).sum();
        Attempts {
            all: sum(|slot| slot.all),
            retries: sum(|slot| slot.retries),
            down: sum(|slot| slot.down),
            failed_in_minute: within(MINUTE).map(|slot| slot.failed).sum(),
        }
    }

    fn count(&self, now: Instant, change: impl FnOnce(&mut Slot)) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = |slot: &Slot| now.saturating_duration_since(slot.from) < SLOT;
        if !slots.back().is_some_and(current) {
            while slots.front().is_some_and(|slot| now - slot.from >= WINDOW) {
                slots.pop_front();
            }
            slots.push_back(Slot { from: now, all: 0, retries: 0, down: 0, failed: 0 });
        }
        if let Some(slot) = slots.back_mut() {
            change(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(retry_count: i32) -> Event {
        let now = chrono::Utc::now();
        Event { retry_count, claimed_at: now, created_at: now, ..Event::default() }
    }

    #[test]
    fn attempts_count_for_five_minutes_and_failures_for_one() {
        let (tally, start) = (Tally::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let cause = crate::outcome::Cause::Unknown;
        let (error, retry_after) = (String::new(), None);
        let down = Outcome::Down { error, retry_after, credentials: false, cause };
        tally.record(&event(0), &Outcome::Delivered, at(0));
        tally.record(&event(2), &down, at(1));
        tally.record(&event(2), &Outcome::Untried, at(1));
        let spent = Settlement::Failed { delay: Duration::ZERO, error: String::new() };
        tally.decided(&spent, at(1));
        tally.decided(&Settlement::Delivered { answer: None }, at(1));
        let all = Attempts { all: 2, retries: 1, down: 1, failed_in_minute: 1 };
        assert_eq!(tally.attempts(at(30)), all);
        assert_eq!(tally.attempts(at(70)), Attempts { failed_in_minute: 0, ..all });
        assert_eq!(tally.attempts(at(301)), Attempts::default());
    }

    #[test]
    fn the_memory_is_bounded() {
        let (tally, start) = (Tally::default(), Instant::now());
        for second in 0..10_000 {
            tally.record(&event(0), &Outcome::Delivered, start + Duration::from_secs(second));
        }
        let slots = tally.0.lock().unwrap().len();
        assert!(slots <= 61, "{slots}");
        assert_eq!(tally.attempts(start + Duration::from_secs(9_999)).all, 300);
    }
}
