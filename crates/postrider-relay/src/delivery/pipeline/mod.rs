//! Delivers one batch: examine → hold back → send → decide. The same in every claim mode.

mod hold_back;
mod record;
mod report;
mod send;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use postrider_store::{Event, Key};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::alerts::Alerts;
use crate::config::{FailingKey, OutboxConfig};
use crate::delivery::gate::DeliveryGate;
use crate::delivery::trace::{Spans, Tracer};
use crate::destination::Health;
use crate::lease::{Held, LeaseKeeper};
use crate::observations::Observations;
use crate::outcome::Outcome;
use crate::policy::{self, Settlement, decide, examine};
use crate::sink::Answers;
use crate::telemetry::{self, label};
use send::CallContext;

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

/// An event, and what becomes of it.
type Settled = (Event, Settlement);

/// What came back from the sink, one outcome per event.
struct Sent {
    outcomes: Vec<Outcome>,
    /// By row id.
    answers: HashMap<i64, String>,
    took: Duration,
}

/// The result of a batch.
pub(crate) struct BatchResult {
    /// Sorted by ascending id.
    pub(crate) settled: Vec<Settled>,
    pub(crate) took: Duration,
}

impl Pipeline {
    /// Delivers a batch and decides the settlement of each event.
    pub(crate) async fn deliver_batch(
        &self,
        held: &Held,
        events: Vec<Event>,
        mode: DeliveryMode,
    ) -> BatchResult {
        let started = Instant::now();
        self.observe_clock(&events, started);
        let (mut good, mut settled) = self.examine(events, mode.keep_order);
        let (probes, held_back) = self.hold_back(&mut good, mode, started);
        let Sent { outcomes, answers, took } = self.send(held, &mut good, mode, started).await;
        drop(probes);
        settled.extend(self.decide_all(good, outcomes, answers));
        settled.extend(held_back.into_iter().map(|event| self.put_off(event)));
        // Sorted by id, so that two settles that meet in the database wait instead of deadlocking.
        settled.sort_by_key(|(event, _)| event.id);
        BatchResult { settled, took }
    }

    /// Compares the database's clock, as the claim returned it, with this machine's.
    fn observe_clock(&self, events: &[Event], now: Instant) {
        if let Some(newest) = events.iter().map(|event| event.claimed_at).max() {
            self.observations.clock.record(newest, Utc::now(), now);
        }
    }

    /// Separates the events to deliver from those that must not be delivered, or not now.
    fn examine(&self, events: Vec<Event>, keep_order: bool) -> (Vec<Event>, Vec<Settled>) {
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
                None if is_behind => settled.push((event, policy::put_off(Duration::ZERO))),
                None => good.push(event),
                Some(settlement) => {
                    self.report_integrity(&event, &settlement);
                    stopped.extend(keep_order.then(|| Key::from(&event)));
                    settled.push((event, settlement));
                }
            }
        }
        (good, settled)
    }

    /// Sends events to the sink and records what came back: spans, breakers, metrics.
    async fn send(
        &self,
        held: &Held,
        events: &mut [Event],
        mode: DeliveryMode,
        started: Instant,
    ) -> Sent {
        let spans = Spans::begin(self.tracer.as_ref(), &self.config, events);
        let gate = DeliveryGate::new(self, started, &spans);
        let in_flight = self.observations.meter.fly(events.len());
        let answers = self.config.keeps_answers().then(Answers::default);
        let deadline = Instant::now() + self.config.deliver_timeout;
        let keep_order = mode.keep_order;
        let context = CallContext { held, keep_order, deadline, answers: answers.as_ref() };
        let outcomes = self.deliver(&context, events, &gate).await;
        drop(in_flight);
        let took = started.elapsed();
        self.record_all(events, &outcomes, &gate, took, started);
        for (event, outcome) in events.iter().zip(&outcomes).filter(|_| spans.are_traced()) {
            if !gate.was_recorded(event) {
                spans.end(event, outcome, started);
            }
        }
        drop(gate);
        spans.restore(events);
        let window = if self.health.any_limited() { self.health.window_min() } else { None };
        metrics::gauge!(telemetry::DESTINATION_WINDOW, &self.labels())
            .set(window.map_or(0.0, f64::from));
        let answers = answers.map(Answers::into_map).unwrap_or_default();
        Sent { outcomes, answers, took }
    }

    fn decide_all(
        &self,
        events: Vec<Event>,
        outcomes: Vec<Outcome>,
        mut answers: HashMap<i64, String>,
    ) -> impl Iterator<Item = Settled> {
        events.into_iter().zip(outcomes).map(move |(event, outcome)| {
            let mut settlement = self.decide(&event, &outcome);
            // Usually there are no answers at all, so the lookup is skipped.
            if let Settlement::Delivered { answer } = &mut settlement
                && !answers.is_empty()
            {
                *answer = answers.remove(&event.id);
            }
            (event, settlement)
        })
    }

    /// Puts off an event whose destination is down. If the probe of this batch succeeded, it is due
    /// at once.
    fn put_off(&self, event: Event) -> Settled {
        let delay = self.defer(&self.destination(&event), &event, Instant::now());
        (event, policy::put_off(delay))
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

    fn labels(&self) -> [(&'static str, String); 2] {
        let (outbox, sink) = (self.config.outbox.name(), self.config.sink.name());
        [(label::OUTBOX, outbox.to_owned()), (label::SINK, sink.to_owned())]
    }
}
