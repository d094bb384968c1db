//! What the owner of lanes remembers: which rows it knows, which keys wait, what goes next.
//!
//! Nothing in the database says that an event is being worked on, so this does. It is pure: rows,
//! outcomes and times go in; rows to send, ids to read again and keys to catch up come out.
//!
//! A key is *blocked* while its front event, the head, waits for its next try. Rows behind a head
//! are not kept but passed over: only the first one's id is remembered, and when the head is done,
//! the key catches up by reading its rows again.

mod admission;
mod intake;
mod outcomes;
mod parking;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use postrider::Event;
use postrider::store::{Key, LaneSet};
use tokio::time::Instant;

use crate::config::FailingKey;
use crate::health::Wait;

/// Rows passed over for a key after which the store is told to leave them out.
const HIDE_AFTER: u64 = 64;
/// Keys that the store leaves out at most: they go with every read.
const HIDDEN_MAX: usize = 1_000;
/// Rows that are queued or in flight; more are not read.
pub(super) const LOAD_ROWS_MAX: usize = 20_000;
/// The same after an idle time; each row that is delivered makes room for two more. Of a key whose first
/// event fails, all that was read of it is read in vain.
const LOAD_ROWS_FIRST: usize = 500;

/// A hash stands for its key: two keys that share one wait for each other, which breaks no order.
type KeyHash = u64;

/// The wait for a destination that is down, at a time.
type WaitOf = Box<dyn Fn(&Event, Instant) -> Option<Wait> + Send>;

/// A row that the owner knows.
#[derive(Debug)]
struct Slot {
    key: KeyHash,
    lane: u8,
    bytes: usize,
    /// Queued or in flight; otherwise a head that waits.
    loaded: bool,
}

/// A key that does not take its rows as they come.
#[derive(Debug, Default)]
struct Blocked {
    lane: u8,
    /// The event that waits or is tried again. Without one the key catches up, or is parked.
    head: Option<i64>,
    /// The first row that was passed over, and how many were.
    first_passed: Option<i64>,
    passed: u64,
    /// The store leaves its rows out.
    hidden: Option<Key>,
    parked: Option<Parked>,
}

/// How a key is known to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Parked {
    /// It is in the database since so many notes of that kind.
    Noted(u64),
    /// It is about to be.
    Pending,
}

impl Blocked {
    /// Nothing of it may be sent but its head.
    fn waits(&self) -> bool {
        self.head.is_some() || self.parked.is_some()
    }

    fn pass_over(&mut self, id: i64) {
        self.first_passed = Some(self.first_passed.map_or(id, |first| first.min(id)));
        self.passed += 1;
    }
}

/// A key that has rows to read again, from an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CatchUp {
    pub(super) key: Key,
    pub(super) from: i64,
}

/// Why an event is not done yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the head of its key, or on its own where keys do not wait.
    Waits,
    /// It is behind its key's head, and will be read again.
    PassedOver,
}

pub(super) struct Board {
    failing_key: FailingKey,
    hasher: RandomState,
    /// Asked of every row that is due: whether it waits for a destination that is down.
    wait: WaitOf,
    /// One per worker, then that of probes, and last the one of events that are sent alone.
    queues: Vec<VecDeque<Event>>,
    slots: HashMap<i64, Slot>,
    lanes: LaneSet,
    leaving: LaneSet,
    lane_load: [usize; 64],
    load_rows: usize,
    load_bytes: usize,
    /// Delivered since the last idle time.
    delivered_rows: usize,
    blocked: HashMap<KeyHash, Blocked>,
    hidden: usize,
    due: BinaryHeap<Reverse<(Instant, i64)>>,
    catching_up: BTreeMap<KeyHash, Key>,
    /// Largest id that was read.
    read_to: i64,
    /// Rows may have been left behind: read from the beginning.
    pub(super) sweep: bool,
    park_notes: u64,
    /// The reader stopped at a limit.
    pub(super) stalled: bool,
    /// Lanes in which an event is suspected to kill the process.
    suspected: LaneSet,
}

impl Board {
    pub(super) fn new(failing_key: FailingKey, workers: usize, wait: WaitOf) -> Self {
        Self {
            failing_key,
            hasher: RandomState::new(),
            wait,
            queues: (0..workers + 2).map(|_| VecDeque::new()).collect(),
            slots: HashMap::new(),
            lanes: LaneSet::NONE,
            leaving: LaneSet::NONE,
            lane_load: [0; 64],
            load_rows: 0,
            load_bytes: 0,
            delivered_rows: 0,
            blocked: HashMap::new(),
            hidden: 0,
            due: BinaryHeap::new(),
            catching_up: BTreeMap::new(),
            read_to: 0,
            sweep: false,
            park_notes: 0,
            stalled: false,
            suspected: LaneSet::NONE,
        }
    }

