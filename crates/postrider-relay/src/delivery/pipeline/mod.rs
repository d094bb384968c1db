//! Delivers one batch: verify → hold back → deliver → decide. The same in every claim mode.

mod record;
mod report;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use foldhash::fast::FixedState;
use futures_util::FutureExt;
use postrider::Event;
use postrider::store::Key;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::alerts::Alerts;
use crate::config::{FailingKey, OutboxConfig};
use crate::delivery::gate::DeliveryGate;
use crate::delivery::trace::{Spans, Tracer};
use crate::destination::health::{DestinationHash, Health, Wait};
use crate::lease::{Held, LeaseKeeper};
use crate::observations::Observations;
use crate::outcome::{Cause, Outcome};
use crate::policy::{Settlement, decide, examine, expiry};
use crate::sink::{Answers, Batch, Gate};
use crate::telemetry::{self, label};

/// Time that a sink gets beyond its deadline to return.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);

pub(crate) struct Pipeline {
    pub(crate) config: OutboxConfig,
    pub(crate) lease_keeper: Arc<LeaseKeeper>,
    pub(crate) health: Arc<Health>,
    pub(crate) alerts: Alerts,
    pub(crate) observations: Arc<Observations>,
    /// Receives spans, if traces are configured.
    pub(crate) tracer: Option<Tracer>,
    /// Destinations that refuse the relay's credentials.
    pub(crate) refusing: Mutex<HashSet<String>>,
    /// Notified when a destination that was down accepts events again.
    pub(crate) came_back: Notify,
    /// Maximum wait of an event whose destination is down before it is checked again: the
    /// destination may be back, and the notification may have come while the event was in flight.
    pub(crate) deferral_max: Duration,
    /// Cancelled when the stop deadline has passed: no delivery starts, and nothing is waited for.
    pub(crate) abort: CancellationToken,
}

/// How a batch is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeliveryMode {
    /// Sends an event of a key only after the previous one was delivered.
    pub(crate) keep_order: bool,
    /// Allows probes to destinations that are down, which can take as long as a timeout.
    pub(crate) may_probe: bool,
}

/// Parameters shared by all calls of one batch.
struct Order<'a> {
    held: &'a Held,
    keep_order: bool,
    deadline: Instant,
    /// Receives what destinations answered, if the outbox keeps it.
    answers: Option<&'a Answers>,
}

/// Probes in flight. Dropping it ends them: a probe whose batch was dropped must not keep the next
/// one from being sent.
struct Probes<'a> {
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

/// The result of a batch.
pub(crate) struct BatchResult {
    /// Sorted by ascending id.
    pub(crate) settled: Vec<(Event, Settlement)>,
    pub(crate) took: Duration,
}

impl Pipeline {
    /// Verifies a batch, delivers it and decides the settlement of each event.
    pub(crate) async fn carry(
        &self,
        held: &Held,
        events: Vec<Event>,
        mode: DeliveryMode,
    ) -> BatchResult {
        let DeliveryMode { keep_order, .. } = mode;
        let started = Instant::now();
        if let Some(newest) = events.iter().map(|event| event.claimed_at).max() {
            self.observations.clock.record(newest, Utc::now(), started);
        }
        let (mut good, mut settled) = (Vec::with_capacity(events.len()), Vec::new());
        // A dead event stops its key until its dead letter is written, so the events behind it stop
        // too. If keys are parked, that includes events that are dead themselves: an operator
        // decides about them.
        let parks = keep_order && self.config.failing_key == FailingKey::Park;
        let mut stopped: HashSet<Key> = HashSet::new();
        for event in events {
            let is_behind = !stopped.is_empty() && stopped.contains(&Key::from(&event));
            let dead = examine(&event, &self.config.preset).filter(|_| !(is_behind && parks));
            match dead {
                None if is_behind => {
                    let behind = Settlement::Deferred { delay: Duration::ZERO, error: None };
                    settled.push((event, behind));
                }
                None => good.push(event),
                Some(settlement) => {
                    self.report_integrity(&event, &settlement);
                    stopped.extend(keep_order.then(|| Key::from(&event)));
                    settled.push((event, settlement));
                }
            }
        }
        let (probes, held_back) = self.hold_back(&mut good, mode, started);
        let spans = Spans::begin(self.tracer.as_ref(), &self.config, &mut good);
        let gate = DeliveryGate::new(self, started, &spans);
        let flight = self.observations.meter.fly(good.len());
        let answers = self.config.keeps_answers().then(Answers::default);
        let deadline = Instant::now() + self.config.deliver_timeout;
        let order = Order { held, keep_order, deadline, answers: answers.as_ref() };
        let outcomes = self.deliver(&order, &good, &gate).await;
        drop(flight);
        let took = started.elapsed();
        self.record_all(&good, &outcomes, &gate, took, started);
        for (event, outcome) in good.iter().zip(&outcomes).filter(|_| spans.are_traced()) {
            if !gate.was_recorded(event) {
                spans.end(event, outcome, started);
            }
        }
        drop(gate);
        spans.restore(&mut good);
        drop(probes);
        let window = if self.health.any_limited() { self.health.window_min() } else { None };
        metrics::gauge!(telemetry::DESTINATION_WINDOW, &self.labels())
            .set(window.map_or(0.0, f64::from));
        let mut answers = answers.map(Answers::into_map).unwrap_or_default();
        for (event, outcome) in good.into_iter().zip(outcomes) {
            let mut settlement = self.decide(&event, &outcome);
            // Usually there are no answers at all, so the lookup is skipped.
            if let Settlement::Delivered { answer } = &mut settlement
                && !answers.is_empty()
            {
                *answer = answers.remove(&event.id);
            }
            settled.push((event, settlement));
        }
        for event in held_back {
            // The delay is zero if the probe in this batch succeeded.
            let delay = self.defer(&self.destination(&event), &event, Instant::now());
            settled.push((event, Settlement::Deferred { delay, error: None }));
        }
        // Sorted by id, so that two settles that meet in the database wait instead of deadlocking.
        settled.sort_by_key(|(event, _)| event.id);
        BatchResult { settled, took }
    }

