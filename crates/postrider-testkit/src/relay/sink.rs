//! A sink that follows a script, and records its calls.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_relay::{Batch, Cause, Outcome, Sink, SinkError};
use postrider_store::Event;
use tokio::sync::watch;

use crate::PATIENCE;

/// The sink's reaction to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Returns this outcome.
    Answer(Outcome),
    /// Panics in the middle of the call.
    Panic,
    /// Aborts the process, like a broken native library.
    Abort,
    /// Never returns, whatever the deadline.
    Hang,
    /// Leaves this event out of the outcomes.
    Miscount,
}

impl Act {
    /// The destination accepts the event.
    pub const DELIVER: Self = Self::Answer(Outcome::Delivered);

    /// The destination is down.
    pub fn down(error: &str) -> Self {
        let error = error.to_owned();
        Self::Answer(Outcome::Down {
            error,
            retry_after: None,
            credentials: false,
            cause: Cause::Unknown,
        })
    }

    /// The event failed.
    pub fn retry(error: &str) -> Self {
        Self::Answer(Outcome::Retry { error: error.to_owned() })
    }

    /// The event is refused.
    pub fn reject(error: &str) -> Self {
        Self::Answer(Outcome::Rejected { error: error.to_owned(), detail: None })
    }
}

/// The record of a sink.
#[derive(Debug, Default)]
pub struct Log {
    /// Ids of each call, in the order in which the calls began.
    pub calls: Vec<Vec<i64>>,
    /// Outcomes, in order.
    pub answers: Vec<(i64, Outcome)>,
    /// Number of running calls.
    pub calls_now: usize,
    /// Maximum number of concurrent calls.
    pub calls_max: usize,
    /// Maximum number of events in concurrent calls.
    pub events_max: usize,
    /// How often the sink was closed.
    pub closed: u32,
    events_now: usize,
    tried: HashMap<i64, usize>,
    keys: HashMap<i64, (String, String)>,
}

impl Log {
    /// Returns ids with the outcome delivered, in order, with repeats.
    pub fn delivered(&self) -> Vec<i64> {
        let delivered =
            |(id, outcome): &(i64, Outcome)| (*outcome == Outcome::Delivered).then_some(*id);
        self.answers.iter().filter_map(delivered).collect()
    }

    /// Returns how many different events were delivered.
    pub fn distinct(&self) -> usize {
        self.delivered().into_iter().collect::<BTreeSet<_>>().len()
    }

    /// Returns how often this event was in a call.
    pub fn tries(&self, id: i64) -> usize {
        self.tried.get(&id).copied().unwrap_or_default()
    }

    /// Returns events that were delivered after a later one of their key: only the first copy of
    /// each id counts, and the ids of a key must ascend.
    pub fn out_of_order(&self) -> Vec<i64> {
        let (mut seen, mut last) = (BTreeSet::new(), HashMap::new());
        let first_copies = self.delivered().into_iter().filter(|id| seen.insert(*id));
        first_copies
            .filter(|id| {
                let newest = last.entry(&self.keys[id]).or_insert(0);
                let late = *id < *newest;
                *newest = (*newest).max(*id);
                late
            })
            .collect()
    }
}

type Script = dyn Fn(&Event, usize) -> Act + Send + Sync;

/// A sink for tests. It delivers everything unless its script says otherwise.
pub struct ScriptedSink {
    script: Box<Script>,
    pace: Duration,
    only_destination: Option<&'static str>,
    gate: watch::Sender<bool>,
    log: watch::Sender<Log>,
}

impl ScriptedSink {
    /// Creates a sink that delivers everything.
    pub fn delivering() -> Self {
        Self::scripted(|_, _| Act::DELIVER)
    }

