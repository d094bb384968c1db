//! Takes in rows that were read: lanes in id order, heads that are due, keys that catch up.

use std::collections::{BTreeMap, BTreeSet};

use postrider_store::{Key, LaneRow};
use tokio::time::Instant;

use super::{Board, CatchUp, KeyHash};

impl Board {
    /// Takes in rows of a read, in id order; `full`: there may be more after them. Returns how many
    /// are new: neither known nor passed over.
    pub(in crate::engine::lanes) fn offer(
        &mut self,
        rows: Vec<LaneRow>,
        full: bool,
        now: Instant,
    ) -> usize {
        let (mut new, mut passed) = (0, BTreeMap::new());
        for row in rows {
            let id = row.event.id;
            self.read_to = self.read_to.max(id);
            if self.slots.contains_key(&id) || !self.lanes().contains(row.lane) {
                continue;
            }
            let key = self.hash(&row.event);
            match self.blocked.get_mut(&key) {
                Some(blocked) => {
                    blocked.pass_over(id);
                    if blocked.has_earlier {
                        blocked.name.get_or_insert_with(|| Key::from(&row.event));
                        self.catch_up_if_idle(key);
                    } else if blocked.passed >= self.limits.hide_after {
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
            // The next read must not return the same rows again and nothing else.
            passed.into_iter().for_each(|(hash, key)| self.hide(hash, key));
        }
        new
    }

    fn hide(&mut self, hash: KeyHash, key: Key) {
        if self.hidden >= self.limits.hidden_max {
            return;
        }
        if let Some(blocked) = self.blocked.get_mut(&hash).filter(|blocked| !blocked.hidden) {
            blocked.hidden = true;
            blocked.name.get_or_insert(key);
            self.hidden += 1;
        }
    }

    /// Takes in heads that were read again because they are due; ids that were not found are gone.
    pub(in crate::engine::lanes) fn offer_heads(
        &mut self,
        ids: &[i64],
        rows: Vec<LaneRow>,
        now: Instant,
    ) {
        let mut gone: BTreeSet<i64> = ids.iter().copied().collect();
        for row in rows {
            let identity = self.hash_identity(&row.event);
            if self.slots.get(&row.event.id).is_some_and(|slot| slot.identity != identity) {
                // Another event has this id by now, so the head is gone.
                continue;
            }
            let id = row.event.id;
            gone.remove(&id);
            let waits = self.slots.get(&id).filter(|slot| !slot.loaded);
            let Some((key, behind)) = waits.map(|slot| (slot.key, slot.behind)) else { continue };
            self.slots.remove(&id);
            let wait = self.admit(row, key, now);
            self.probe_picked(id, behind, wait, now);
        }
        for id in gone {
            let behind = self.slots.get(&id).and_then(|slot| slot.behind);
            self.probe_gone(id, behind, now);
            let Some(slot) = self.slots.remove(&id) else { continue };
            if self.blocked.get(&slot.key).is_some_and(|blocked| blocked.head == Some(id)) {
                self.unblock(slot.key, None);
            }
        }
    }

    /// Takes in the live rows of keys that catch up, in id order. `full`: there are more after the
    /// last one. Nothing of these keys was queued or in flight during the read, so each row is one
    /// that was not sent.
    pub(in crate::engine::lanes) fn offer_catch_up(
        &mut self,
        asked: &[CatchUp],
        rows: Vec<LaneRow>,
        full: bool,
        now: Instant,
    ) {
        let read_to = rows.last().filter(|_| full).map(|row| row.event.id);
        for catch_up in asked {
            let hash = self.hash_key(&catch_up.key);
            match (self.blocked.get_mut(&hash), read_to) {
                (Some(blocked), Some(read_to)) => {
                    // Rows that were read are on the board; rows that are committed later have ids
                    // above `read_from`.
                    blocked.from = blocked.from.max(read_to.min(self.read_from) + 1);
                    (blocked.open_to, blocked.passed) = (read_to, 0);
                }
                (Some(_), None) => self.release(hash),
                (None, _) => {}
            }
        }
        for row in rows {
            let (id, key) = (row.event.id, self.hash(&row.event));
            self.read_to = self.read_to.max(id);
            if !self.lanes().contains(row.lane) {
                continue;
            }
            if self.slots.contains_key(&id) {
                // The id belongs to another key: ids were assigned again, and the next read of
                // lanes detects that.
                self.sweep = true;
                continue;
            }
            match self.blocked.get_mut(&key).filter(|blocked| blocked.waits()) {
                Some(blocked) => blocked.pass_over(id),
                None => {
                    self.admit(row, key, now);
                }
            }
        }
        // Some keys had no rows in this part.
        for catch_up in asked {
            self.catch_up_if_idle(self.hash_key(&catch_up.key));
        }
    }
}