    /// Returns the destination of an event. If the sink panics here, after the delivery, the batch
    /// must not be delivered over and over.
    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        // While the server is down, it decides for all destinations behind it.
        let server = self.health.down_server();
        server.map_or_else(|| self.own_destination(event), Cow::Borrowed)
    }

    fn own_destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let sink = &self.config.sink;
        catch_unwind(AssertUnwindSafe(|| sink.destination(event)))
            .unwrap_or_else(|_| Cow::Borrowed(sink.name()))
    }

    fn defer(&self, destination: &str, event: &Event, now: Instant) -> Duration {
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
    fn hold_back(
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

    /// Decides the settlement of an event after its delivery.
    fn decide(&self, event: &Event, outcome: &Outcome) -> Settlement {
        if *outcome == Outcome::Delivered {
            // Independent of the destination's health.
            return Settlement::Delivered { answer: None };
        }
        let (destination, now) = (self.destination(event), Instant::now());
        let mut health = self.health.view(&destination, now);
        if health.open {
            health.probe_in = match outcome {
                Outcome::Untried => self.defer(&destination, event, now),
                _ => health.probe_in.min(self.deferral_max),
            };
        }
        let settlement = decide(outcome, event, &health, &self.config.preset, rand::random());
        self.observations.tally.decided(&settlement, now);
        settlement
    }

    /// Waits until the sink's rate limit allows one more event. Returns `false` if that is not
    /// before the deadline.
    pub(crate) async fn wait_for_rate(&self, deadline: Instant) -> bool {
        let Some(rate) = &self.config.rate else { return true };
        let now = Instant::now();
        match rate.take(deadline.saturating_duration_since(now), now) {
            None => false,
            Some(Duration::ZERO) => true,
            Some(wait) => {
                let slept = self.abort.run_until_cancelled(tokio::time::sleep(wait)).await;
                slept.is_some()
            }
        }
    }

    /// Delivers events. Returns one outcome per event, whatever the sink does.
    async fn deliver(
        &self,
        order: &Order<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        if events.is_empty() {
            return Vec::new();
        }
        // After the lease, another relay may already be working on these events.
        if !self.lease_keeper.holds(&order.held.lease) {
            return vec![Outcome::Untried; events.len()];
        }
        let started = Instant::now();
        // Events of destinations that are down have already been removed, so only a window or a
        // rate limit holds events back.
        let limited = self.config.rate.is_some() || self.health.has_window();
        let outcomes = if limited && !self.config.sink.enters_each() {
            self.deliver_in_waves(order, events, gate).await
        } else {
            self.deliver_all(order, events, gate).await
        };
        metrics::histogram!(telemetry::DELIVER_SECONDS,
            label::OUTBOX => self.config.outbox.name().to_owned())
        .record(started.elapsed().as_secs_f64());
        outcomes
    }

    /// Delivers events in one call, or one by one if the call fails as a whole.
    async fn deliver_all(
        &self,
        order: &Order<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        match self.call(order, events, gate).await {
            Ok(outcomes) => outcomes,
            Err(error) if events.len() == 1 => vec![Outcome::Retry { error }],
            Err(error) => {
                tracing::error!(outbox = self.config.outbox.name(), error, "one by one from here");
                self.deliver_each(order, events, gate).await
            }
        }
    }

    /// Delivers in calls no larger than the destinations' windows: a destination that has just come
    /// back gets one event, then two, then four.
    async fn deliver_in_waves(
        &self,
        order: &Order<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        let mut outcomes = Vec::with_capacity(events.len());
        let ours = || self.lease_keeper.holds(&order.held.lease);
        while let Some((first, rest)) = events[outcomes.len()..].split_first() {
            let batch = Batch::new(events, order.deadline).while_ours(&ours);
            let place = match stopped.contains(&first.key()) {
                true => None,
                false => gate.enter(&batch, first, &self.destination(first)).await,
            };
            let Some(place) = place else {
                // Events of a key behind one that was not sent are not sent either, if order is
                // kept.
                stopped.extend(order.keep_order.then_some(first.key()));
                outcomes.push(Outcome::Untried);
                continue;
            };
            let mut places = vec![place];
            for event in rest.iter().take_while(|event| !stopped.contains(&event.key())) {
                let Some(place) = gate.try_enter(event, &self.destination(event)) else { break };
                places.push(place);
            }
            let wave = &events[outcomes.len()..outcomes.len() + places.len()];
            let answers = self.deliver_all(order, wave, gate).await;
            for ((event, answer), place) in wave.iter().zip(&answers).zip(places) {
                place.leave(answer);
                let behind = order.keep_order && *answer != Outcome::Delivered;
                stopped.extend(behind.then_some(event.key()));
            }
            outcomes.extend(answers);
        }
        outcomes
    }

    /// Delivers each event by itself, after a call that failed as a whole: this finds the event
    /// that causes it, and the others do not spend attempts because of it.
    async fn deliver_each(
        &self,
        order: &Order<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        let mut outcomes = Vec::with_capacity(events.len());
        for event in events {
            let late =
                Instant::now() >= order.deadline || !self.lease_keeper.holds(&order.held.lease);
            if late || stopped.contains(&event.key()) {
                outcomes.push(Outcome::Untried);
                continue;
            }
            let answer = self.call(order, std::slice::from_ref(event), gate).await;
            let answer = answer.unwrap_or_else(|error| vec![Outcome::Retry { error }]);
            if order.keep_order && answer != [Outcome::Delivered] {
                stopped.insert(event.key());
            }
            outcomes.extend(answer);
        }
        outcomes
    }

    /// Calls the sink once; `Err` says why there is not one outcome per event.
    async fn call(
        &self,
        order: &Order<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Result<Vec<Outcome>, String> {
        let ours = || self.lease_keeper.holds(&order.held.lease);
        let batch = Batch::new(events, order.deadline).in_order(order.keep_order);
        let batch = batch.while_ours(&ours).through(gate).answered_in(order.answers);
        let call = self.config.sink.deliver(batch);
        let all = |outcome: Outcome| Ok(vec![outcome; events.len()]);
        tokio::select! {
            // An answer that arrived in time counts, however late it is polled.
            biased;
            () = self.abort.cancelled() => all(Outcome::Untried),
            answer = AssertUnwindSafe(call).catch_unwind() => match answer {
                Ok(outcomes) if outcomes.len() == events.len() => Ok(outcomes),
                Ok(outcomes) => Err(format!(
                    "the sink answered {} outcomes for {} events",
                    outcomes.len(), events.len()
                )),
                Err(_) => Err("the sink panicked".to_owned()),
            },
            () = tokio::time::sleep_until(order.deadline + DEADLINE_GRACE) => {
                all(Outcome::Down {
                    error: format!("no answer within {:?}", self.config.deliver_timeout),
                    retry_after: None,
                    credentials: false,
                    cause: Cause::Unknown,
                })
            }
        }
    }

    fn labels(&self) -> [(&'static str, String); 2] {
        let (outbox, sink) = (self.config.outbox.name(), self.config.sink.name());
        [(label::OUTBOX, outbox.to_owned()), (label::SINK, sink.to_owned())]
    }
}
