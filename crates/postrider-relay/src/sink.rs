//! The sink: where events go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider::{Event, limits};
use tokio::time::Instant;

use crate::gate::{Gate, Place};
use crate::health::Health;

/// Why a sink cannot be used at all; found at start by `postrider run --check`.
#[derive(Debug, thiserror::Error)]
#[error("sink `{sink}`: {message}")]
pub struct SinkError {
    /// Name of the sink in the configuration.
    pub sink: String,
    /// Cause and cure.
    pub message: String,
}

/// The events of one call.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Ids ascending.
    pub events: &'a [Event],
    /// What is not done by then is cut off; the sink answers `Untried` for what it did not start.
    pub deadline: Instant,
    /// An event of a key may arrive only after all before it arrived: behind the first of a key
    /// (see [`Event::key`]) that is not `Delivered`, the key's later ones are not sent (`Untried`).
    pub keep_order: bool,
    ours: Option<&'a (dyn Fn() -> bool + Send + Sync)>,
    gate: Option<&'a Gate<'a>>,
    answers: Option<&'a Answers>,
}

/// What destinations answered, by row id, for an outbox that keeps it with the event.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<i64, String>>);

impl Answers {
    pub(crate) fn into_map(self) -> HashMap<i64, String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Batch<'a> {
    /// Events in any order of keys, for nobody's lease.
    pub fn new(events: &'a [Event], deadline: Instant) -> Self {
        Self { events, deadline, keep_order: false, ours: None, gate: None, answers: None }
    }

    /// The same, with the order of each key kept or not.
    #[must_use]
    pub fn in_order(self, keep_order: bool) -> Self {
        Self { keep_order, ..self }
    }

    /// Ends `may_start` when the events are no longer this relay's.
    #[must_use]
    pub(crate) fn while_ours(self, ours: &'a (dyn Fn() -> bool + Send + Sync)) -> Self {
        Self { ours: Some(ours), ..self }
    }

    /// Lets [`enter`](Batch::enter) wait for a place at the destination.
    #[must_use]
    pub(crate) fn through(self, gate: &'a Gate<'a>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Lets [`keep_answer`](Batch::keep_answer) keep something.
    #[must_use]
    pub(crate) fn answered_in(self, answers: Option<&'a Answers>) -> Self {
        Self { answers, ..self }
    }

    /// For sinks whose destination answers with something of value: keeps it with the event, if
    /// the event is delivered and its outbox keeps delivered events. What is not text, or too long
    /// for its column (see [`RESPONSE_BYTES_MAX`](limits::RESPONSE_BYTES_MAX)), is left out as a
    /// whole: half an answer may look like another one.
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

    /// Waits until this event may be sent to its destination: for sinks that send one request per
    /// event, see [`Sink::enters_each`]. `None` is not any more; the event is `Untried`. The place is
    /// kept until the answer is there, and told of it.
    pub async fn enter(&self, event: &'a Event, destination: &str) -> Option<Place<'a>> {
        match self.gate {
            None => self.may_start().then(Place::free),
            Some(gate) => gate.enter(self, event, destination).await,
        }
    }

    /// What goes one after the other, for sinks that send each event by itself: the events of a key
    /// where order is kept, otherwise each alone. With the place of each in the batch.
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

    /// Whether another event may still be sent: asked before each send. Past the deadline there is
    /// no time, past the lease another relay may be at work on the same events.
    pub fn may_start(&self) -> bool {
        Instant::now() < self.deadline && self.ours.is_none_or(|ours| ours())
    }
}

/// What became of one event. The relay decides what follows: see [`decide`](crate::policy::decide).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination acknowledged it.
    Delivered,
    /// The destination will never take this event.
    Rejected {
        /// The answer in a sentence.
        error: String,
        /// More of it, such as the body.
        detail: Option<String>,
    },
    /// No message can be made of this event. Nothing was sent, and its destination knows nothing
    /// of it: this says nothing about how the destination is doing.
    Unfit {
        /// What is wrong with it.
        error: String,
    },
    /// Nothing is configured to take this event.
    NoRoute {
        /// What is missing.
        error: String,
    },
    /// This event failed; another try may succeed.
    Retry {
        /// The answer in a sentence.
        error: String,
    },
    /// The destination is down, whatever the event.
    Down {
        /// The answer in a sentence.
        error: String,
        /// The destination asked to be left alone for this time.
        retry_after: Option<Duration>,
        /// It refused our credentials: somebody must act.
        credentials: bool,
        /// Whether the event itself may be the reason.
        cause: Cause,
    },
    /// Not tried: cut off by the deadline, or behind a failure.
    Untried,
    /// Nothing had to be sent: what the event is for has happened without it. It is settled as
    /// delivered, and says nothing about how the destination is doing.
    Needless,
}

/// What a [`Outcome::Down`] may be caused by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The event, perhaps: where its destination took others since its previous try, the event
    /// pays for this one with an attempt.
    Unknown,
    /// Its destination, whatever the event: a full queue, a refused connection.
    Destination,
    /// What all destinations of the sink are reached through ([`Sink::server`]), whatever the event.
    Server,
}

impl Outcome {
    /// Whether it says nothing about how the destination is doing.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::Untried | Self::Needless | Self::NoRoute { .. } | Self::Unfit { .. })
    }
}

/// A destination for events.
///
/// - **Thread safety.** `deliver` is called from several tasks at once.
/// - **Partial failure.** One outcome per event, in the order of the events; an error of one is
///   never an error of the call.
/// - **No retries, no sleeping, no store.** The relay does all of that.
/// - **Cancellation.** A call may be dropped at any await; what it had sent may arrive.
/// - **Closing.** The relay calls `close` once, after the last `deliver` ended.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Name in the configuration, metrics and messages.
    fn name(&self) -> &str;

    /// What an outage is about: events with the same destination share their fate. A host, a queue,
    /// a topic; never anything with as many values as there are events.
    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str>;

    /// The destination of all events, where there is only one. While it is down, the relay claims
    /// nothing but probes; otherwise it must look through the events for those of the others.
    fn only_destination(&self) -> Option<&str> {
        None
    }

    /// What all destinations are reached through, where a sink has several: a broker. While it is
    /// down ([`Cause::Server`]), so are they.
    fn server(&self) -> Option<&str> {
        None
    }

    /// Whether `deliver` asks [`Batch::enter`] before each event that it sends. For a sink that does
    /// not, the relay makes calls no larger than the destination may get.
    fn enters_each(&self) -> bool {
        false
    }

    /// How its destinations are doing, where others than the relay call them too and share what is
    /// known. `None`: the relay keeps that itself.
    fn health(&self) -> Option<Arc<Health>> {
        None
    }

    /// Delivers a batch.
    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome>;

    /// Whether the destination can be reached and the settings are right.
    ///
    /// # Errors
    /// Names the setting that is wrong and what to do.
    async fn check(&self) -> Result<(), SinkError>;

    /// Sends what is buffered and disconnects.
    async fn close(&self);
}
