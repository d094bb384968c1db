//! Rows that were read: lanes in id order, heads that are due, keys that catch up.

use std::collections::{BTreeSet, HashMap};

use postrider::store::{Key, LaneRow};
use tokio::time::Instant;

use super::{Board, CatchUp, HIDDEN_MAX, HIDE_AFTER, KeyHash};

impl Board {
    /// Takes rows of a read in id order; `full`: there may be more behind them. Answers how many
    /// are new: neither known nor passed over.
    pub(in crate::lanes) fn offer(
        &mut self,
        rows: Vec<LaneRow>,
        full: bool,
        now: Instant,
    ) -> usize {
        let (mut new, mut passed) = (0, HashMap::new());
        for row in rows {
            self.read_to = self.read_to.max(row.event.id);
            if self.slots.contains_key(&row.event.id) || !self.lanes().contains(row.lane) {
                continue;
            }
            let key = self.hash(&row.event);
            match self.blocked.get_mut(&key) {
                Some(blocked) => {
                    blocked.pass_over(row.event.id);
                    if blocked.passed >= HIDE_AFTER {
                        self.hide(key, Key::from(&row.event));
                    } else if full {
                        passed.entry(key).or_insert_with(|| Key::from(&row.event));
                    }
                }
                None => {
                    self.admit(row, key, now);
                    new += 1;
                }
            }
        }
        if new == 0 {
            // The next read must not bring the same rows again, and nothing else.
            passed.into_iter().for_each(|(hash, key)| self.hide(hash, key));
        }
        new
    }

    fn hide(&mut self, hash: KeyHash, key: Key) {
        if self.hidden >= HIDDEN_MAX {
            return;
        }
        if let Some(blocked) = self.blocked.get_mut(&hash)
            && blocked.hidden.is_none()
        {
            blocked.hidden = Some(key);
            self.hidden += 1;
        }
    }

    /// Takes heads that were read again, because they are due; ids that were not found are gone.
    pub(in crate::lanes) fn offer_heads(&mut self, ids: &[i64], rows: Vec<LaneRow>, now: Instant) {
        let mut gone: BTreeSet<i64> = ids.iter().copied().collect();
        for row in rows {
            gone.remove(&row.event.id);
            let Some(slot) = self.slots.get(&row.event.id) else { continue };
            let key = slot.key;
            self.slots.remove(&row.event.id);
            self.admit(row, key, now);
        }
        for id in gone {
            let Some(slot) = self.slots.remove(&id) else { continue };
            if self.blocked.get(&slot.key).is_some_and(|blocked| blocked.head == Some(id)) {
                // Somebody else removed it. Whose rows wait behind it is not known here.
                self.unblock_unknown(slot.key);
            }
        }
    }

    /// Takes rows of keys that catch up. `full`: there are more behind the last one.
    pub(in crate::lanes) fn offer_catch_up(
        &mut self,
        asked: &[CatchUp],
        rows: Vec<LaneRow>,
        full: bool,
        now: Instant,
    ) {
        let read_to = rows.last().map(|row| row.event.id);
        let mut from = HashMap::new();
        for catch_up in asked {
            let hash = self.hash_key(&catch_up.key);
            let Some(blocked) = self.blocked.get_mut(&hash) else { continue };
            if blocked.waits() {
                continue;
            }
            // While this was read, an earlier one may have been passed over, behind a head that has
            // come and gone. Then the key catches up from there.
            if blocked.first_passed != Some(catch_up.from) {
                self.catching_up.insert(hash, catch_up.key.clone());
                continue;
            }
            // What comes now is no longer behind; what is passed over below is again.
            from.insert(hash, catch_up.from);
            blocked.first_passed = None;
            blocked.passed = 0;
        }
        for row in rows {
            let (id, key) = (row.event.id, self.hash(&row.event));
            // Before the first that was passed over there is at most the head, which was delivered
            // and settled while this was read.
            let behind = from.get(&key).is_some_and(|from| id >= *from);
            if !behind || self.slots.contains_key(&id) || !self.lanes().contains(row.lane) {
                continue;
            }
            match self.blocked.get_mut(&key) {
                Some(blocked) if blocked.waits() => blocked.pass_over(id),
                _ => self.admit(row, key, now),
            }
        }
        for catch_up in asked {
            let hash = self.hash_key(&catch_up.key);
            let Some(blocked) = self.blocked.get_mut(&hash).filter(|_| from.contains_key(&hash))
            else {
                continue;
            };
            match (full, read_to) {
                (true, Some(id)) => {
                    blocked.first_passed.get_or_insert(id + 1);
                    if !blocked.waits() {
                        self.catching_up.insert(hash, catch_up.key.clone());
                    }
                }
                _ if !blocked.waits() => self.release(hash),
                _ => {}
            }
        }
    }
}
