//! The way of one batch: verify → deliver → decide. The same in every claim mode.

use std::borrow::Cow;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use postrider::Event;
use postrider::store::DeadReason;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::alert::{Alert, Alerts, Severity};
use crate::config::OutboxConfig;
use crate::health::{Health, Turn};
use crate::heart::{Heart, Held};
use crate::policy::{Settlement, decide, examine};
use crate::sink::{Batch, Outcome};
use crate::telemetry;

/// Time that a sink gets beyond its deadline to answer.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);

pub(crate) struct Courier {
    pub(crate) config: OutboxConfig,
    pub(crate) heart: Arc<Heart>,
    pub(crate) health: Health,
    pub(crate) alerts: Alerts,
    /// A destination that was down takes events again.
    pub(crate) came_back: Notify,
    /// The stop deadline has passed: start nothing, wait for nothing.
    pub(crate) abort: CancellationToken,
}

/// What became of a batch.
pub(crate) struct Carried {
    /// Ids ascending.
    pub(crate) settled: Vec<(Event, Settlement)>,
    pub(crate) took: Duration,
}

impl Courier {
    /// Verifies, delivers and decides one batch. With `keep_order`, an event of a key is sent only
    /// when the one before it was delivered.
    pub(crate) async fn carry(&self, held: &Held, events: Vec<Event>, keep_order: bool) -> Carried {
        let started = Instant::now();
        let (mut good, mut settled) = (Vec::with_capacity(events.len()), Vec::new());
        for event in events {
            match examine(&event, &self.config.preset) {
                None => good.push(event),
                Some(settlement) => {
                    self.tell_integrity(&event, &settlement);
                    settled.push((event, settlement));
                }
            }
        }
        let outcomes = self.deliver(held, &good, keep_order).await;
        let took = started.elapsed();
        for (event, outcome) in good.iter().zip(&outcomes) {
            let destination = self.destination(event);
            if let Some(turn) = self.health.record(&destination, event, outcome, took) {
                self.tell_turn(&destination, outcome, turn);
            }
            self.tell_credentials(&destination, outcome);
        }
        for (event, outcome) in good.into_iter().zip(outcomes) {
            let health = self.health.view(&self.destination(&event));
            let settlement = decide(&outcome, &event, &health, &self.config.preset, rand::random());
            settled.push((event, settlement));
        }
        // In id order: two settles that meet in the database wait instead of deadlocking.
        settled.sort_by_key(|(event, _)| event.id);
        Carried { settled, took }
    }

    /// The sink's word for where the event goes. A sink that panics here, after the delivery, must
    /// not have the batch delivered over and over.
    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let sink = &self.config.sink;
        catch_unwind(AssertUnwindSafe(|| sink.destination(event)))
            .unwrap_or_else(|_| Cow::Borrowed(sink.name()))
    }

    /// One outcome per event, whatever the sink does.
    async fn deliver(&self, held: &Held, events: &[Event], keep_order: bool) -> Vec<Outcome> {
        if events.is_empty() {
            return Vec::new();
        }
        // Past the lease another relay may be at work on these events already.
        if !self.heart.holds(&held.lease) {
            return vec![Outcome::Untried; events.len()];
        }
        let started = Instant::now();
        let deadline = started + self.config.deliver_timeout;
        let outcomes = match self.call(held, events, deadline, keep_order).await {
            Ok(outcomes) => outcomes,
            Err(error) if events.len() == 1 => vec![Outcome::Retry { error }],
            Err(error) => {
                tracing::error!(outbox = self.config.outbox.name(), error, "one by one from here");
                self.deliver_each(held, events, deadline, keep_order).await
            }
        };
        metrics::histogram!(telemetry::DELIVER_SECONDS,
            "outbox" => self.config.outbox.name().to_owned())
        .record(started.elapsed().as_secs_f64());
        outcomes
    }

    /// Each by itself, after a call that went wrong as a whole: the event that it is about shows,
    /// and the others do not spend their attempts with it.
    async fn deliver_each(
        &self,
        held: &Held,
        events: &[Event],
        deadline: Instant,
        keep_order: bool,
    ) -> Vec<Outcome> {
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        let mut outcomes = Vec::with_capacity(events.len());
        for event in events {
            let late = Instant::now() >= deadline || !self.heart.holds(&held.lease);
            if late || stopped.contains(&event.key()) {
                outcomes.push(Outcome::Untried);
                continue;
            }
            let answer = self.call(held, std::slice::from_ref(event), deadline, keep_order).await;
            let answer = answer.unwrap_or_else(|error| vec![Outcome::Retry { error }]);
            if keep_order && answer != [Outcome::Delivered] {
                stopped.insert(event.key());
            }
            outcomes.extend(answer);
        }
        outcomes
    }

    /// One call of the sink; `Err` says why there is not one outcome per event.
    async fn call(
        &self,
        held: &Held,
        events: &[Event],
        deadline: Instant,
        keep_order: bool,
    ) -> Result<Vec<Outcome>, String> {
        let ours = || self.heart.holds(&held.lease);
        let batch = Batch::new(events, deadline).in_order(keep_order).while_ours(&ours);
        let call = self.config.sink.deliver(batch);
        let all = |outcome: Outcome| Ok(vec![outcome; events.len()]);
        tokio::select! {
            () = self.abort.cancelled() => all(Outcome::Untried),
            () = tokio::time::sleep_until((deadline + DEADLINE_GRACE).into()) => all(Outcome::Down {
                error: format!("no answer within {:?}", self.config.deliver_timeout),
                retry_after: None,
                credentials: false,
            }),
            answer = AssertUnwindSafe(call).catch_unwind() => match answer {
                Ok(outcomes) if outcomes.len() == events.len() => Ok(outcomes),
                Ok(outcomes) => Err(format!(
                    "the sink answered {} outcomes for {} events",
                    outcomes.len(), events.len()
                )),
                Err(_) => Err("the sink panicked".to_owned()),
            },
        }
    }

    fn tell_integrity(&self, event: &Event, settlement: &Settlement) {
        let Settlement::Dead { reason: DeadReason::Integrity, message, .. } = settlement else {
            return;
        };
        let name = self.config.outbox.name();
        metrics::counter!(telemetry::INTEGRITY_FAILURE, "outbox" => name.to_owned()).increment(1);
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("integrity/{name}/{}", event.id),
            title: format!("Integrity failure in outbox {name}"),
            fields: vec![
                ("id", event.id.to_string()),
                ("event_id", event.event_id.clone()),
                ("type", event.event_type.clone()),
                ("error", message.clone()),
            ],
            event: None,
        });
    }

    fn tell_turn(&self, destination: &str, outcome: &Outcome, turn: Turn) {
        let (outbox, sink) = (self.config.outbox.name(), self.config.sink.name());
        match (turn, outcome) {
            (Turn::WentDown, Outcome::Down { error, .. }) => tracing::warn!(
                outbox,
                sink,
                destination,
                error,
                "destination is down: events wait, no attempts are spent"
            ),
            (Turn::WentDown, _) => {}
            (Turn::CameBack { after }, _) => {
                tracing::info!(outbox, sink, destination, ?after, "destination is back");
                self.came_back.notify_one();
            }
        }
    }

    fn tell_credentials(&self, destination: &str, outcome: &Outcome) {
        let Outcome::Down { credentials: true, error, .. } = outcome else { return };
        let sink = self.config.sink.name();
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("credentials/{sink}/{destination}"),
            title: format!("Sink {sink}: {destination} refuses our credentials"),
            fields: vec![("error", error.clone())],
            event: None,
        });
    }
}
