//! Keys that are stopped until an operator releases them.

use std::collections::HashMap;

use postrider_store::{Event, Key};

use super::{Blocked, Board, KeyHash, Parked};

impl Board {
    /// Returns the number of keys noted as parked so far. A list read from now on includes all of
    /// them, unless they were released.
    pub(in crate::engine::lanes) fn park_notes(&self) -> u64 {
        self.park_notes
    }

    /// Updates the parked keys from a list read from the database. Keys that were noted before the
    /// list was read, and are not in it, have been released.
    pub(in crate::engine::lanes) fn park(&mut self, keys: &[Key], notes_before: u64) {
        let parked: HashMap<KeyHash, &Key> =
            keys.iter().map(|key| (self.hash_key(key), key)).collect();
        let listed = Some(Parked::Noted(notes_before));
        let released: Vec<KeyHash> = self
            .blocked
            .iter()
            .filter(|(hash, blocked)| {
                blocked.parked.is_some() && blocked.parked <= listed && !parked.contains_key(hash)
            })
            .map(|(hash, _)| *hash)
            .collect();
        for hash in released {
            if let Some(blocked) = self.blocked.get_mut(&hash) {
                blocked.parked = None;
                self.catch_up_if_idle(hash);
            }
        }
        let from = self.read_from + 1;
        for (hash, key) in parked {
            let blocked = self.blocked.entry(hash).or_insert_with(|| Blocked::new(0, from));
            blocked.parked.get_or_insert(Parked::Noted(notes_before));
            blocked.name.get_or_insert_with(|| key.clone());
        }
    }

    /// Stops a key at once; it is written to the database soon after.
    pub(in crate::engine::lanes) fn park_key_of(&mut self, event: &Event) {
        let key = self.hash(event);
        let lane = self.slots.get(&event.id).map_or(0, |slot| slot.lane);
        let from = self.read_from + 1;
        let blocked = self.blocked.entry(key).or_insert_with(|| Blocked::new(lane, from));
        blocked.parked = Some(Parked::Pending);
        blocked.lane = lane;
        blocked.name.get_or_insert_with(|| Key::from(event));
    }

    /// Notes that a stopped key is in the database.
    pub(in crate::engine::lanes) fn note_parked(&mut self, key: &Key) {
        self.park_notes += 1;
        let (hash, notes) = (self.hash_key(key), self.park_notes);
        if let Some(blocked) = self.blocked.get_mut(&hash) {
            blocked.parked = Some(Parked::Noted(notes));
        }
    }
}
