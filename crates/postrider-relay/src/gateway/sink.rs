//! The relay's side of a gateway: repeats the saved calls.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use postrider_store::Event;

use super::Source;
use super::answer::Answer;
use super::call::{Call, target_of};
use super::changes::Precedence;
use super::flights::Flight;
use super::upstream::{Heard, TOO_LARGE, Upstream};
use crate::destination::health::Health;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};
use crate::sinks::http::{Meaning, meaning};
use crate::telemetry;

const SUPERSEDED: &str = "superseded: a newer change of the same target was made after this one \
                          was saved; retry it to make this one nevertheless";

/// Repeats saved calls and puts their answers into the cache.
pub struct GatewaySink {
    upstream: Arc<Upstream>,
}

impl GatewaySink {
    /// Creates a sink for the calls of this upstream.
    pub fn new(upstream: Arc<Upstream>) -> Self {
        Self { upstream }
    }

    /// Repeats calls one after the other, up to the first that is not done.
    async fn replay_run(
        &self,
        batch: &Batch<'_>,
        run: Vec<(usize, &Event)>,
    ) -> Vec<(usize, Outcome)> {
        let mut outcomes: Vec<(usize, Outcome)> = Vec::with_capacity(run.len());
        let done = |outcome: &Outcome| matches!(outcome, Outcome::Delivered | Outcome::AlreadyDone);
        for (number, event) in run {
            let stopped = outcomes.last().is_some_and(|(_, last)| !done(last));
            let outcome = if stopped { Outcome::Untried } else { self.replay(batch, event).await };
            outcomes.push((number, outcome));
        }
        outcomes
    }

    async fn replay(&self, batch: &Batch<'_>, event: &Event) -> Outcome {
        let upstream = &self.upstream;
        let saved = Call::of_event(event).and_then(|(call, at)| Ok((upstream.admit(call)?, at)));
        let (call, asked_at_ms) = match saved {
            Ok(saved) => saved,
            Err(error) => return Outcome::CannotEncode { error },
        };
        let key = call.key();
        // A fresh answer was requested after this call was saved: at that time there was none.
        if let Some(answer) = upstream.fresh(&call, key).await {
            keep(&answer, batch, event);
            return self.already_done();
        }
        if let Some(other) = upstream.calls.under_way(key) {
            return self.after(other, batch, event, &call).await;
        }
        let Some(turn) = upstream.turn(&call, batch.deadline).await else {
            return Outcome::Untried;
        };
        if let Some(outcome) = self.overtaken(&call, asked_at_ms, event).await {
            return outcome;
        }
        let Some(free) = upstream.free_place(batch.deadline).await else {
            return Outcome::Untried;
        };
        let Some(place) = batch.enter(event, upstream.destination(call.target())).await else {
            return Outcome::Untried;
        };
        let flight = upstream.calls.begin(key, || {
            let (upstream, call) = (Arc::clone(upstream), call.clone());
            let deadline =
                batch.deadline.min(tokio::time::Instant::now() + upstream.settings.timeout);
            async move {
                let _turn = turn;
                if let Some(answer) = upstream.fresh(&call, key).await {
                    return Heard::Answer(answer, Source::Cache);
                }
                upstream.count(telemetry::GATEWAY_REPLAYS);
                let record = upstream.ask(&call, deadline).await;
                upstream.note_change(&call, asked_at_ms, &record).await;
                upstream.keep(key, &record).await;
                record
            }
        });
        let flight = match flight {
            Ok(flight) => flight,
            Err(other) => {
                // The other flight began while this one waited, and may need the very permits that
                // this one holds.
                drop((place, free));
                return self.after(other, batch, event, &call).await;
            }
        };
        let Some(record) = flight.await else { return Outcome::Untried };
        if let Heard::Answer(answer, _) = &record {
            keep(answer, batch, event);
        }
        let outcome = outcome(&record, &call);
        match outcome {
            Outcome::AlreadyDone => return self.already_done(),
            // The permit records what the upstream answered, not what happens to the event.
            _ => place.leave(&record.outcome()),
        }
        outcome
    }

