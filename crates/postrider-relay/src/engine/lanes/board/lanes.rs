//! Lanes that are served, left or suspected.

use std::collections::VecDeque;

use postrider_store::{Event, LaneSet};

use super::Board;

impl Board {
    /// Returns the lanes that are served.
    pub(in crate::engine::lanes) fn lanes(&self) -> LaneSet {
        self.lanes.without(self.leaving)
    }

    /// Sets the relay's lanes. New ones are read from the beginning.
    pub(in crate::engine::lanes) fn serve(&mut self, lanes: LaneSet) {
        if !lanes.without(self.lanes).is_empty() {
            self.sweep = true;
            self.read_from = 0;
        }
        self.lanes = lanes;
    }

    /// Starts nothing new in these lanes, and forgets what waits in them.
    pub(in crate::engine::lanes) fn leave(&mut self, lanes: LaneSet) {
        self.leaving = lanes;
        let gone = |lane: u8| lanes.contains(lane);
        self.slots.retain(|_, slot| slot.loaded || !gone(slot.lane));
        // The lane of a parked key is not always known; the key stays parked in any lane.
        self.blocked.retain(|_, blocked| blocked.parked.is_some() || !gone(blocked.lane));
        self.hidden = self.blocked.values().filter(|blocked| blocked.hidden).count();
        let blocked = &self.blocked;
        self.catching_up.retain(|key| blocked.contains_key(key));
    }

    /// Returns the lanes that are being left.
    pub(in crate::engine::lanes) fn leaving(&self) -> LaneSet {
        self.leaving
    }

    /// Returns the lanes that are being left in which nothing is in flight any longer.
    pub(in crate::engine::lanes) fn left(&self) -> LaneSet {
        self.leaving.iter().filter(|lane| self.lane_load[usize::from(*lane)] == 0).collect()
    }

    /// Removes lanes that now belong to other relays.
    pub(in crate::engine::lanes) fn forget(&mut self, lanes: LaneSet) {
        self.lanes = self.lanes.without(lanes);
        self.leaving = self.leaving.without(lanes);
    }

    /// Makes the events of these lanes be sent alone.
    pub(in crate::engine::lanes) fn suspect(&mut self, lanes: LaneSet) {
        self.suspected = lanes;
        // Events that are already queued go first, so that later ones do not overtake them.
        let alone = self.alone();
        for queue in 0..alone {
            let queued = std::mem::take(&mut self.queues[queue]);
            let slots = &self.slots;
            let (moved, kept): (VecDeque<Event>, VecDeque<Event>) =
                queued.into_iter().partition(|event| {
                    slots.get(&event.id).is_some_and(|slot| lanes.contains(slot.lane))
                });
            self.queues[queue] = kept;
            self.queues[alone].extend(moved);
        }
    }

    /// Returns whether events of these lanes are queued or in flight.
    pub(in crate::engine::lanes) fn is_loaded(&self, lanes: LaneSet) -> bool {
        lanes.iter().any(|lane| self.lane_load[usize::from(lane)] > 0)
    }
}
