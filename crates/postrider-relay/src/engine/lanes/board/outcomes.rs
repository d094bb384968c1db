//! Takes in the outcomes of events that were sent.

use std::cmp::Reverse;
use std::time::Duration;

use postrider_store::{Event, Key};
use tokio::time::Instant;

use super::{Board, Standing};
use crate::config::FailingKey;

impl Board {
    /// Records a delivered event: its key continues at once, and its row stays known until it is
    /// settled.
    pub(in crate::engine::lanes) fn delivered(&mut self, event: &Event) {
        self.delivered_rows += 1;
        self.go_on(event);
    }

    /// Records an event that was not delivered and keeps its row. Returns whether it waits for
    /// another attempt.
    pub(in crate::engine::lanes) fn not_delivered(&mut self, event: &Event) -> Standing {
        let Some(slot) = self.slots.get(&event.id) else { return Standing::PassedOver };
        let (key, lane) = (slot.key, slot.lane);
        if self.leaving.contains(lane) {
            return Standing::PassedOver;
        }
        if !self.stops_its_key(event) {
            return Standing::Waits;
        }
        if let Some(blocked) = self.blocked.get_mut(&key)
            && !blocked.lets_pass(event.id)
        {
            blocked.pass_over(event.id);
            return Standing::PassedOver;
        }
        self.block(key, lane, event.id);
        Standing::Waits
    }

    /// Forgets the row of an event, which is settled and gone, or will be read again.
    pub(in crate::engine::lanes) fn settled(&mut self, id: i64) {
        self.unload(id);
        self.slots.remove(&id);
    }

    /// Records that the row of a waiting event is written, and when it is due.
    pub(in crate::engine::lanes) fn waits(&mut self, id: i64, delay: Duration, now: Instant) {
        self.unload(id);
        let Some(slot) = self.slots.get(&id) else { return };
        // In the meantime an earlier event may have become the head, and this one is behind it.
        let is_head = self.blocked.get(&slot.key).is_some_and(|blocked| blocked.head == Some(id));
        let waits = is_head || self.failing_key == FailingKey::Skip;
        if self.leaving.contains(slot.lane) || !waits {
            self.slots.remove(&id);
        } else {
            self.due.push(Reverse((now + delay, id)));
        }
    }

    /// Records that the dead letter of a head is written: the key continues, unless it is parked.
    pub(in crate::engine::lanes) fn dead(&mut self, event: &Event) {
        self.go_on(event);
    }

    fn go_on(&mut self, event: &Event) {
        let Some(key) = self.slots.get(&event.id).map(|slot| slot.key) else { return };
        if self.blocked.get(&key).is_some_and(|blocked| blocked.head == Some(event.id)) {
            self.unblock(key, Some(Key::from(event)));
        }
    }
}
