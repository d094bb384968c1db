//! The sink: where events go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use postrider::limits;
use postrider_store::Event;
use tokio::time::Instant;

use crate::destination::health::Health;
use crate::outcome::Outcome;
use crate::preset::Preset;

/// Why a sink cannot be used at all; `postrider run --check` finds it before the start.
#[derive(Debug, thiserror::Error)]
#[error("sink `{sink}`: {message}")]
#[non_exhaustive]
pub struct SinkError {
    /// Name of the sink in the configuration.
    pub sink: String,
    /// The cause, and how to fix it.
    pub message: String,
}

impl SinkError {
    /// Creates the error of this sink; the message says how to fix it.
    pub fn new(sink: impl Into<String>, message: impl Into<String>) -> Self {
        Self { sink: sink.into(), message: message.into() }
    }
}

/// The events of one delivery call.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Sorted by ascending id.
    pub events: &'a [Event],
    /// The call is cut off some time after this. The sink returns `Untried` for events that it did
    /// not start.
    pub deadline: Instant,
    /// Keeps the order of each key: an event may arrive only after all earlier events of its key
    /// (see [`Event::key`]). After the first event of a key that is not `Delivered`, the later ones
    /// must not be sent (`Untried`).
    pub keep_order: bool,
    outbox: Option<&'a str>,
    ours: Option<&'a (dyn Fn() -> bool + Send + Sync)>,
    gate: Option<&'a dyn Gate>,
    answers: Option<&'a Answers>,
}

/// Answers of destinations, by row id, for an outbox that keeps them with the events.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<i64, String>>);

impl Answers {
    pub(crate) fn into_map(self) -> HashMap<i64, String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Batch<'a> {
    /// Creates a batch without order and without a lease to check.
    pub fn new(events: &'a [Event], deadline: Instant) -> Self {
        let (keep_order, outbox, ours, gate, answers) = (false, None, None, None, None);
        Self { events, deadline, keep_order, outbox, ours, gate, answers }
    }

    /// Sets whether the order of each key is kept.
    #[must_use]
    pub fn in_order(self, keep_order: bool) -> Self {
        Self { keep_order, ..self }
    }

    /// Names the outbox that the events are from.
    #[must_use]
    pub fn of_outbox(self, outbox: &'a str) -> Self {
        Self { outbox: Some(outbox), ..self }
    }

    /// Returns the name of the outbox that the events are from, if the caller knows it. Row ids
    /// and events are unique in an outbox, not beyond: a fan-out and a replay copy events.
    pub fn outbox(&self) -> Option<&'a str> {
        self.outbox
    }

    /// Makes `may_start` return false once the events no longer belong to this relay.
    #[must_use]
    pub(crate) fn while_ours(self, ours: &'a (dyn Fn() -> bool + Send + Sync)) -> Self {
        Self { ours: Some(ours), ..self }
    }

    /// Makes [`enter`](Batch::enter) wait for a permit of the destination.
    #[must_use]
    pub(crate) fn through(self, gate: &'a dyn Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Makes [`keep_answer`](Batch::keep_answer) store answers.
    #[must_use]
    pub(crate) fn answered_in(self, answers: Option<&'a Answers>) -> Self {
        Self { answers, ..self }
    }

    /// Keeps what the destination answered, for sinks whose destinations return something useful.
    /// It is stored with the event if the event is delivered and its outbox archives delivered
    /// events. An answer that is not text, or too long for its column (see
    /// [`RESPONSE_BYTES_MAX`](limits::RESPONSE_BYTES_MAX)), is dropped as a whole: half an answer
    /// may look like a different one.
    pub fn keep_answer(&self, event: &Event, answer: &[u8]) {
        let Some(answers) = self.answers else { return };
        if answer.len() > limits::RESPONSE_BYTES_MAX || answer.contains(&0) {
            return;
        }
        if let Ok(answer) = str::from_utf8(answer) {
            let mut answers = answers.0.lock().unwrap_or_else(PoisonError::into_inner);
            answers.insert(event.id, answer.to_owned());
        }
    }

    /// Waits until this event may be sent to its destination. For sinks that send one request per
    /// event, see [`Sink::enters_each`]. `None` means that it must not be sent any more; its
    /// outcome is `Untried`. Keep the permit until the outcome is known, then pass the outcome to
    /// [`Permit::leave`].
    pub async fn enter(&self, event: &'a Event, destination: &str) -> Option<Permit<'a>> {
        match self.gate {
            None => self.may_start().then(Permit::uncounted),
            Some(gate) => gate.enter(self, event, destination).await,
        }
    }

    /// Returns the sequences to send, for sinks that send each event by itself: the events of each
    /// key if order is kept, otherwise each event alone. Each event comes with its index in the
    /// batch.
    pub fn runs(&self) -> Vec<Vec<(usize, &'a Event)>> {
        let numbered = self.events.iter().enumerate();
        if !self.keep_order {
            return numbered.map(|one| vec![one]).collect();
        }
        let (mut runs, mut of_key) = (Vec::<Vec<_>>::new(), HashMap::new());
        for (number, event) in numbered {
            let run = *of_key.entry(event.key()).or_insert_with(|| {
                runs.push(Vec::new());
                runs.len() - 1
            });
            runs[run].push((number, event));
        }
        runs
    }

    /// Returns whether another event may still be sent. Check it before each send: after the
    /// deadline there is no time left, and after the lease another relay may be working on the same
    /// events.
    pub fn may_start(&self) -> bool {
        Instant::now() < self.deadline && self.ours.is_none_or(|ours| ours())
    }
}

/// Decides when each event of a batch may be sent. The delivery implements it.
#[async_trait]
pub(crate) trait Gate: Send + Sync {
    /// Same as [`Batch::enter`].
    async fn enter<'a>(
        &'a self,
        batch: &Batch<'a>,
        event: &'a Event,
        destination: &str,
    ) -> Option<Permit<'a>>;
}