    fn hash(&self, event: &Event) -> KeyHash {
        self.hasher.hash_one(event.key())
    }

    fn hash_key(&self, key: &Key) -> KeyHash {
        self.hasher.hash_one((key.aggregate_type.as_str(), key.aggregate_id.as_str()))
    }

    // Lanes.

    /// The lanes that are served.
    pub(super) fn lanes(&self) -> LaneSet {
        self.lanes.without(self.leaving)
    }

    /// These are the relay's lanes. New ones are read from the beginning.
    pub(super) fn serve(&mut self, lanes: LaneSet) {
        self.sweep |= !lanes.without(self.lanes).is_empty();
        self.lanes = lanes;
    }

    /// Starts nothing new in these lanes, and forgets what waits in them.
    pub(super) fn leave(&mut self, lanes: LaneSet) {
        self.leaving = lanes;
        let gone = |lane: u8| lanes.contains(lane);
        self.slots.retain(|_, slot| slot.loaded || !gone(slot.lane));
        // Of a parked key the lane is not always known; it stays parked wherever it is.
        self.blocked.retain(|_, blocked| blocked.parked.is_some() || !gone(blocked.lane));
        self.hidden = self.blocked.values().filter(|blocked| blocked.hidden.is_some()).count();
        let blocked = &self.blocked;
        self.catching_up.retain(|key, _| blocked.contains_key(key));
    }

    /// The lanes to be left.
    pub(super) fn leaving(&self) -> LaneSet {
        self.leaving
    }

    /// The lanes to be left in which nothing is in flight any more.
    pub(super) fn left(&self) -> LaneSet {
        self.leaving.iter().filter(|lane| self.lane_load[usize::from(*lane)] == 0).collect()
    }

    /// These lanes are somebody else's from now on.
    pub(super) fn forget(&mut self, lanes: LaneSet) {
        self.lanes = self.lanes.without(lanes);
        self.leaving = self.leaving.without(lanes);
    }

    /// Events of these lanes are sent alone.
    pub(super) fn suspect(&mut self, lanes: LaneSet) {
        self.suspected = lanes;
    }

    /// Whether events of these lanes are queued or in flight.
    pub(super) fn is_loaded(&self, lanes: LaneSet) -> bool {
        lanes.iter().any(|lane| self.lane_load[usize::from(lane)] > 0)
    }

    /// The queue of events that are sent alone.
    fn alone(&self) -> usize {
        self.queues.len() - 1
    }

    /// The queue of events that destinations are probed with.
    pub(super) fn probes(&self) -> usize {
        self.queues.len() - 2
    }

    // Rows out.

