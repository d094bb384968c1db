//! The state of an owner of lanes: which rows it knows, which keys wait, and what is sent next.
//!
//! The database does not record that an event is being worked on, so the board does. It is pure:
//! rows, outcomes and times go in; rows to send, ids to read again and keys to catch up come out.
//!
//! A key is in one of three states:
//!
//! ```text
//!            a row fails, dies or is not due            the head is delivered or dead
//!   flowing ──────────────────────────────► waiting ──────────────────────────► catching up
//!      ▲                                    (head)  ◄──────────────────────────     │
//!      │                                               a row that is read is not due│
//!      └────────────────────────────────────────────────────────────────────────────┘
//!                         its live rows were read to the end
//! ```
//!
//! - *Flowing*: rows are sent as they are read.
//! - *Waiting*: only the head is sent. Other rows are passed over: not kept, however many there
//!   are.
//! - *Catching up*: once no row of the key is queued or in flight any longer, its live rows are
//!   read again, in order, from an id below which none can be left.
//!
//! The last two rules preserve the order: a catch-up finds exactly the rows that were not sent,
//! because every row that was sent is settled and gone.

mod admission;
mod intake;
mod key;
mod lanes;
mod outage;
mod outcomes;
mod parking;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use foldhash::fast::FixedState;
use postrider_store::{Event, Key, LaneSet};
use tokio::time::Instant;

use self::key::{Blocked, Parked, Slot};
use self::outage::Outages;
use crate::config::FailingKey;
use crate::config::LaneLimits;
use crate::destination::health::Wait;

/// A hash stands for its key: two keys with the same hash wait for each other, which preserves the
/// order of both.
type KeyHash = u64;

/// Maps by id or by hash of a key. There are several lookups per row, so the standard library's
/// hasher would be too slow.
type Fast<K, V> = HashMap<K, V, FixedState>;

/// Returns the wait of an event for a destination that is down, at a given time.
type WaitOf = Box<dyn Fn(&Event, Instant) -> Option<Wait> + Send>;

/// A key with rows to read again, starting at an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CatchUp {
    pub(super) key: Key,
    pub(super) from: i64,
}

/// The state of an event that is not done yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the head of its key, or waits on its own if keys do not wait.
    Waits,
    /// It is behind its key's head, and will be read again.
    PassedOver,
}

pub(super) struct Board {
    failing_key: FailingKey,
    limits: LaneLimits,
    /// The same for every relay and run, so that runs are reproducible.
    hasher: BuildHasherDefault<DefaultHasher>,
    /// Called for every row that is due, to find out whether it waits for a destination that is
    /// down.
    wait: WaitOf,
    /// One queue per worker, then the queue of probes, and last the queue of events that are sent
    /// alone.
    queues: Vec<VecDeque<Event>>,
    slots: Fast<i64, Slot>,
    lanes: LaneSet,
    leaving: LaneSet,
    lane_load: [usize; 64],
    load_rows: usize,
    load_bytes: usize,
    /// Rows delivered since the board was last idle.
    delivered_rows: usize,
    blocked: Fast<KeyHash, Blocked>,
    /// Rows of each key that are queued or in flight.
    loaded_of: Fast<KeyHash, u32>,
    hidden: usize,
    due: BinaryHeap<Reverse<(Instant, i64)>>,
    /// Heads whose destination is down.
    outages: Outages,
    /// Keys that catch up and have nothing queued or in flight.
    catching_up: BTreeSet<KeyHash>,
    /// Largest id that was read.
    read_to: i64,
    /// Every live row of a flowing key up to this id is on the board.
    read_from: i64,
    /// Rows may have been left behind, so the next read starts at the beginning.
    pub(super) sweep: bool,
    park_notes: u64,
    /// The reader stopped at a limit.
    pub(super) stalled: bool,
    /// Lanes with an event that is suspected of killing the process.
    suspected: LaneSet,
}

