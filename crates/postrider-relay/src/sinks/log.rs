//! Writes a line per event to the log. Payloads are not logged.

use std::borrow::Cow;

use async_trait::async_trait;
use postrider_store::Event;

use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// Delivers to the log; for trying things out.
#[derive(Debug, Clone)]
pub struct LogSink {
    name: String,
}

impl LogSink {
    /// Creates a sink with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

#[async_trait]
impl Sink for LogSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, _event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed("log")
    }

    fn only_destination(&self) -> Option<&str> {
        Some("log")
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        for event in batch.events {
            tracing::info!(
                target: "postrider::sink",
                sink = self.name,
                id = event.id,
                event_id = event.event_id,
                event_type = event.event_type,
                aggregate_type = event.aggregate_type,
                aggregate_id = event.aggregate_id,
                payload_bytes = event.payload.len(),
                "delivered"
            );
        }
        vec![Outcome::Delivered; batch.events.len()]
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}
