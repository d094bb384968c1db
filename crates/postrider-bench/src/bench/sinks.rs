//! The sinks of a bench, and the wrapper that observes what arrives.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::http::StatusCode;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use postrider_command::Failure;
use postrider_relay::{
    Batch, Outcome, Sink, SinkError,
    sinks::{HttpSettings, HttpSink, NullSink},
};
use postrider_store::Event;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::checker::Checker;
use super::event::sample;
use super::kafka;
use super::schedule::Times;
use super::stage::Stage;
use crate::cli::{SinkArgs, SinkKind};

/// Time limit of one delivery of the direct feed.
const FEED_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of concurrent calls of the direct feed: as many as a relay has batches in flight.
const FEED_CALLS: usize = 3;
/// Number of events that the direct feed sends repeatedly: creating them is not what is measured,
/// and all of them at once would dominate the memory figure.
const FEED_EVENTS_MAX: u64 = 10_000;
/// Number of concurrent requests of the HTTP sink.
const HTTP_CONCURRENCY: usize = 64;
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
const OWN_TARGET: &str = "in this process";

/// The description of a sink for the report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SinkFacts {
    pub(super) sink: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) broker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acks: Option<&'static str>,
}

/// Opens the selected sink, once per relay: a relay closes its sink when it stops.
pub(super) enum Sinks {
    Null,
    Http {
        url: String,
        /// The target that this process runs itself, as long as the bench runs.
        own: Option<AbortOnDropHandle<()>>,
    },
    Kafka {
        brokers: String,
        topic: String,
        version: String,
    },
}

impl Sinks {
    pub(super) async fn prepare(stage: &Stage, args: &SinkArgs) -> Result<Self, Failure> {
        let sinks = match (args.sink, &args.url) {
            (SinkKind::Null, _) => Self::Null,
            (SinkKind::Http, Some(url)) => Self::Http { url: url.clone(), own: None },
            (SinkKind::Http, None) => {
                let (url, own) = start_target().await.map_err(|error| {
                    Failure::Partly(format!("no HTTP target could be started: {error}"))
                })?;
                Self::Http { url, own: Some(own) }
            }
            (SinkKind::Kafka, _) => {
                let brokers = args.brokers.clone();
                let topic = match &args.topic {
                    Some(topic) => topic.clone(),
                    None => stage.topic(&brokers).await?,
                };
                let version = kafka::broker_version(&brokers).await;
                Self::Kafka { brokers, topic, version }
            }
        };
        sinks.open()?.check().await?;
        Ok(sinks)
    }

    /// Starts this many targets in this process and returns their names. The aggregate type of an
    /// event is the name of its target.
    pub(super) async fn targets(count: u32) -> Result<(Self, Vec<String>), Failure> {
        let (names, own) = start_targets(count).await.map_err(|error| {
            Failure::Partly(format!("no {count} HTTP targets could be started: {error}"))
        })?;
        let url = "http://127.0.0.1:{aggregate_type}/events".to_owned();
        Ok((Self::Http { url, own: Some(own) }, names))
    }

    pub(super) fn open(&self) -> Result<Arc<dyn Sink>, Failure> {
        Ok(match self {
            Self::Null => Arc::new(NullSink::new("bench")),
            Self::Http { url, .. } => Arc::new(HttpSink::new(HttpSettings {
                timeout: HTTP_TIMEOUT,
                host_concurrency_max: HTTP_CONCURRENCY,
                ..HttpSettings::new("bench", url)
            })?),
            Self::Kafka { brokers, topic, .. } => kafka::sink(brokers, topic)?,
        })
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(super) fn facts(&self) -> SinkFacts {
        let none = SinkFacts { sink: "null", target: None, broker: None, acks: None };
        match self {
            Self::Null => none,
            Self::Http { url, own } => {
                let target = own.as_ref().map_or_else(|| url.clone(), |_| OWN_TARGET.to_owned());
                SinkFacts { sink: "http", target: Some(target), ..none }
            }
            Self::Kafka { brokers, version, .. } => SinkFacts {
                sink: "kafka",
                target: Some(brokers.clone()),
                broker: Some(version.clone()),
                // The sink has no setting for this.
                acks: Some("all"),
            },
        }
    }

    /// Measures the events per second that the sink accepts without a relay or a store in front of
    /// it.
    pub(super) async fn feed(
        &self,
        events: u64,
        (keys, payload_bytes): (u64, u32),
        batch: u32,
        keep_order: bool,
    ) -> Result<f64, Failure> {
        let sink = self.open()?;
        let pool = events.min(FEED_EVENTS_MAX.max(u64::from(batch)));
        let pool: Vec<Event> = (0..pool).map(|n| sample(n, keys, payload_bytes)).collect();
        let calls = pool.chunks(batch as usize).cycle();
        let started = Instant::now();
        let sent = stream::iter(calls.take(events.div_ceil(u64::from(batch)) as usize))
            .map(async |chunk| {
                let call = Batch::new(chunk, Instant::now() + FEED_TIMEOUT).in_order(keep_order);
                let outcomes = sink.deliver(call).await;
                let failed = outcomes.into_iter().find(|outcome| *outcome != Outcome::Delivered);
                failed.map_or(Ok(chunk.len()), Err)
            })
            .buffer_unordered(FEED_CALLS)
            .collect::<Vec<_>>()
            .await;
        let seconds = started.elapsed().as_secs_f64();
        sink.close().await;
        let mut delivered = 0;
        for outcome in sent {
            delivered += outcome.map_err(|outcome| {
                Failure::Partly(format!("the sink, fed directly, answered {outcome:?}"))
            })?;
        }
        Ok(delivered as f64 / seconds)
    }
}

/// Starts a target that accepts every POST.
async fn start_target() -> std::io::Result<(String, AbortOnDropHandle<()>)> {
    let (ports, serving) = start_targets(1).await?;
    Ok((format!("http://127.0.0.1:{}/events", ports.join("")), serving))
}

/// Starts targets and returns their ports.
async fn start_targets(count: u32) -> std::io::Result<(Vec<String>, AbortOnDropHandle<()>)> {
    let app = Router::new().fallback(async || StatusCode::NO_CONTENT);
    let (mut ports, mut serving) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        ports.push(listener.local_addr()?.port().to_string());
        let app = app.clone();
        serving.push(async move { drop(axum::serve(listener, app).await) });
    }
    let serving = tokio::spawn(async move { drop(join_all(serving).await) });
    Ok((ports, AbortOnDropHandle::new(serving)))
}