    /// The next events of a queue, within the limits; one over-large event travels alone. Those of
    /// lanes to be left and behind a head are dropped.
    pub(super) fn take(&mut self, queue: usize, rows_max: usize, bytes_max: usize) -> Vec<Event> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < rows_max {
            let Some(event) = self.queues[queue].front() else { break };
            let Some(slot) = self.slots.get(&event.id) else {
                self.queues[queue].pop_front();
                continue;
            };
            let (id, key, lane, weight) = (event.id, slot.key, slot.lane, slot.bytes);
            // One that was queued when a later one of its key began to wait goes before that.
            let behind = self.blocked.get(&key).is_some_and(|blocked| {
                blocked.parked.is_some() || blocked.head.is_some_and(|head| head < id)
            });
            if self.leaving.contains(lane) || behind {
                self.queues[queue].pop_front();
                self.unload(id);
                self.slots.remove(&id);
                if let Some(blocked) = self.blocked.get_mut(&key).filter(|_| behind) {
                    blocked.pass_over(id);
                }
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

    /// The next event to be sent alone: of the first of each key, the one with the fewest crashes.
    /// An innocent one that was in flight beside the killer gets through, and is out of the way.
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

    /// Heads whose time has come, within the limits; one over-large event in any case.
    pub(super) fn due_heads(
        &mut self,
        now: Instant,
        rows_max: usize,
        bytes_max: usize,
    ) -> Vec<i64> {
        let (mut ids, mut bytes) = (Vec::new(), 0);
        while ids.len() < rows_max
            && let Some(Reverse((at, id))) = self.due.peek().copied()
            && at <= now
        {
            // Not one of a lane that was left, nor one that became due in another way.
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

    /// A read of heads failed: they are still due.
    pub(super) fn due_again(&mut self, ids: &[i64], at: Instant) {
        self.due.extend(ids.iter().map(|id| Reverse((at, *id))));
    }

    /// When the next head is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A destination is back: everything that waits is due.
    pub(super) fn all_due(&mut self, now: Instant) {
        self.due = self
            .slots
            .iter()
            .filter(|(_, slot)| !slot.loaded)
            .map(|(id, _)| Reverse((now, *id)))
            .collect();
    }

    /// Keys that have rows to read again, at most `max`, and the last id to read to.
    pub(super) fn catch_ups(&mut self, max: usize) -> Vec<CatchUp> {
        let mut found = Vec::new();
        while found.len() < max {
            let Some((hash, key)) = self.catching_up.pop_first() else { break };
            let Some(blocked) = self.blocked.get(&hash) else { continue };
            if blocked.waits() {
                continue;
            }
            match blocked.first_passed {
                Some(from) => found.push(CatchUp { key, from }),
                None => self.release(hash),
            }
        }
        found
    }

    /// A read for keys that catch up failed: they still have to.
    pub(super) fn catch_up_again(&mut self, asked: Vec<CatchUp>) {
        for catch_up in asked {
            let hash = self.hash_key(&catch_up.key);
            self.catching_up.insert(hash, catch_up.key);
        }
    }

    fn block(&mut self, key: KeyHash, lane: u8, id: i64) {
        if self.failing_key != FailingKey::Skip {
            let blocked = self.blocked.entry(key).or_default();
            blocked.lane = lane;
            blocked.head = Some(id);
        }
    }

    fn release(&mut self, key: KeyHash) {
        self.catching_up.remove(&key);
        if let Some(blocked) = self.blocked.remove(&key) {
            self.hidden -= usize::from(blocked.hidden.is_some());
        }
    }

    /// Lets a key go on whose name is not known: everything is read again.
    fn unblock_unknown(&mut self, key: KeyHash) {
        let passed = self
            .blocked
            .get(&key)
            .is_some_and(|blocked| blocked.first_passed.is_some() || blocked.hidden.is_some());
        self.sweep |= passed;
        self.release(key);
    }

    // Figures.

    fn unload(&mut self, id: i64) {
        if let Some(slot) = self.slots.get_mut(&id)
            && slot.loaded
        {
            slot.loaded = false;
            self.load_rows -= 1;
            self.load_bytes -= slot.bytes;
            self.lane_load[usize::from(slot.lane)] -= 1;
        }
    }

    /// Rows that are queued or in flight.
    pub(super) fn load_rows(&self) -> usize {
        self.load_rows
    }

    /// Their bytes.
    pub(super) fn load_bytes(&self) -> usize {
        self.load_bytes
    }

    /// Rows that may be queued or in flight.
    pub(super) fn load_rows_max(&self) -> usize {
        LOAD_ROWS_FIRST.saturating_add(self.delivered_rows.saturating_mul(2)).min(LOAD_ROWS_MAX)
    }

    /// A read found nothing new: with nothing under way, this is an idle time.
    pub(super) fn nothing_new(&mut self) {
        if self.load_rows == 0 {
            self.delivered_rows = 0;
        }
    }

    /// Rows that wait for their time.
    pub(super) fn waiting(&self) -> usize {
        self.slots.len() - self.load_rows
    }

    /// Keys that wait.
    pub(super) fn blocked_keys(&self) -> usize {
        self.blocked.len()
    }

    /// Ids above `low` that a read should not bring again.
    pub(super) fn known_above(&self, low: i64) -> Vec<i64> {
        if low >= self.read_to {
            return Vec::new();
        }
        self.slots.keys().copied().filter(|id| *id > low).collect()
    }

    /// Keys whose rows a read should leave out.
    pub(super) fn hidden_keys(&self) -> Vec<Key> {
        if self.hidden == 0 {
            return Vec::new();
        }
        self.blocked.values().filter_map(|blocked| blocked.hidden.clone()).collect()
    }

    /// Largest id that was read.
    pub(super) fn read_to(&self) -> i64 {
        self.read_to
    }

    /// The lane of a row.
    pub(super) fn lane_of(&self, id: i64) -> u8 {
        self.slots.get(&id).map_or(0, |slot| slot.lane)
    }

    /// Puts an event that was taken and not sent back to the front of its queue.
    pub(super) fn give_up(&mut self, event: &Event) {
        let alone = self.alone();
        self.queues[alone].push_front(event.clone());
    }

    /// Whether a queue has something to take.
    pub(super) fn has_work(&self, queue: usize) -> bool {
        !self.queues[queue].is_empty()
    }

    /// Whether the reader has something to do before its next poll.
    pub(super) fn wants_reader(&self) -> bool {
        self.stalled || self.catches_up() || !self.leaving.is_empty()
    }

    /// Whether keys have rows to read again.
    pub(super) fn catches_up(&self) -> bool {
        !self.catching_up.is_empty()
    }
}

#[cfg(test)]
mod tests;
