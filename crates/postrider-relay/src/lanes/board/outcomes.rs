//! What became of events that were sent.

use std::cmp::Reverse;
use std::time::Duration;

use postrider::Event;
use postrider::store::Key;
use tokio::time::Instant;

use super::{Board, Standing};
use crate::config::FailingKey;

impl Board {
    /// An event was delivered: its key goes on at once, its row is known until it is settled.
    pub(in crate::lanes) fn delivered(&mut self, event: &Event) {
        self.delivered_rows += 1;
        self.go_on(event);
    }

    /// An event was not delivered and keeps its row. Answers whether it waits for another try.
    pub(in crate::lanes) fn not_delivered(&mut self, event: &Event) -> Standing {
        let Some(slot) = self.slots.get(&event.id) else { return Standing::PassedOver };
        let (key, lane) = (slot.key, slot.lane);
        if self.leaving.contains(lane) {
            return Standing::PassedOver;
        }
        if self.failing_key == FailingKey::Skip {
            return Standing::Waits;
        }
        if let Some(blocked) = self.blocked.get_mut(&key) {
            if blocked.parked.is_some() || blocked.head.is_some_and(|head| head < event.id) {
                blocked.pass_over(event.id);
                return Standing::PassedOver;
            }
            // A later one that waits for its time is behind this one from now on.
            if let Some(later) = blocked.head.filter(|head| *head != event.id) {
                blocked.pass_over(later);
                if self.slots.get(&later).is_some_and(|slot| !slot.loaded) {
                    self.slots.remove(&later);
                }
            }
        }
        self.block(key, lane, event.id);
        Standing::Waits
    }

    /// The row of an event is settled and gone.
    pub(in crate::lanes) fn settled(&mut self, id: i64) {
        self.unload(id);
        self.slots.remove(&id);
    }

    /// The row of an event that waits is as it will be read again.
    pub(in crate::lanes) fn waits(&mut self, id: i64, delay: Duration, now: Instant) {
        self.unload(id);
        if self.slots.get(&id).is_some_and(|slot| self.leaving.contains(slot.lane)) {
            self.slots.remove(&id);
        }
        if self.slots.contains_key(&id) {
            self.due.push(Reverse((now + delay, id)));
        }
    }

    /// A head is dead: the key goes on, unless it is parked.
    pub(in crate::lanes) fn dead(&mut self, event: &Event) {
        self.go_on(event);
    }

    fn go_on(&mut self, event: &Event) {
        let Some(key) = self.slots.get(&event.id).map(|slot| slot.key) else { return };
        let Some(blocked) = self.blocked.get_mut(&key) else { return };
        if blocked.head != Some(event.id) {
            return;
        }
        blocked.head = None;
        if blocked.parked.is_none() {
            self.catching_up.insert(key, Key::from(event));
        }
    }
}