/// Returns a port on which no program listens.
pub(super) async fn dead_target() -> Result<String, Failure> {
    let bound = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let port = bound.and_then(|listener| listener.local_addr()).map(|at| at.port().to_string());
    port.map_err(|error| Failure::Partly(format!("no port is free: {error}")))
}

/// Forwards events to a sink and reports deliveries to the checker.
pub(super) struct Watched {
    pub(super) inner: Arc<dyn Sink>,
    pub(super) checker: Arc<Checker>,
    /// Records when each event arrived, if requested.
    pub(super) times: Option<Arc<Times>>,
    /// Keys with this prefix always fail.
    pub(super) failing: Option<&'static str>,
}

impl Watched {
    fn fails(&self, event: &Event) -> bool {
        self.failing.is_some_and(|prefix| event.aggregate_id.starts_with(prefix))
    }

    /// Forwards runs of other events, and fails those of failing keys.
    async fn deliver_around_failing(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let mut failed: HashSet<&str> = HashSet::new();
        let mut outcomes = Vec::with_capacity(batch.events.len());
        for run in batch.events.chunk_by(|a, b| self.fails(a) == self.fails(b)) {
            if self.fails(&run[0]) {
                outcomes.extend(run.iter().map(|event| {
                    match failed.insert(&event.aggregate_id) || !batch.keep_order {
                        true => Outcome::Retry { error: "this key fails".to_owned() },
                        false => Outcome::Untried,
                    }
                }));
            } else {
                let mut part = batch;
                part.events = run;
                outcomes.extend(self.inner.deliver(part).await);
            }
        }
        outcomes
    }
}

#[async_trait]
impl Sink for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        self.inner.destination(event)
    }

    fn only_destination(&self) -> Option<&str> {
        self.inner.only_destination()
    }

    fn server(&self) -> Option<&str> {
        self.inner.server()
    }

    fn enters_each(&self) -> bool {
        self.inner.enters_each()
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let outcomes = match batch.events.iter().any(|event| self.fails(event)) {
            true => self.deliver_around_failing(batch).await,
            false => self.inner.deliver(batch).await,
        };
        let fresh = self.checker.arrived(batch.events, &outcomes);
        if let Some(times) = &self.times {
            fresh.iter().for_each(|event| times.delivered(&event.payload));
        }
        outcomes
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.inner.check().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failing_keys_fail_in_order_and_the_others_go_on() {
        let watched = Watched {
            inner: Arc::new(NullSink::new("null")),
            checker: Arc::default(),
            times: None,
            failing: Some("bad"),
        };
        let keys = ["bad1", "1", "bad1", "bad2", "2", "3"];
        let events: Vec<Event> = (1_i64..)
            .zip(keys)
            .map(|(id, key)| Event { id, aggregate_id: key.to_owned(), ..sample(0, 1, 64) })
            .collect();
        let batch = Batch::new(&events, Instant::now() + FEED_TIMEOUT);
        let retry = Outcome::Retry { error: "this key fails".to_owned() };
        let ok = Outcome::Delivered;
        let ordered = watched.deliver(batch.in_order(true)).await;
        let expected = [&retry, &ok, &Outcome::Untried, &retry, &ok, &ok];
        assert_eq!(ordered.iter().collect::<Vec<_>>(), expected);
        let unordered = watched.deliver(batch).await;
        assert_eq!(unordered[2], retry, "without order each one is tried");
        assert_eq!(watched.checker.delivered(), 3);
    }
}