impl Board {
    pub(super) fn new(
        failing_key: FailingKey,
        limits: LaneLimits,
        workers: usize,
        wait: WaitOf,
    ) -> Self {
        Self {
            failing_key,
            limits,
            hasher: BuildHasherDefault::default(),
            wait,
            queues: (0..workers + 2).map(|_| VecDeque::new()).collect(),
            slots: Fast::default(),
            lanes: LaneSet::NONE,
            leaving: LaneSet::NONE,
            lane_load: [0; 64],
            load_rows: 0,
            load_bytes: 0,
            delivered_rows: 0,
            blocked: Fast::default(),
            loaded_of: Fast::default(),
            hidden: 0,
            due: BinaryHeap::new(),
            outages: Outages::default(),
            catching_up: BTreeSet::new(),
            read_to: 0,
            read_from: 0,
            sweep: false,
            park_notes: 0,
            stalled: false,
            suspected: LaneSet::NONE,
        }
    }

    fn hash(&self, event: &Event) -> KeyHash {
        match &event.defect {
            None => self.hasher.hash_one(event.key()),
            // Its key may not be what it seems. The row goes to the dead letters, independent of
            // any key.
            Some(_) => self.hasher.hash_one(event.id),
        }
    }

    /// Returns whether an event that is not delivered stops the events behind it.
    fn stops_its_key(&self, event: &Event) -> bool {
        self.failing_key != FailingKey::Skip && event.defect.is_none()
    }

    fn hash_identity(&self, event: &Event) -> u32 {
        (FixedState::default().hash_one(&event.event_id) >> 32) as u32
    }

    fn hash_key(&self, key: &Key) -> KeyHash {
        self.hasher.hash_one((key.aggregate_type.as_str(), key.aggregate_id.as_str()))
    }

    // Rows to send.

    /// Returns the queue of events that are sent alone.
    fn alone(&self) -> usize {
        self.queues.len() - 1
    }

    /// Returns the queue of probes.
    pub(super) fn probes(&self) -> usize {
        self.queues.len() - 2
    }

