//! Where a row goes that the board takes in: to a worker, among the probes, or nowhere before its time.

use std::cmp::Reverse;
use std::time::Duration;

use postrider::Event;
use postrider::store::LaneRow;
use tokio::time::Instant;

use super::{Board, KeyHash, Slot};
use crate::config::FailingKey;
use crate::health::Wait;

/// Events that may be queued as probes: each destination that is down takes one of its own.
const PROBES_MAX: usize = 64;
/// A row that a relay in the other mode still has is looked at again after this.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(1);

impl Board {
    pub(super) fn admit(&mut self, row: LaneRow, key: KeyHash, now: Instant) {
        let wait = match row.busy {
            true => row.due_in.max(BUSY_WAIT),
            false => row.due_in,
        };
        if !wait.is_zero() && row.event.defect.is_none() {
            return self.admit_later(&row, key, now + wait);
        }
        let down = (self.wait)(&row.event, now).filter(|_| row.event.defect.is_none());
        let queue = match down {
            Some(Wait { probe_due, .. }) if probe_due && self.may_be_probe(&row.event, key) => {
                self.probes()
            }
            Some(Wait { delay, .. }) => return self.admit_later(&row, key, now + delay),
            None => usize::try_from(key % self.probes() as u64).unwrap_or(0),
        };
        // A probe may be what kills the process, as well as any other.
        // And while events of a lane are sent alone, what is read of it follows them.
        let same_lane = |event: &Event| self.lane_of(event.id) == row.lane;
        let alone =
            self.suspected.contains(row.lane) || self.queues[self.alone()].iter().any(same_lane);
        let queue = if alone { self.alone() } else { queue };
        self.load(row, key, queue);
    }

    /// A head whose time had come, with nothing of its key under way that it could overtake.
    fn may_be_probe(&self, event: &Event, key: KeyHash) -> bool {
        let has_room = self.queues[self.probes()].len() < PROBES_MAX;
        if self.failing_key == FailingKey::Skip {
            return has_room;
        }
        let is_head = self.blocked.get(&key).is_some_and(|blocked| blocked.head == Some(event.id));
        has_room && is_head && !self.loaded_of.contains_key(&key)
    }

    fn load(&mut self, row: LaneRow, key: KeyHash, queue: usize) {
        let LaneRow { event, lane, .. } = row;
        let bytes = event.weight_bytes();
        self.load_rows += 1;
        self.load_bytes += bytes;
        self.lane_load[usize::from(lane)] += 1;
        *self.loaded_of.entry(key).or_default() += 1;
        let identity = self.hash_identity(&event);
        self.slots.insert(event.id, Slot { key, lane, bytes, identity, loaded: true });
        self.queues[queue].push_back(event);
    }

    fn admit_later(&mut self, row: &LaneRow, key: KeyHash, at: Instant) {
        let (id, lane, bytes) = (row.event.id, row.lane, row.event.weight_bytes());
        let identity = self.hash_identity(&row.event);
        self.slots.insert(id, Slot { key, lane, bytes, identity, loaded: false });
        self.block(key, lane, id);
        self.due.push(Reverse((at, id)));
    }
}
