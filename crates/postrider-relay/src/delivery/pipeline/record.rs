//! Records the outcomes of deliveries.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use postrider_store::Event;
use tokio::time::Instant;

use super::Pipeline;
use crate::delivery::gate::DeliveryGate;
use crate::destination::live_calls::LiveCall;
use crate::outcome::{Cause, Outcome};

impl Pipeline {
    /// Records the outcomes that the sink did not report one by one.
    pub(super) fn record_all(
        &self,
        events: &[Event],
        outcomes: &[Outcome],
        gate: &DeliveryGate<'_>,
        took: Duration,
        sent_at: Instant,
    ) {
        // The usual case, all delivered, is recorded per destination: locking once per event would
        // cost more than everything else here.
        let all = outcomes.iter().all(|outcome| *outcome == Outcome::Delivered);
        if all && gate.recorded_nothing() && self.health.ailing_server().is_none() {
            for (destination, events) in self.by_destination(events) {
                if self.health.all_delivered(&destination, &events, took, Instant::now()) {
                    self.observations.tally.all_delivered(&events, Instant::now());
                    continue;
                }
                for event in events {
                    self.record(&destination, event, &Outcome::Delivered, took, sent_at);
                }
            }
            return;
        }
        for (event, outcome) in events.iter().zip(outcomes) {
            if !gate.was_recorded(event) {
                self.record(&self.own_destination(event), event, outcome, took, sent_at);
            }
        }
    }

    fn by_destination<'a>(&'a self, events: &'a [Event]) -> HashMap<Cow<'a, str>, Vec<&'a Event>> {
        if let Some(only) = self.config.sink.only_destination() {
            return HashMap::from([(Cow::Borrowed(only), events.iter().collect())]);
        }
        let mut groups = HashMap::<_, Vec<_>>::new();
        for event in events {
            groups.entry(self.own_destination(event)).or_default().push(event);
        }
        groups
    }

    /// Records the outcome of an event in its breaker, and reports changes.
    pub(crate) fn record(
        &self,
        destination: &str,
        event: &Event,
        outcome: &Outcome,
        took: Duration,
        sent_at: Instant,
    ) {
        let now = Instant::now();
        self.observations.tally.record(event, outcome, now);
        let record = |destination: &str, outcome: &Outcome| {
            let turn = self.health.record(destination, event, outcome, took, sent_at, now);
            if let Some(turn) = turn {
                self.report_turn(destination, outcome, turn);
            }
            self.report_credentials(destination, outcome);
        };
        match (self.config.sink.server(), outcome) {
            (Some(server), Outcome::Down { cause: Cause::Server, .. }) => record(server, outcome),
            (Some(server), _) => {
                record(&self.own_destination(event), outcome);
                // The server answered, or was not asked. If a connection broke, nothing is known
                // about it.
                let unknown = matches!(outcome, Outcome::Down { cause: Cause::Unknown, .. });
                if !unknown && self.health.ailing_server().is_some() {
                    record(server, &answered_for(outcome));
                }
            }
            (None, _) => record(destination, outcome),
        }
    }

    /// Reports the calls that others made to the destinations of this sink. Never returns.
    pub(crate) async fn follow_live_calls(&self) -> Infallible {
        loop {
            for LiveCall { destination, outcome, turn } in self.health.live_calls.next().await {
                self.observations.tally.heard_live(&outcome, Instant::now());
                if let Some(turn) = turn {
                    self.report_turn(&destination, &outcome, turn);
                }
                self.report_credentials(&destination, &outcome);
            }
        }
    }
}

/// Converts an outcome about a destination into one about the server that gave it.
fn answered_for(outcome: &Outcome) -> Cow<'_, Outcome> {
    match outcome {
        Outcome::Down { error, .. } => Cow::Owned(Outcome::Retry { error: error.clone() }),
        other => Cow::Borrowed(other),
    }
}