    /// Returns the outcome of a saved change that is not made because it was already made, or
    /// because a newer change of its target was. If an operator retries it, it is made.
    async fn overtaken(&self, call: &Call, asked_at_ms: u64, event: &Event) -> Option<Outcome> {
        if !call.overwrites() || event.redrive_count > 0 {
            return None;
        }
        match self.upstream.precedence(call, asked_at_ms).await {
            Precedence::Newest => None,
            Precedence::Made => Some(self.already_done()),
            Precedence::Superseded => Some(Outcome::CannotEncode { error: SUPERSEDED.to_owned() }),
        }
    }

    /// Waits for the same call, which is in flight for a caller, instead of making it a second
    /// time. The saved call is not needed if that answer would have ended it. The wait ends with
    /// the batch, whose other outcomes must not be lost if the call is slower.
    async fn after(
        &self,
        other: Flight<Heard>,
        batch: &Batch<'_>,
        event: &Event,
        call: &Call,
    ) -> Outcome {
        let record = tokio::time::timeout_at(batch.deadline, other).await.ok().flatten();
        match record.as_ref().map(|record| (record, outcome(record, call))) {
            Some((Heard::Answer(answer, _), Outcome::Delivered | Outcome::AlreadyDone)) => {
                keep(answer, batch, event);
                self.already_done()
            }
            _ => Outcome::Untried,
        }
    }

    fn already_done(&self) -> Outcome {
        self.upstream.count(telemetry::GATEWAY_NEEDLESS);
        Outcome::AlreadyDone
    }
}

/// Keeps a successful answer with the event, unless the upstream forbids storing it.
fn keep(answer: &Answer, batch: &Batch<'_>, event: &Event) {
    if answer.status.is_success() && answer.may_be_shared {
        batch.keep_answer(event, &answer.body);
    }
}

/// Returns what an answer means for a saved call. A caller that reads gets the same answer by
/// asking again, so a definite answer ends the call; a refused change is for an operator to see.
fn outcome(record: &Heard, call: &Call) -> Outcome {
    match record {
        Heard::Answer(answer, Source::Upstream) => {
            let error = format!("HTTP {}", answer.status);
            match meaning(answer.status) {
                _ if answer.status.is_success() || call.is_safe() => Outcome::Delivered,
                Meaning::Rejected => Outcome::Rejected { error, detail: None },
                _ => Outcome::Retry { error },
            }
        }
        Heard::TooLarge => Outcome::Rejected { error: TOO_LARGE.to_owned(), detail: None },
        other => other.outcome(),
    }
}

#[async_trait]
impl Sink for GatewaySink {
    fn name(&self) -> &str {
        self.upstream.name()
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        // Most gateways have one destination, and the payload does not have to be parsed.
        let only = self.upstream.only_destination();
        Cow::Borrowed(only.unwrap_or_else(|| self.upstream.destination(&target_of(event))))
    }

    fn only_destination(&self) -> Option<&str> {
        self.upstream.only_destination()
    }

    fn enters_each(&self) -> bool {
        true
    }

    fn health(&self) -> Option<Arc<Health>> {
        Some(Arc::clone(self.upstream.health()))
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let runs: Vec<_> =
            batch.runs().into_iter().map(|run| self.replay_run(&batch, run)).collect();
        let at_once = self.upstream.settings.concurrency_max;
        let replayed = stream::iter(runs).buffer_unordered(at_once);
        let mut outcomes: Vec<_> =
            replayed.collect::<Vec<_>>().await.into_iter().flatten().collect();
        outcomes.sort_unstable_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Checks the cache only. The upstream may be down: that is what a gateway is for.
    async fn check(&self) -> Result<(), SinkError> {
        let checked = self.upstream.cache.check().await;
        checked.map_err(|message| SinkError { sink: self.name().to_owned(), message })
    }

    async fn close(&self) {}
}
