//! Accepts everything and does nothing, to measure the cost of the relay itself.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use postrider_store::Event;

use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// A sink for benchmarks.
#[derive(Debug)]
pub struct NullSink {
    name: String,
    taken: AtomicU64,
}

impl NullSink {
    /// Creates a sink with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), taken: AtomicU64::new(0) }
    }

    /// Returns the number of events accepted so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sink for NullSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, _event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed("null")
    }

    fn only_destination(&self) -> Option<&str> {
        Some("null")
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        self.taken.fetch_add(batch.events.len() as u64, Ordering::Relaxed);
        vec![Outcome::Delivered; batch.events.len()]
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}
