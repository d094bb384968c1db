//! Events whose destination is down: who waits, and who is sent as a probe.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use foldhash::fast::FixedState;
use postrider_store::{Event, Key};
use tokio::time::Instant;

use super::{DeliveryMode, Pipeline};
use crate::destination::health::{DestinationHash, Health, Wait};
use crate::policy::expiry;
use crate::telemetry;

/// Probes in flight. Dropping it ends them: a probe whose batch was dropped must not keep the next
/// one from being sent.
pub(super) struct Probes<'a> {
    health: &'a Health,
    sent: Vec<(String, i64)>,
}

impl Drop for Probes<'_> {
    fn drop(&mut self) {
        for (destination, id) in &self.sent {
            self.health.end_probe(destination, *id);
        }
    }
}

impl Pipeline {
    /// Returns the destination of an event. If the sink panics here, after the delivery, the batch
    /// must not be delivered over and over.
    pub(super) fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        // While the server is down, it decides for all destinations behind it.
        let server = self.health.down_server();
        server.map_or_else(|| self.own_destination(event), Cow::Borrowed)
    }

    pub(super) fn own_destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let sink = &self.config.sink;
        catch_unwind(AssertUnwindSafe(|| sink.destination(event)))
            .unwrap_or_else(|_| Cow::Borrowed(sink.name()))
    }

    pub(super) fn defer(&self, destination: &str, event: &Event, now: Instant) -> Duration {
        self.health.defer(destination, event.id, now, Some(self.deferral_max))
    }

    /// Removes the events of destinations that are down, so that they can be sent as a separate
    /// batch.
    pub(crate) fn split_off_down(&self, events: &mut Vec<Event>) -> Vec<Event> {
        let now = Instant::now();
        let down = |event: &mut Event| self.health.view(&self.destination(event), now).open;
        events.extract_if(.., down).collect()
    }

    /// Returns the wait of an event whose destination is down; `None` if it may be sent.
    pub(crate) fn wait(&self, event: &Event, now: Instant) -> Option<Wait> {
        if !self.health.holds_back() {
            return None;
        }
        let destination = self.destination(event);
        let (delay, probe_due) = self.health.wait(&destination, event.id, now)?;
        if !probe_due {
            metrics::counter!(telemetry::DESTINATION_HELD_BACK, &self.labels()).increment(1);
        }
        let delay = delay.min(self.deferral_max);
        let expires_at = expiry(event, &self.config.preset);
        let expires_in = expires_at.map(|at| (at - event.claimed_at).to_std().unwrap_or_default());
        let destination = FixedState::default().hash_one(&*destination) as DestinationHash;
        Some(Wait { destination, delay, probe_due, expires_in })
    }

    /// Removes the events of destinations that are down, except for one probe each.
    pub(super) fn hold_back(
        &self,
        good: &mut Vec<Event>,
        DeliveryMode { keep_order, may_probe }: DeliveryMode,
        now: Instant,
    ) -> (Probes<'_>, Vec<Event>) {
        let mut probes = Probes { health: &self.health, sent: Vec::new() };
        if !self.health.holds_back() {
            return (probes, Vec::new());
        }
        let (mut waiting, mut keys) = (HashMap::<String, Vec<i64>>::new(), HashSet::new());
        // Looked up once per event: a destination that depends on the event's fields is not free to
        // compute.
        let mut is_down = Vec::with_capacity(good.len());
        for event in good.iter() {
            // If order is kept, only the first event of a key may be sent.
            let candidate = may_probe && (!keep_order || keys.insert(event.key()));
            let destination = self.destination(event);
            is_down.push(self.health.view(&destination, now).open);
            if is_down.last() == Some(&true) {
                let ids = waiting.entry(destination.into_owned()).or_default();
                ids.extend(candidate.then_some(event.id));
            }
        }
        for (destination, ids) in &waiting {
            if let Some(id) = self.health.appoint(destination, ids, now) {
                probes.sent.push((destination.clone(), id));
            }
        }
        let is_probe = |id| probes.sent.iter().any(|(_, probe)| *probe == id);
        // Events behind one that waits must wait too, even if their own destination is up.
        let mut stopped: HashSet<Key> = HashSet::new();
        let mut is_down = is_down.into_iter();
        let waits = |event: &mut Event| {
            let down = is_down.next() == Some(true) && !is_probe(event.id);
            if keep_order && down {
                stopped.insert(Key::from(&*event));
            }
            down || (!stopped.is_empty() && stopped.contains(&Key::from(&*event)))
        };
        let held_back: Vec<Event> = good.extract_if(.., waits).collect();
        let labels = self.labels();
        metrics::counter!(telemetry::DESTINATION_HELD_BACK, &labels)
            .increment(held_back.len() as u64);
        metrics::counter!(telemetry::DESTINATION_PROBES, &labels)
            .increment(probes.sent.len() as u64);
        (probes, held_back)
    }
}
