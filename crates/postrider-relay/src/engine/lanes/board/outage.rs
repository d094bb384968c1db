//! Heads whose destination is down: one timer per destination, however many heads wait for it.
//!
//! With a timer per head, all of them would become due once per probe interval, and each would have
//! to be read again at the expense of the other destinations.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{Board, Fast};
use crate::destination::health::{DestinationHash, Wait};

/// Wait before the next head is tried, if a probe is due and the last head could not be the probe.
const NEXT_CANDIDATE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Outages {
    by_destination: Fast<DestinationHash, Outage>,
    /// When to look at each destination. An entry is outdated if its outage has another time by
    /// now.
    looks: BinaryHeap<Reverse<(Instant, DestinationHash)>>,
}

#[derive(Debug)]
struct Outage {
    /// Heads that wait, each to be the probe in turn.
    heads: VecDeque<i64>,
    /// The head that was picked last.
    picked: Option<i64>,
    look_at: Instant,
    look_every: Duration,
}

impl Outages {
    /// Returns when the next destination is due for a look.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.looks.peek().map(|Reverse((at, _))| *at)
    }

    fn look_at(&mut self, destination: DestinationHash, at: Instant) {
        if let Some(outage) = self.by_destination.get_mut(&destination) {
            outage.look_at = at;
            self.looks.push(Reverse((at, destination)));
        }
    }
}

impl Board {
    /// Queues a head that waits for its destination.
    pub(super) fn wait_behind_outage(&mut self, id: i64, wait: Wait, now: Instant) {
        let Wait { destination, delay, probe_due, .. } = wait;
        if let Some(outage) = self.outages.by_destination.get_mut(&destination) {
            outage.heads.push_back(id);
            return;
        }
        let heads = VecDeque::from([id]);
        let outage = Outage { heads, picked: None, look_at: now, look_every: delay };
        self.outages.by_destination.insert(destination, outage);
        let look_in = if probe_due { NEXT_CANDIDATE } else { delay };
        self.outages.look_at(destination, now + look_in);
    }

    /// Makes the next head due for each destination that is to be looked at: it becomes a probe, or
    /// finds out that none is needed.
    pub(super) fn pick_probes(&mut self, now: Instant) {
        while let Some(Reverse((at, destination))) = self.outages.looks.peek().copied()
            && at <= now
        {
            self.outages.looks.pop();
            let outage = self.outages.by_destination.get_mut(&destination);
            let Some(outage) = outage.filter(|outage| outage.look_at == at) else { continue };
            let slots = &self.slots;
            // Some are gone, or became due in another way.
            let waits = |id: &i64| {
                let slot = slots.get(id).filter(|slot| !slot.loaded);
                slot.is_some_and(|slot| slot.behind == Some(destination))
            };
            let next = std::iter::from_fn(|| outage.heads.pop_front()).find(waits);
            let Some(id) = next else {
                self.outages.by_destination.remove(&destination);
                continue;
            };
            outage.picked = Some(id);
            let again_at = now + outage.look_every;
            self.outages.look_at(destination, again_at);
            self.due.push(Reverse((now, id)));
        }
    }

    /// Handles a waiting head that was read again. If its destination is back, all other heads
    /// become due as well.
    pub(super) fn probe_picked(
        &mut self,
        id: i64,
        behind: Option<DestinationHash>,
        wait: Option<Wait>,
        now: Instant,
    ) {
        let Some((destination, outage)) = self.outage_of(id, behind) else { return };
        match wait.filter(|wait| wait.destination == destination) {
            Some(Wait { delay, probe_due, expires_in, .. }) => {
                outage.look_every = delay;
                let is_sent = self.slots.get(&id).is_some_and(|slot| slot.loaded);
                let is_probe = is_sent && expires_in != Some(Duration::ZERO);
                let look_in = if probe_due && !is_probe { NEXT_CANDIDATE } else { delay };
                self.outages.look_at(destination, now + look_in);
            }
            None => {
                let outage = self.outages.by_destination.remove(&destination);
                let heads = outage.into_iter().flat_map(|outage| outage.heads);
                self.due.extend(heads.map(|id| Reverse((now, id))));
            }
        }
    }

    /// Handles a waiting head that is gone: the next one is looked at.
    pub(super) fn probe_gone(&mut self, id: i64, behind: Option<DestinationHash>, now: Instant) {
        if let Some((destination, _)) = self.outage_of(id, behind) {
            self.outages.look_at(destination, now);
        }
    }

    /// Returns the outage for which this head was picked.
    fn outage_of(
        &mut self,
        id: i64,
        behind: Option<DestinationHash>,
    ) -> Option<(DestinationHash, &mut Outage)> {
        let destination = behind?;
        let outage = self.outages.by_destination.get_mut(&destination)?;
        (outage.picked.take_if(|picked| *picked == id)).map(|_| (destination, outage))
    }
}