    /// Takes the next events of a queue, within the limits; a single oversized event is sent alone.
    /// Events of lanes to be left, and events behind a head, are dropped.
    pub(super) fn take(&mut self, queue: usize, rows_max: usize, bytes_max: usize) -> Vec<Event> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < rows_max {
            let Some(event) = self.queues[queue].front() else { break };
            let Some(slot) = self.slots.get(&event.id) else {
                self.queues[queue].pop_front();
                continue;
            };
            let (id, key, lane, weight) = (event.id, slot.key, slot.lane, slot.bytes);
            let behind = self.blocked.get(&key).is_some_and(|blocked| !blocked.lets_pass(id));
            if self.leaving.contains(lane) || behind {
                self.queues[queue].pop_front();
                if let Some(blocked) = self.blocked.get_mut(&key).filter(|_| behind) {
                    blocked.pass_over(id);
                }
                self.settled(id);
                continue;
            }
            if !batch.is_empty() && bytes + weight > bytes_max {
                break;
            }
            bytes += weight;
            batch.extend(self.queues[queue].pop_front());
        }
        batch
    }

    /// Takes the next event to be sent alone: among the first events of each key, the one with the
    /// fewest crashes. An innocent event that was in flight next to the one that kills the process
    /// is thereby delivered first.
    pub(super) fn take_alone(&mut self) -> Option<Event> {
        let alone = self.alone();
        let queue = &mut self.queues[alone];
        let mut keys = HashSet::new();
        let firsts = queue.iter().enumerate().filter(|(_, event)| keys.insert(event.key()));
        let (next, _) = firsts.min_by_key(|(_, event)| (event.crash_count, event.id))?;
        let event = queue.remove(next)?;
        queue.push_front(event);
        self.take(alone, 1, usize::MAX).pop()
    }

    /// Returns whether there are events to be sent alone.
    pub(super) fn has_alone(&self) -> bool {
        self.has_work(self.alone())
    }

    /// Returns the heads that are due, within the limits; at least one, even if it is oversized.
    pub(super) fn due_heads(
        &mut self,
        now: Instant,
        rows_max: usize,
        bytes_max: usize,
    ) -> Vec<i64> {
        self.pick_probes(now);
        let (mut ids, mut bytes) = (Vec::new(), 0);
        while ids.len() < rows_max
            && let Some(Reverse((at, id))) = self.due.peek().copied()
            && at <= now
        {
            // Skips heads of lanes that were left, and heads that became due in another way.
            if let Some(slot) = self.slots.get(&id).filter(|slot| !slot.loaded) {
                bytes += slot.bytes;
                if bytes > bytes_max && !ids.is_empty() {
                    break;
                }
                ids.push(id);
            }
            self.due.pop();
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Makes heads due again after a read of them failed.
    pub(super) fn due_again(&mut self, ids: &[i64], at: Instant) {
        self.due.extend(ids.iter().map(|id| Reverse((at, *id))));
    }

    /// Returns when the next head is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        [due, self.outages.next_look()].into_iter().flatten().min()
    }

    /// Makes all waiting heads due, because a destination is back.
    pub(super) fn all_due(&mut self, now: Instant) {
        self.outages = Outages::default();
        self.due = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.loaded)
            .map(|(id, _)| Reverse((now, *id)))
            .collect();
    }

    /// Returns up to `max` keys whose live rows are to be read.
    pub(super) fn catch_ups(&mut self, max: usize) -> Vec<CatchUp> {
        let mut found = Vec::new();
        while found.len() < max
            && let Some(hash) = self.catching_up.pop_first()
        {
            let Some(blocked) = self.blocked.get(&hash).filter(|blocked| !blocked.waits()) else {
                continue;
            };
            match &blocked.name {
                Some(key) => found.push(CatchUp { key: key.clone(), from: blocked.from }),
                None => {
                    // The head's row was removed by someone else, and its key is not known here.
                    self.sweep = true;
                    self.release(hash);
                }
            }
        }
        found
    }

    /// Queues keys for catching up again after a read for them failed.
    pub(super) fn catch_up_again(&mut self, asked: &[CatchUp]) {
        for catch_up in asked {
            self.catching_up.insert(self.hash_key(&catch_up.key));
        }
    }

    /// Stops a key at an event that waits. A later event that waited is behind it from now on.
    fn block(&mut self, key: KeyHash, lane: u8, id: i64) {
        if self.failing_key == FailingKey::Skip {
            return;
        }
        let from = self.read_from + 1;
        let blocked = self.blocked.entry(key).or_insert_with(|| Blocked::new(lane, from));
        blocked.lane = lane;
        blocked.from = blocked.from.min(id);
        if let Some(later) = blocked.head.replace(id).filter(|head| *head != id) {
            blocked.pass_over(later);
            if self.slots.get(&later).is_some_and(|slot| !slot.loaded) {
                self.slots.remove(&later);
            }
        }
    }

    /// Ends the wait of a key whose head is done: the events behind it follow, once nothing of the
    /// key is queued or in flight.
    fn unblock(&mut self, key: KeyHash, name: Option<Key>) {
        let Some(blocked) = self.blocked.get_mut(&key) else { return };
        (blocked.head, blocked.open_to) = (None, 0);
        blocked.name = blocked.name.take().or(name);
        self.catch_up_if_idle(key);
    }

    /// Begins to catch up, unless the key is stopped or some of its rows are queued or in flight.
    /// If a row with a smaller id than a waiting head was committed late, the head is read again
    /// after it.
    fn catch_up_if_idle(&mut self, key: KeyHash) {
        let idle = !self.loaded_of.contains_key(&key);
        let Some(blocked) = self.blocked.get_mut(&key).filter(|_| idle) else { return };
        if std::mem::take(&mut blocked.has_earlier)
            && let Some(head) = blocked.head.take()
        {
            blocked.pass_over(head);
            self.slots.remove(&head);
        }
        if !blocked.waits() {
            self.catching_up.insert(key);
        }
    }

    fn release(&mut self, key: KeyHash) {
        self.catching_up.remove(&key);
        if let Some(blocked) = self.blocked.remove(&key) {
            self.hidden -= usize::from(blocked.hidden);
        }
    }

    // Counts.

    fn unload(&mut self, id: i64) {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.loaded) else { return };
        slot.loaded = false;
        let key = slot.key;
        self.load_rows -= 1;
        self.load_bytes -= slot.bytes;
        self.lane_load[usize::from(slot.lane)] -= 1;
        if let Entry::Occupied(mut loaded) = self.loaded_of.entry(key) {
            *loaded.get_mut() -= 1;
            if *loaded.get() == 0 {
                loaded.remove();
                self.catch_up_if_idle(key);
            }
        }
    }

    /// Returns the number of rows that are queued or in flight.
    pub(super) fn load_rows(&self) -> usize {
        self.load_rows
    }

    /// Returns the bytes of the rows that are queued or in flight.
    pub(super) fn load_bytes(&self) -> usize {
        self.load_bytes
    }

    /// Returns how many rows may be queued or in flight.
    pub(super) fn load_rows_max(&self) -> usize {
        let LaneLimits { load_rows_first, load_rows_max, .. } = self.limits;
        load_rows_first.saturating_add(self.delivered_rows.saturating_mul(2)).min(load_rows_max)
    }

    /// Notes that a read found nothing new. If nothing is queued or in flight either, the board is
    /// idle.
    pub(super) fn nothing_new(&mut self) {
        if self.load_rows == 0 {
            self.delivered_rows = 0;
        }
    }

    /// Returns the number of rows that wait until they are due.
    pub(super) fn waiting(&self) -> usize {
        self.slots.len() - self.load_rows
    }

    /// Returns the number of keys that wait or catch up.
    pub(super) fn blocked_keys(&self) -> usize {
        self.blocked.len()
    }

    /// Returns the ids above `low` that a read should leave out.
    pub(super) fn known_above(&self, low: i64) -> Vec<i64> {
        if low >= self.read_to {
            return Vec::new();
        }
        self.slots.keys().copied().filter(|id| *id > low).collect()
    }

    /// Returns the keys whose rows a read should leave out.
    pub(super) fn hidden_keys(&self) -> Vec<Key> {
        if self.hidden == 0 {
            return Vec::new();
        }
        let hidden = self.blocked.values().filter(|blocked| blocked.hidden);
        hidden.filter_map(|blocked| blocked.name.clone()).collect()
    }

    /// Notes that a read of lanes starts after this id: rows up to it have been read.
    pub(super) fn reads_from(&mut self, low: i64) {
        self.read_from = self.read_from.max(low);
    }

    /// Notes that ids above this one are assigned again: new rows may appear there.
    pub(super) fn goes_back_to(&mut self, id: i64) {
        self.read_from = self.read_from.min(id);
        self.blocked.values_mut().for_each(|blocked| blocked.from = blocked.from.min(id + 1));
    }

    /// Returns the lane of a row.
    pub(super) fn lane_of(&self, id: i64) -> u8 {
        self.slots.get(&id).map_or(0, |slot| slot.lane)
    }

    /// Puts an event that was taken to be sent alone, and was not sent, back to the front of its
    /// queue.
    pub(super) fn give_up(&mut self, event: &Event) {
        let alone = self.alone();
        self.queues[alone].push_front(event.clone());
    }

    /// Returns whether a queue has events to take.
    pub(super) fn has_work(&self, queue: usize) -> bool {
        !self.queues[queue].is_empty()
    }

    /// Returns whether the reader has something to do before its next poll.
    pub(super) fn wants_reader(&self) -> bool {
        self.stalled || self.catches_up() || !self.leaving.is_empty()
    }

    /// Returns whether heads are due or keys catch up.
    pub(super) fn reads_again(&self, now: Instant) -> bool {
        self.catches_up() || self.next_due().is_some_and(|due| due <= now)
    }

    /// Returns whether keys have rows to read again.
    pub(super) fn catches_up(&self) -> bool {
        !self.catching_up.is_empty()
    }
}

#[cfg(test)]
mod tests;
