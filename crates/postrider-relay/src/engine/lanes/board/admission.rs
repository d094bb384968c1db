//! Decides what happens to a row that the board takes in: it goes to a worker, to the probes, or
//! waits until it is due.

use std::cmp::Reverse;
use std::time::Duration;

use postrider_store::{Event, LaneRow};
use tokio::time::Instant;

use super::{Board, KeyHash, Slot};
use crate::config::FailingKey;
use crate::destination::health::{DestinationHash, Wait};

/// Maximum number of events queued as probes: one for each destination that is down.
const PROBES_MAX: usize = 64;
/// Wait before a row that a relay in the other mode still holds is read again.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(1);

impl Board {
    /// Takes a row in. Returns the wait for its destination, if that is down.
    pub(super) fn admit(&mut self, row: LaneRow, key: KeyHash, now: Instant) -> Option<Wait> {
        let wait = match row.busy {
            true => row.due_in.max(BUSY_WAIT),
            false => row.due_in,
        };
        if !wait.is_zero() && row.event.defect.is_none() {
            self.admit_later(&row, key, now + wait);
            return None;
        }
        let down = (self.wait)(&row.event, now).filter(|_| row.event.defect.is_none());
        let queue = match down {
            Some(wait) if wait.probe_due && self.may_be_probe(&row.event, key) => self.probes(),
            // An expired event is not sent, and becoming a dead letter does not need the
            // destination.
            Some(wait) if wait.expires_in != Some(Duration::ZERO) => {
                self.admit_behind_outage(&row, key, wait, now);
                return Some(wait);
            }
            _ => usize::try_from(key % self.probes() as u64).unwrap_or(0),
        };
        // A probe may kill the process as well as any other event. While events of a lane are sent
        // alone, rows that are read from that lane queue up behind them.
        let same_lane = |event: &Event| self.lane_of(event.id) == row.lane;
        let alone =
            self.suspected.contains(row.lane) || self.queues[self.alone()].iter().any(same_lane);
        let queue = if alone { self.alone() } else { queue };
        self.load(row, key, queue);
        down
    }

    /// Returns whether an event may be sent as a probe: it is a head that was due, and no row of
    /// its key is in flight that it could overtake.
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
        let slot = Slot { key, lane, bytes, identity, loaded: true, behind: None };
        self.slots.insert(event.id, slot);
        self.queues[queue].push_back(event);
    }

    fn admit_later(&mut self, row: &LaneRow, key: KeyHash, at: Instant) {
        self.admit_head(row, key, None);
        self.due.push(Reverse((at, row.event.id)));
    }

    fn admit_behind_outage(&mut self, row: &LaneRow, key: KeyHash, wait: Wait, now: Instant) {
        self.admit_head(row, key, Some(wait.destination));
        self.wait_behind_outage(row.event.id, wait, now);
        if let Some(expires_at) = wait.expires_in.and_then(|left| now.checked_add(left)) {
            self.due.push(Reverse((expires_at, row.event.id)));
        }
    }

    fn admit_head(&mut self, row: &LaneRow, key: KeyHash, behind: Option<DestinationHash>) {
        let (id, lane, bytes) = (row.event.id, row.lane, row.event.weight_bytes());
        let identity = self.hash_identity(&row.event);
        self.slots.insert(id, Slot { key, lane, bytes, identity, loaded: false, behind });
        self.block(key, lane, id);
    }
}
