//! Checks the events that arrived: how many, how often, and in which order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use postrider_relay::Outcome;
use postrider_store::Event;

/// Checks the deliveries of all relays of a run.
///
/// Of all copies of an event, the first counts; over these, the ids of a key must ascend. This
/// takes one bit of memory per event and an entry per key.
#[derive(Debug, Default)]
pub(super) struct Checker {
    first_copies: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// One bit per id; ids of a fresh table start at 1.
    ids: Vec<u64>,
    /// The last id of each key, by aggregate type and id.
    last: HashMap<String, HashMap<String, i64>>,
    duplicates: u64,
    order_violations: u64,
    /// When the very first event arrived.
    first_at: Option<Instant>,
}

impl Checker {
    /// Records the deliveries of one call. Returns the events that arrived for the first time.
    pub(super) fn arrived<'a>(&self, events: &'a [Event], outcomes: &[Outcome]) -> Vec<&'a Event> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let delivered = events.iter().zip(outcomes).filter(|(_, o)| **o == Outcome::Delivered);
        let fresh: Vec<&Event> =
            delivered.map(|(event, _)| event).filter(|event| seen.note(event)).collect();
        if !fresh.is_empty() {
            seen.first_at.get_or_insert_with(Instant::now);
        }
        // Still under the lock: a reader that sees the last event counted also finds all events
        // recorded.
        self.first_copies.fetch_add(fresh.len() as u64, Ordering::SeqCst);
        fresh
    }

    /// Returns the number of different events delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.first_copies.load(Ordering::SeqCst)
    }

    /// Returns when the first event arrived.
    pub(super) fn first_at(&self) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).first_at
    }

    /// Returns the number of copies after the first, and of events that arrived after a later one
    /// of their key.
    pub(super) fn duplicates_and_order_violations(&self) -> (u64, u64) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.duplicates, seen.order_violations)
    }
}

impl Seen {
    /// Records an event. Returns whether this is its first copy.
    fn note(&mut self, event: &Event) -> bool {
        let id = usize::try_from(event.id).unwrap_or(0);
        let (word, bit) = (id / 64, 1_u64 << (id % 64));
        if word >= self.ids.len() {
            self.ids.resize(word + 1, 0);
        }
        if self.ids[word] & bit != 0 {
            self.duplicates += 1;
            return false;
        }
        self.ids[word] |= bit;
        if !self.last.contains_key(&event.aggregate_type) {
            self.last.insert(event.aggregate_type.clone(), HashMap::new());
        }
        let Some(of_type) = self.last.get_mut(&event.aggregate_type) else { return true };
        match of_type.get_mut(&event.aggregate_id) {
            Some(last) if *last > event.id => self.order_violations += 1,
            Some(last) => *last = event.id,
            None => {
                of_type.insert(event.aggregate_id.clone(), event.id);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::sample;
    use super::*;

    fn arrive(checker: &Checker, arrivals: &[(i64, &str)]) -> (u64, u64) {
        for (id, key) in arrivals {
            let event = Event { id: *id, aggregate_id: (*key).to_owned(), ..sample(0, 1, 64) };
            checker.arrived(&[event], &[Outcome::Delivered]);
        }
        checker.duplicates_and_order_violations()
    }

    #[test]
    fn ids_of_a_key_ascend_and_keys_do_not_mind_each_other() {
        let checker = Checker::default();
        assert_eq!(arrive(&checker, &[(1, "a"), (9, "b"), (2, "a"), (10, "b")]), (0, 0));
        assert_eq!(checker.delivered(), 4);
    }

    #[test]
    fn a_later_event_first_is_a_violation() {
        let checker = Checker::default();
        assert_eq!(arrive(&checker, &[(1, "a"), (3, "a"), (2, "a"), (4, "a")]), (0, 1));
    }

    /// A batch that is delivered again after its answer was lost repeats ids; that does not violate
    /// the order.
    #[test]
    fn a_repeat_is_a_duplicate_and_no_violation() {
        let checker = Checker::default();
        let repeated = [(1, "a"), (2, "a"), (3, "a"), (1, "a"), (2, "a"), (3, "a"), (4, "a")];
        assert_eq!(arrive(&checker, &repeated), (3, 0));
        assert_eq!(checker.delivered(), 4);
    }

    #[test]
    fn only_what_was_delivered_arrived() {
        let checker = Checker::default();
        let events = [sample(1, 1, 64), sample(2, 1, 64)];
        let retry = Outcome::Retry { error: "no".to_owned() };
        let fresh = checker.arrived(&events, &[retry, Outcome::Delivered]);
        assert_eq!(fresh.len(), 1);
        assert_eq!(checker.delivered(), 1);
    }
}
