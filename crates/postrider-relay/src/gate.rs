//! The gate in front of a destination, which decides when each event may be sent.
//!
//! A sink that sends one request per event acquires a permit for each. The breaker, the window and
//! the rate limit are thereby checked before every request, and learn of every outcome as soon as
//! it arrives.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use postrider::Event;
use tokio::time::Instant;

use crate::courier::Courier;
use crate::health::Entry;
use crate::sink::{Batch, Outcome};
use crate::trace::Spans;

/// The gate of one delivery call.
pub(crate) struct Gate<'a> {
    courier: &'a Courier,
    /// When the call's events were claimed, as far as that is known.
    claimed: Instant,
    spans: &'a Spans,
    /// Events whose outcome has already been recorded.
    told: Mutex<HashSet<i64>>,
}

impl<'a> Gate<'a> {
    pub(crate) fn new(courier: &'a Courier, claimed: Instant, spans: &'a Spans) -> Self {
        Self { courier, claimed, spans, told: Mutex::default() }
    }

    pub(crate) async fn enter(
        &'a self,
        batch: &Batch<'a>,
        event: &'a Event,
        destination: &str,
    ) -> Option<Place<'a>> {
        let health = &self.courier.health;
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
                    () = self.courier.abort.cancelled() => return None,
                    () = moved => {}
                    () = tokio::time::sleep_until(batch.deadline) => return None,
                }
                entry = ask()?;
            }
        }
        if entry == Entry::Open {
            return None;
        }
        let mut place = self.place(event, destination);
        if !self.courier.wait_for_rate(batch.deadline).await {
            return None;
        }
        if let Some(inside) = &mut place.inside {
            inside.sent_at = Instant::now();
        }
        Some(place)
    }

    /// Same as [`enter`](Gate::enter), but returns `None` instead of waiting.
    pub(crate) fn try_enter(&'a self, event: &'a Event, destination: &str) -> Option<Place<'a>> {
        let now = Instant::now();
        if self.courier.health.enter(destination, event.id, now) != Entry::Go {
            return None;
        }
        let place = self.place(event, destination);
        let rate = self.courier.config.rate.as_ref();
        let allowed = rate.is_none_or(|rate| rate.take(Duration::ZERO, now).is_some());
        allowed.then_some(place)
    }

    fn place(&'a self, event: &'a Event, destination: &str) -> Place<'a> {
        let destination = destination.to_owned();
        Place { inside: Some(Inside { gate: self, event, destination, sent_at: Instant::now() }) }
    }

    /// Returns whether the outcome of this event was recorded when it arrived.
    pub(crate) fn was_told(&self, event: &Event) -> bool {
        self.told().contains(&event.id)
    }

    /// Returns whether the sink has not reported any outcome yet.
    pub(crate) fn told_nothing(&self) -> bool {
        self.told().is_empty()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, HashSet<i64>> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A permit to send one event to a destination. Dropping it releases the permit.
#[must_use = "the place is given back when it is dropped"]
pub struct Place<'a> {
    inside: Option<Inside<'a>>,
}

struct Inside<'a> {
    gate: &'a Gate<'a>,
    event: &'a Event,
    destination: String,
    sent_at: Instant,
}

impl Place<'_> {
    /// Creates a permit that is not counted.
    pub(crate) fn free() -> Self {
        Self { inside: None }
    }

    /// Records the outcome of the event and releases the permit.
    pub fn leave(self, outcome: &Outcome) {
        let Some(inside) = &self.inside else { return };
        let Inside { gate, event, destination, sent_at } = inside;
        gate.courier.heard(destination, event, outcome, gate.claimed.elapsed(), *sent_at);
        gate.spans.end(event, outcome, *sent_at);
        gate.told().insert(event.id);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(inside) = &self.inside {
            inside.gate.courier.health.leave(&inside.destination, 1);
        }
    }
}