/// What a counted permit holds. Dropping it releases the permit.
pub(crate) trait CountedPermit: Send {
    /// Records the outcome of the event.
    fn record(&self, outcome: &Outcome);
}

/// A permit to send one event to a destination. Dropping it releases the permit.
#[must_use = "the permit is released when it is dropped"]
pub struct Permit<'a>(Option<Box<dyn CountedPermit + 'a>>);

impl<'a> Permit<'a> {
    pub(crate) fn counted(permit: impl CountedPermit + 'a) -> Self {
        Self(Some(Box::new(permit)))
    }

    /// Creates a permit that is not counted.
    pub(crate) fn uncounted() -> Self {
        Self(None)
    }

    /// Records the outcome of the event and releases the permit.
    pub fn leave(self, outcome: &Outcome) {
        if let Some(permit) = &self.0 {
            permit.record(outcome);
        }
    }
}

/// A destination for events.
///
/// - **Thread safety.** `deliver` is called from several tasks at once.
/// - **Partial failure.** One outcome per event, in the order of the events; an error of one event
///   is never an error of the call.
/// - **No retries, no sleeping, no store.** The relay does all of that.
/// - **Cancellation.** A call may be dropped at any await; what it has sent may still arrive.
/// - **Closing.** The relay calls `close` once, after the last `deliver` has ended.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Returns the name used in the configuration, metrics and messages.
    fn name(&self) -> &str;

    /// Returns the destination of an event, the unit of an outage: events with the same destination
    /// fail together. A host, a queue, a topic; never anything with as many values as there are
    /// events.
    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str>;

    /// Returns the destination of all events, if there is only one. While it is down, the relay
    /// claims only probes; with several destinations it must look through the events for those that
    /// can be sent.
    fn only_destination(&self) -> Option<&str> {
        None
    }

    /// Returns the server through which all destinations are reached, such as a broker, if the sink
    /// has several. While it is down ([`Cause::Server`](crate::Cause::Server)), so are they.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Returns whether `deliver` calls [`Batch::enter`] before each event that it sends. If not,
    /// the relay limits the size of its calls to what the destination may get.
    fn enters_each(&self) -> bool {
        false
    }

    /// Returns the shared health of the destinations, if others than the relay call them too.
    /// `None`: the relay tracks it itself.
    fn health(&self) -> Option<Arc<Health>> {
        None
    }

    /// Delivers a batch.
    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome>;

    /// Checks that the destination can be reached and the settings are right.
    ///
    /// # Errors
    /// Names the invalid setting and what to do.
    async fn check(&self) -> Result<(), SinkError>;

    /// Sends what is buffered and disconnects.
    async fn close(&self);
}

impl Health {
    /// Creates the state for the destinations of this sink.
    pub fn of(sink: &dyn Sink, preset: &Preset) -> Self {
        Self::with(sink.only_destination(), sink.server(), sink.enters_each(), preset)
    }
}
