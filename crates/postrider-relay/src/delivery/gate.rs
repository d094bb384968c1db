//! The gate in front of a destination, which decides when each event may be sent.
//!
//! A sink that sends one request per event acquires a permit for each. The breaker, the window and
//! the rate limit are thereby checked before every request, and learn of every outcome as soon as
//! it arrives.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use postrider_store::Event;
use tokio::time::Instant;

use crate::delivery::pipeline::Pipeline;
use crate::delivery::trace::Spans;
use crate::destination::health::Entry;
use crate::outcome::Outcome;
use crate::sink::{Batch, CountedPermit, Gate, Permit};

/// The gate of one delivery call.
pub(crate) struct DeliveryGate<'a> {
    pipeline: &'a Pipeline,
    /// When the call's events were claimed, as far as that is known.
    claimed: Instant,
    spans: &'a Spans,
    /// Events whose outcome has already been recorded.
    reported: Mutex<HashSet<i64>>,
}

impl<'a> DeliveryGate<'a> {
    pub(crate) fn new(pipeline: &'a Pipeline, claimed: Instant, spans: &'a Spans) -> Self {
        Self { pipeline, claimed, spans, reported: Mutex::default() }
    }

    /// Same as [`enter`](Gate::enter), but returns `None` instead of waiting.
    pub(crate) fn try_enter(&'a self, event: &'a Event, destination: &str) -> Option<Permit<'a>> {
        let now = Instant::now();
        if self.pipeline.health.enter(destination, event.id, now) != Entry::Go {
            return None;
        }
        let permit = self.permit(event, destination);
        let rate = self.pipeline.config.rate.as_ref();
        let allowed = rate.is_none_or(|rate| rate.take(Duration::ZERO, now).is_some());
        allowed.then(|| Permit::counted(permit))
    }

    fn permit(&'a self, event: &'a Event, destination: &str) -> SentEvent<'a> {
        let destination = destination.to_owned();
        SentEvent { gate: self, event, destination, sent_at: Instant::now() }
    }

    /// Returns whether the outcome of this event was recorded when it arrived.
    pub(crate) fn was_recorded(&self, event: &Event) -> bool {
        self.reported().contains(&event.id)
    }

    /// Returns whether the sink has not reported any outcome yet.
    pub(crate) fn recorded_nothing(&self) -> bool {
        self.reported().is_empty()
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, HashSet<i64>> {
        self.reported.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[async_trait]
impl Gate for DeliveryGate<'_> {
    async fn enter<'a>(
        &'a self,
        batch: &Batch<'a>,
        event: &'a Event,
        destination: &str,
    ) -> Option<Permit<'a>> {
        let health = &self.pipeline.health;
        let ask = || batch.may_start().then(|| health.enter(destination, event.id, Instant::now()));
        let mut entry = ask()?;
        while entry == Entry::Full {
            // Checks again after subscribing, so that a permit released in between is not missed.
            let moved = health.moved();
            tokio::pin!(moved);
            moved.as_mut().enable();
            entry = ask()?;
            if entry == Entry::Full {
                tokio::select! {
                    biased;
                    () = self.pipeline.abort.cancelled() => return None,
                    () = moved => {}
                    () = tokio::time::sleep_until(batch.deadline) => return None,
                }
                entry = ask()?;
            }
        }
        if entry == Entry::Open {
            return None;
        }
        let mut permit = self.permit(event, destination);
        if !self.pipeline.wait_for_rate(batch.deadline).await {
            return None;
        }
        permit.sent_at = Instant::now();
        Some(Permit::counted(permit))
    }
}

/// An event that may be sent, or is on its way.
struct SentEvent<'a> {
    gate: &'a DeliveryGate<'a>,
    event: &'a Event,
    destination: String,
    sent_at: Instant,
}

impl CountedPermit for SentEvent<'_> {
    fn record(&self, outcome: &Outcome) {
        let Self { gate, event, destination, sent_at } = self;
        gate.pipeline.record(destination, event, outcome, gate.claimed.elapsed(), *sent_at);
        gate.spans.end(event, outcome, *sent_at);
        gate.reported().insert(event.id);
    }
}

impl Drop for SentEvent<'_> {
    fn drop(&mut self) {
        self.gate.pipeline.health.leave(&self.destination, 1);
    }
}
