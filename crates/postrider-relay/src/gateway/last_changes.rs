//! When each target was last changed. A cached answer that was requested before that no longer
//! holds (RFC 9111, 4.4).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::call::Key;

/// Changes remembered. Beyond that, the oldest are forgotten.
const CHANGES_MAX: usize = 100_000;

/// The targets that were changed through this process.
pub(super) struct LastChanges {
    known: Mutex<Known>,
    changes_max: usize,
}

#[derive(Default)]
struct Known {
    changed_at_ms: HashMap<Key, u64>,
    /// The same changes in the order in which they were noted.
    in_order: VecDeque<(Key, u64)>,
    /// The time of the newest change that was forgotten. Any target may have been changed then.
    forgotten_ms: u64,
}

impl Default for LastChanges {
    fn default() -> Self {
        Self { known: Mutex::default(), changes_max: CHANGES_MAX }
    }
}

impl LastChanges {
    /// Records that a target was changed.
    pub(super) fn note(&self, target: Key, changed_at_ms: u64) {
        let mut known = self.lock();
        let newest = known.changed_at_ms.entry(target).or_default();
        *newest = changed_at_ms.max(*newest);
        known.in_order.push_back((target, changed_at_ms));
        while known.in_order.len() > self.changes_max {
            let Some((target, at_ms)) = known.in_order.pop_front() else { return };
            known.forgotten_ms = at_ms.max(known.forgotten_ms);
            if known.changed_at_ms.get(&target) == Some(&at_ms) {
                known.changed_at_ms.remove(&target);
            }
        }
    }

    /// Returns when a target was last changed; 0 if it was not. If that was forgotten, the time is
    /// later: answers are then asked for once more than needed, but none is given that is outdated.
    pub(super) fn of(&self, target: Key) -> u64 {
        let known = self.lock();
        let changed = known.changed_at_ms.get(&target).copied().unwrap_or_default();
        changed.max(known.forgotten_ms)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // A panic can at worst leave a target remembered for too long.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Call;

    fn target(number: usize) -> Key {
        Call::get(format!("/{number}")).unwrap().target_key()
    }

    #[test]
    fn the_newest_change_of_a_target_counts_in_any_order() {
        let changes = LastChanges::default();
        assert_eq!(changes.of(target(1)), 0);
        for at_ms in [50, 70, 60] {
            changes.note(target(1), at_ms);
        }
        assert_eq!((changes.of(target(1)), changes.of(target(2))), (70, 0));
    }

    #[test]
    fn what_is_forgotten_counts_for_every_target() {
        let changes = LastChanges { changes_max: 2, ..LastChanges::default() };
        for number in 1..=4 {
            changes.note(target(number), number as u64 * 10);
            changes.note(target(4), number as u64 * 10 + 1);
        }
        assert_eq!(changes.of(target(1)), 31, "forgotten, as all before it");
        assert_eq!(changes.of(target(4)), 41);
        assert_eq!(changes.lock().changed_at_ms.len(), 1);
    }
}
