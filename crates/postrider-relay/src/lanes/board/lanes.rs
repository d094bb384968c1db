//! Lanes come and go: which are served, left, suspected.

use std::collections::VecDeque;

use postrider::Event;
use postrider::store::LaneSet;

use super::Board;

impl Board {
    /// The lanes that are served.
    pub(in crate::lanes) fn lanes(&self) -> LaneSet {
        self.lanes.without(self.leaving)
    }

    /// These are the relay's lanes. New ones are read from the beginning.
    pub(in crate::lanes) fn serve(&mut self, lanes: LaneSet) {
        if !lanes.without(self.lanes).is_empty() {
            self.sweep = true;
            self.read_from = 0;
        }
        self.lanes = lanes;
    }

    /// Starts nothing new in these lanes, and forgets what waits in them.
    pub(in crate::lanes) fn leave(&mut self, lanes: LaneSet) {
        self.leaving = lanes;
        let gone = |lane: u8| lanes.contains(lane);
        self.slots.retain(|_, slot| slot.loaded || !gone(slot.lane));
        // Of a parked key the lane is not always known; it stays parked wherever it is.
        self.blocked.retain(|_, blocked| blocked.parked.is_some() || !gone(blocked.lane));
        self.hidden = self.blocked.values().filter(|blocked| blocked.hidden).count();
        let blocked = &self.blocked;
        self.catching_up.retain(|key| blocked.contains_key(key));
    }

    /// The lanes to be left.
    pub(in crate::lanes) fn leaving(&self) -> LaneSet {
        self.leaving
    }

    /// The lanes to be left in which nothing is in flight any more.
    pub(in crate::lanes) fn left(&self) -> LaneSet {
        self.leaving.iter().filter(|lane| self.lane_load[usize::from(*lane)] == 0).collect()
    }

    /// These lanes are somebody else's from now on.
    pub(in crate::lanes) fn forget(&mut self, lanes: LaneSet) {
        self.lanes = self.lanes.without(lanes);
        self.leaving = self.leaving.without(lanes);
    }

    /// Events of these lanes are sent alone.
    pub(in crate::lanes) fn suspect(&mut self, lanes: LaneSet) {
        self.suspected = lanes;
        // What is queued already goes first: those behind it must not overtake it.
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

    /// Whether events of these lanes are queued or in flight.
    pub(in crate::lanes) fn is_loaded(&self, lanes: LaneSet) -> bool {
        lanes.iter().any(|lane| self.lane_load[usize::from(lane)] > 0)
    }
}
