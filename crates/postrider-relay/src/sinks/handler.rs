//! Handlers in the same process, by event type.

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use postrider_store::Event;

use crate::outcome::{Cause, Outcome};
use crate::sink::{Batch, Sink, SinkError};

/// How a handler fails.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerError {
    /// Another attempt may succeed: one attempt is spent.
    Retry(String),
    /// No attempt will succeed: the event becomes a dead letter at once.
    Reject(String),
    /// Something that the handler needs is down: no attempt is spent.
    Down(String),
}

type Handler = Arc<dyn Fn(Event) -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync>;

/// A registry of handlers. An event whose type has no handler becomes a dead letter at once.
pub struct HandlerSink {
    name: String,
    handlers: HashMap<String, Handler>,
    concurrency_max: usize,
}

impl HandlerSink {
    /// Creates an empty registry; 16 events are handled at the same time.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), handlers: HashMap::new(), concurrency_max: 16 }
    }

    /// Registers the handler of an event type.
    #[must_use]
    pub fn on<F, R>(mut self, event_type: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Event) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |event| handler(event).boxed());
        self.handlers.insert(event_type.into(), handler);
        self
    }

    /// Sets how many events are handled at the same time.
    #[must_use]
    pub fn concurrency_max(mut self, events: usize) -> Self {
        self.concurrency_max = events.max(1);
        self
    }

    /// Handles events one after the other, up to the first that is not delivered.
    async fn handle_run(
        &self,
        batch: &Batch<'_>,
        run: Vec<(usize, &Event)>,
    ) -> Vec<(usize, Outcome)> {
        let mut outcomes: Vec<(usize, Outcome)> = Vec::with_capacity(run.len());
        for (number, event) in run {
            let stopped = outcomes.last().is_some_and(|(_, last)| *last != Outcome::Delivered);
            let outcome = if stopped { Outcome::Untried } else { self.handle(batch, event).await };
            outcomes.push((number, outcome));
        }
        outcomes
    }

    async fn handle(&self, batch: &Batch<'_>, event: &Event) -> Outcome {
        let Some(handler) = self.handlers.get(&event.event_type) else {
            return Outcome::NoRoute {
                error: format!("no handler is registered for event type `{}`", event.event_type),
            };
        };
        if !batch.may_start() {
            return Outcome::Untried;
        }
        // The call itself is caught too: a handler may panic before its first await.
        let call = AssertUnwindSafe(async { handler(event.clone()).await }).catch_unwind();
        match tokio::time::timeout_at(batch.deadline, call).await {
            Ok(Ok(Ok(()))) => Outcome::Delivered,
            Ok(Ok(Err(HandlerError::Retry(error)))) => Outcome::Retry { error },
            Ok(Ok(Err(HandlerError::Reject(error)))) => Outcome::Rejected { error, detail: None },
            Ok(Ok(Err(HandlerError::Down(error)))) => Outcome::Down {
                error,
                retry_after: None,
                credentials: false,
                cause: Cause::Unknown,
            },
            Ok(Err(_)) => Outcome::Retry { error: "the handler panicked".to_owned() },
            Err(_) => Outcome::Retry { error: "the handler did not end in time".to_owned() },
        }
    }
}

#[async_trait]
impl Sink for HandlerSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed(&event.event_type)
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let runs: Vec<_> =
            batch.runs().into_iter().map(|run| self.handle_run(&batch, run)).collect();
        let handled = stream::iter(runs).buffer_unordered(self.concurrency_max);
        let mut outcomes: Vec<_> =
            handled.collect::<Vec<_>>().await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}
