//! Calls the sink: once for a batch, in waves, or event by event.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_store::Event;
use tokio::time::Instant;

use super::Pipeline;
use crate::delivery::gate::DeliveryGate;
use crate::lease::Held;
use crate::outcome::{Cause, Outcome};
use crate::sink::{Answers, Batch, Gate};
use crate::telemetry::{self, label};

/// Time that a sink gets beyond its deadline to return.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);

/// Parameters shared by all calls of one batch.
pub(super) struct CallContext<'a> {
    pub(super) held: &'a Held,
    pub(super) keep_order: bool,
    pub(super) deadline: Instant,
    /// Receives what destinations answered, if the outbox keeps it.
    pub(super) answers: Option<&'a Answers>,
}

impl Pipeline {
    /// Waits until the sink's rate limit allows one more event. Returns `false` if that is not
    /// before the deadline.
    pub(crate) async fn wait_for_rate(&self, deadline: Instant) -> bool {
        let Some(rate) = &self.config.rate else { return true };
        let now = Instant::now();
        match rate.take(deadline.saturating_duration_since(now), now) {
            None => false,
            Some(Duration::ZERO) => true,
            Some(wait) => {
                let slept = self.abort.run_until_cancelled(tokio::time::sleep(wait)).await;
                slept.is_some()
            }
        }
    }

    /// Delivers events. Returns one outcome per event, whatever the sink does.
    pub(super) async fn deliver(
        &self,
        context: &CallContext<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        if events.is_empty() {
            return Vec::new();
        }
        // After the lease, another relay may already be working on these events.
        if !self.lease_keeper.holds(&context.held.lease) {
            return vec![Outcome::Untried; events.len()];
        }
        let started = Instant::now();
        // Events of destinations that are down have already been removed, so only a window or a
        // rate limit holds events back.
        let limited = self.config.rate.is_some() || self.health.has_window();
        let outcomes = if limited && !self.config.sink.enters_each() {
            self.deliver_in_waves(context, events, gate).await
        } else {
            self.deliver_all(context, events, gate).await
        };
        metrics::histogram!(telemetry::DELIVER_SECONDS,
            label::OUTBOX => self.config.outbox.name().to_owned())
        .record(started.elapsed().as_secs_f64());
        outcomes
    }

    /// Delivers events in one call, or one by one if the call fails as a whole.
    async fn deliver_all(
        &self,
        context: &CallContext<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        match self.call(context, events, gate).await {
            Ok(outcomes) => outcomes,
            Err(error) if events.len() == 1 => vec![Outcome::Retry { error }],
            Err(error) => {
                tracing::error!(outbox = self.config.outbox.name(), error, "one by one from here");
                self.deliver_each(context, events, gate).await
            }
        }
    }

    /// Delivers in calls no larger than the destinations' windows: a destination that has just come
    /// back gets one event, then two, then four.
    async fn deliver_in_waves(
        &self,
        context: &CallContext<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        let mut outcomes = Vec::with_capacity(events.len());
        let ours = || self.lease_keeper.holds(&context.held.lease);
        while let Some((first, rest)) = events[outcomes.len()..].split_first() {
            let batch = Batch::new(events, context.deadline).while_ours(&ours);
            let permit = match stopped.contains(&first.key()) {
                true => None,
                false => gate.enter(&batch, first, &self.destination(first)).await,
            };
            let Some(permit) = permit else {
                // Events of a key behind one that was not sent are not sent either, if order is
                // kept.
                stopped.extend(context.keep_order.then_some(first.key()));
                outcomes.push(Outcome::Untried);
                continue;
            };
            let mut permits = vec![permit];
            for event in rest.iter().take_while(|event| !stopped.contains(&event.key())) {
                let Some(permit) = gate.try_enter(event, &self.destination(event)) else { break };
                permits.push(permit);
            }
            let wave = &events[outcomes.len()..outcomes.len() + permits.len()];
            let answers = self.deliver_all(context, wave, gate).await;
            for ((event, answer), permit) in wave.iter().zip(&answers).zip(permits) {
                permit.leave(answer);
                let behind = context.keep_order && *answer != Outcome::Delivered;
                stopped.extend(behind.then_some(event.key()));
            }
            outcomes.extend(answers);
        }
        outcomes
    }

    /// Delivers each event by itself, after a call that failed as a whole: this finds the event
    /// that causes it, and the others do not spend attempts because of it.
    async fn deliver_each(
        &self,
        context: &CallContext<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Vec<Outcome> {
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        let mut outcomes = Vec::with_capacity(events.len());
        for event in events {
            let late =
                Instant::now() >= context.deadline || !self.lease_keeper.holds(&context.held.lease);
            if late || stopped.contains(&event.key()) {
                outcomes.push(Outcome::Untried);
                continue;
            }
            let answer = self.call(context, std::slice::from_ref(event), gate).await;
            let answer = answer.unwrap_or_else(|error| vec![Outcome::Retry { error }]);
            if context.keep_order && answer != [Outcome::Delivered] {
                stopped.insert(event.key());
            }
            outcomes.extend(answer);
        }
        outcomes
    }

    /// Calls the sink once; `Err` says why there is not one outcome per event.
    async fn call(
        &self,
        context: &CallContext<'_>,
        events: &[Event],
        gate: &DeliveryGate<'_>,
    ) -> Result<Vec<Outcome>, String> {
        let ours = || self.lease_keeper.holds(&context.held.lease);
        let batch = Batch::new(events, context.deadline).in_order(context.keep_order);
        let batch = batch.of_outbox(self.config.outbox.name());
        let batch = batch.while_ours(&ours).through(gate).answered_in(context.answers);
        let call = self.config.sink.deliver(batch);
        let all = |outcome: Outcome| Ok(vec![outcome; events.len()]);
        tokio::select! {
            // An answer that arrived in time counts, however late it is polled.
            biased;
            () = self.abort.cancelled() => all(Outcome::Untried),
            answer = AssertUnwindSafe(call).catch_unwind() => match answer {
                Ok(outcomes) if outcomes.len() == events.len() => Ok(outcomes),
                Ok(outcomes) => Err(format!(
                    "the sink answered {} outcomes for {} events",
                    outcomes.len(), events.len()
                )),
                Err(_) => Err("the sink panicked".to_owned()),
            },
            () = tokio::time::sleep_until(context.deadline + DEADLINE_GRACE) => {
                all(Outcome::Down {
                    error: format!("no answer within {:?}", self.config.deliver_timeout),
                    retry_after: None,
                    credentials: false,
                    cause: Cause::Unknown,
                })
            }
        }
    }
}
