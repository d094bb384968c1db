//! The gate before a destination: who may be sent, and when.
//!
//! A sink that sends one request per event enters each, so that the breaker, the window and the rate
//! limit are asked before every request and hear of every answer when it comes.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use postrider::Event;
use tokio::time::Instant;

use crate::courier::Courier;
use crate::health::Entry;
use crate::sink::{Batch, Outcome};
use crate::trace::Spans;

/// The gate of one call.
pub(crate) struct Gate<'a> {
    courier: &'a Courier,
    /// When the call's events were claimed, as far as it is known.
    claimed: Instant,
    spans: &'a Spans,
    /// Events whose answer was told already.
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
            // Asks again once it listens: a place that became free in between is not missed.
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

    /// As [`enter`](Gate::enter), where that needs no waiting.
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

    /// Whether the answer for this event was told when it came.
    pub(crate) fn was_told(&self, event: &Event) -> bool {
        self.told().contains(&event.id)
    }

    /// Whether the sink has told no answer at all.
    pub(crate) fn told_nothing(&self) -> bool {
        self.told().is_empty()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, HashSet<i64>> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A place at a destination, for one event under way. Dropping it gives it back.
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
    /// Where nobody counts.
    pub(crate) fn free() -> Self {
        Self { inside: None }
    }

    /// The destination answered.
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