    /// Creates a sink that follows the script. The script gets the number of attempts of the event,
    /// including this one.
    pub fn scripted(script: impl Fn(&Event, usize) -> Act + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(script),
            pace: Duration::ZERO,
            only_destination: None,
            gate: watch::Sender::new(true),
            log: watch::Sender::default(),
        }
    }

    /// Sets the time that each event takes.
    #[must_use]
    pub fn paced(self, pace: Duration) -> Self {
        Self { pace, ..self }
    }

    /// Declares that all events have one destination, so that the relay knows it.
    #[must_use]
    pub fn to_one_destination(self) -> Self {
        Self { only_destination: Some("the only one"), ..self }
    }

    /// Holds calls until [`open`](ScriptedSink::open).
    #[must_use]
    pub fn gated(self) -> Self {
        self.gate.send_replace(false);
        self
    }

    /// Returns a shared sink, as a relay needs it.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// Lets all calls through.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Holds all calls that start from now on.
    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    /// Returns the record.
    pub fn log(&self) -> watch::Ref<'_, Log> {
        self.log.borrow()
    }

    /// Waits until the record satisfies a condition.
    ///
    /// # Panics
    /// After [`PATIENCE`], naming what did not happen.
    pub async fn until(&self, what: &str, enough: impl FnMut(&Log) -> bool) {
        let mut log = self.log.subscribe();
        let seen = tokio::time::timeout(PATIENCE, log.wait_for(enough)).await.is_ok();
        assert!(seen, "within {PATIENCE:?}, this did not happen: {what}\n{}", self.summary());
    }

    /// Waits until this many different events are delivered.
    ///
    /// # Panics
    /// After [`PATIENCE`].
    pub async fn until_delivered(&self, events: usize) {
        let what = format!("{events} events are delivered");
        self.until(&what, |log| log.answers.len() >= events && log.distinct() >= events).await;
    }

    fn summary(&self) -> String {
        let log = self.log.borrow();
        let last = log.answers.iter().rev().take(5).collect::<Vec<_>>();
        format!(
            "calls {}, under way {}, delivered {}, last answers {last:?}",
            log.calls.len(),
            log.calls_now,
            log.distinct()
        )
    }
}

/// Counts a call as running until it ends or is dropped.
struct UnderWay<'a> {
    log: &'a watch::Sender<Log>,
    events: usize,
}

impl<'a> UnderWay<'a> {
    fn begin(log: &'a watch::Sender<Log>, batch: &[Event]) -> Self {
        let events = batch.len();
        log.send_modify(|log| {
            for event in batch {
                *log.tried.entry(event.id).or_default() += 1;
                let (aggregate_type, aggregate_id) = event.key();
                let key = (aggregate_type.to_owned(), aggregate_id.to_owned());
                log.keys.insert(event.id, key);
            }
            log.calls.push(batch.iter().map(|event| event.id).collect());
            log.calls_now += 1;
            log.events_now += events;
            log.calls_max = log.calls_max.max(log.calls_now);
            log.events_max = log.events_max.max(log.events_now);
        });
        Self { log, events }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.log.send_modify(|log| {
            log.calls_now -= 1;
            log.events_now -= self.events;
        });
    }
}

#[async_trait]
impl Sink for ScriptedSink {
    fn name(&self) -> &str {
        "scripted"
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed(self.only_destination.unwrap_or(&event.aggregate_type))
    }

    fn only_destination(&self) -> Option<&str> {
        self.only_destination
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let _under_way = UnderWay::begin(&self.log, batch.events);
        drop(self.gate.subscribe().wait_for(|open| *open).await);
        let (mut outcomes, mut stopped) = (Vec::new(), HashSet::new());
        for event in batch.events {
            if batch.keep_order && stopped.contains(&event.key()) {
                outcomes.push(Outcome::Untried);
                continue;
            }
            if !self.pace.is_zero() {
                tokio::time::sleep(self.pace).await;
            }
            let tries = self.log.borrow().tries(event.id);
            match (self.script)(event, tries) {
                Act::Answer(outcome) => {
                    if outcome != Outcome::Delivered {
                        stopped.insert(event.key());
                    }
                    self.log.send_modify(|log| log.answers.push((event.id, outcome.clone())));
                    outcomes.push(outcome);
                }
                Act::Panic => panic!("the script says so"),
                Act::Abort => std::process::abort(),
                Act::Hang => std::future::pending().await,
                Act::Miscount => {}
            }
        }
        outcomes
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {
        self.log.send_modify(|log| log.closed += 1);
    }
}
