//! OpenTelemetry traces: a span per delivery attempt, in the trace of the event's producer.
//!
//! Off by default. A span is put into a bounded queue without waiting; spans that exceed the queue,
//! or that the collector does not accept, are counted. The message carries the span as its parent,
//! so that the receiver's spans join the same trace.

mod context;
#[cfg(feature = "http")]
mod exporter;
#[cfg(not(feature = "http"))]
#[path = "nowhere.rs"]
mod exporter;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use postrider_store::Event;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::OutboxConfig;
use crate::outcome::Outcome;
use crate::telemetry;
pub use exporter::TraceSettings;
pub(crate) use exporter::start;

/// Accepts spans. Clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Tracer {
    sender: mpsc::Sender<Span>,
    /// Share of events without a trace for which one begins.
    ratio: f64,
}

/// A delivery attempt, as it is sent to the collector.
#[derive(Debug)]
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "nothing sends it"))]
struct Span {
    trace: u128,
    span: u64,
    parent: Option<u64>,
    state: Option<String>,
    name: String,
    started_at: SystemTime,
    ended_at: SystemTime,
    attributes: Vec<(&'static str, String)>,
    /// The error, if the attempt failed.
    error: Option<String>,
}

/// The spans of one batch, from before its delivery until each outcome.
pub(crate) struct Spans {
    tracer: Option<Tracer>,
    outbox: String,
    sink: String,
    begun: Mutex<HashMap<i64, Begun>>,
    /// The events' own headers: what is stored about an event is what was appended.
    originals: HashMap<i64, Option<String>>,
}

struct Begun {
    place: context::Permit,
    span: u64,
}

impl Spans {
    /// Chooses the events that are traced, and adds their spans to the headers of their messages.
    pub(crate) fn begin(
        tracer: Option<&Tracer>,
        config: &OutboxConfig,
        events: &mut [Event],
    ) -> Self {
        let (mut begun, mut originals) = (HashMap::new(), HashMap::new());
        for event in events.iter_mut() {
            let Some(tracer) = tracer else { break };
            let Some(mut headers) = context::headers(event) else { continue };
            let dropped = context::drop_invalid(&mut headers);
            let result = match context::place(event, &headers, tracer.ratio) {
                Some(place) => {
                    let span = rand::random::<u64>().max(1);
                    let result = context::with_parent(headers, place.trace, span);
                    begun.insert(event.id, Begun { place, span });
                    result
                }
                None if dropped => Value::Object(headers).to_string(),
                None => continue,
            };
            originals.insert(event.id, event.headers.replace(result));
        }
        Self {
            tracer: tracer.cloned(),
            outbox: config.outbox.name().to_owned(),
            sink: config.sink.name().to_owned(),
            begun: Mutex::new(begun),
            originals,
        }
    }

    /// Returns whether traces are configured.
    pub(crate) fn are_traced(&self) -> bool {
        self.tracer.is_some()
    }

    /// Ends the span of an event that was sent at `sent_at`. An `Untried` or `AlreadyDone` event
    /// has no span.
    pub(crate) fn end(&self, event: &Event, outcome: &Outcome, sent_at: Instant) {
        let Some(tracer) = &self.tracer else { return };
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&event.id);
        let Some(Begun { place, span }) = begun else { return };
        let (word, error) = match outcome {
            Outcome::Untried | Outcome::AlreadyDone => return,
            Outcome::Delivered => ("delivered", None),
            Outcome::Rejected { error, .. } => ("rejected", Some(error)),
            Outcome::CannotEncode { error } => ("cannot-encode", Some(error)),
            Outcome::NoRoute { error } => ("no_route", Some(error)),
            Outcome::Retry { error } => ("retry", Some(error)),
            Outcome::Down { error, .. } => ("down", Some(error)),
        };
        let ended_at = SystemTime::now();
        let ended = Span {
            trace: place.trace,
            span,
            parent: place.parent,
            state: place.state,
            name: format!("deliver {}", event.event_type),
            started_at: ended_at.checked_sub(sent_at.elapsed()).unwrap_or(ended_at),
            ended_at,
            attributes: vec![
                ("postrider.outbox", self.outbox.clone()),
                ("postrider.sink", self.sink.clone()),
                ("postrider.event_type", event.event_type.clone()),
                ("postrider.event_id", event.event_id.clone()),
                ("postrider.attempt", (event.retry_count + 1).to_string()),
                ("postrider.outcome", word.to_owned()),
            ],
            error: error.cloned(),
        };
        if tracer.sender.try_send(ended).is_err() {
            metrics::counter!(telemetry::SPANS_DROPPED).increment(1);
        }
    }

    /// Restores the events' own headers.
    pub(crate) fn restore(mut self, events: &mut [Event]) {
        if self.originals.is_empty() {
            return;
        }
        for event in events {
            if let Some(headers) = self.originals.remove(&event.id) {
                event.headers = headers;
            }
        }
    }
}
