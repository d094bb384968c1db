//! Alerts, logs and metrics about outcomes.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use chrono::Utc;
use postrider_store::{DeadReason, DownDestination, Event, StoreError};

use super::Pipeline;
use crate::alerts::{Alert, Severity};
use crate::destination::health::Turn;
use crate::outcome::Outcome;
use crate::policy::Settlement;
use crate::telemetry::{self, label};

/// Characters of an error that the list of relays shows.
const ERROR_SHOWN_CHARS: usize = 200;

impl Pipeline {
    pub(super) fn report_integrity(&self, event: &Event, settlement: &Settlement) {
        let Settlement::Dead { reason: DeadReason::Integrity, message, .. } = settlement else {
            return;
        };
        let name = self.config.outbox.name();
        metrics::counter!(telemetry::INTEGRITY_FAILURE, label::OUTBOX => name.to_owned())
            .increment(1);
        if !self.config.preset.alerts.integrity {
            return;
        }
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("integrity/{name}"),
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

    /// Reports that the outbox was truncated or restored, or that a failover lost commits. The
    /// relay forgets what it has read, and operators must know that events may be missing or
    /// delivered again.
    pub(crate) fn report_changed_history(&self, error: &StoreError) {
        let name = self.config.outbox.name();
        tracing::error!(outbox = name, %error, "reading the outbox from the beginning");
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("history-changed/{name}"),
            title: format!("Outbox {name} went back to an earlier state"),
            fields: vec![
                ("error", error.to_string()),
                (
                    "what to do",
                    "run `postrider reconcile`; events that the database lost must be appended \
                     again, and some may be delivered twice"
                        .to_owned(),
                ),
            ],
            event: None,
        });
    }

    pub(super) fn report_turn(&self, destination: &str, outcome: &Outcome, turn: Turn) {
        let (outbox, sink) = (self.config.outbox.name(), self.config.sink.name());
        let labels = self.labels();
        let open = self.health.open_count();
        self.observations.open.store(open, Ordering::Relaxed);
        metrics::gauge!(telemetry::DESTINATION_OPEN, &labels).set(open as f64);
        let opened = u64::from(turn == Turn::WentDown);
        metrics::counter!(telemetry::DESTINATION_OPENED, &labels).increment(opened);
        match (turn, outcome) {
            (Turn::WentDown, Outcome::Down { error, .. }) => {
                tracing::warn!(
                    outbox,
                    sink,
                    destination,
                    error,
                    "destination is down: events wait, no attempts are spent"
                );
                let down = DownDestination {
                    sink: sink.to_owned(),
                    destination: destination.to_owned(),
                    since: Utc::now(),
                    error: error.chars().take(ERROR_SHOWN_CHARS).collect(),
                };
                self.lease_keeper.note_down(outbox, down);
            }
            (Turn::WentDown, _) => {}
            (Turn::CameBack { after }, _) => {
                self.lease_keeper.note_back(outbox, destination);
                tracing::info!(outbox, sink, destination, ?after, "destination is back");
                self.came_back.notify_one();
            }
        }
    }

    /// Begins an alert when credentials are refused, because an operator must act. Any other answer
    /// ends it.
    pub(super) fn report_credentials(&self, destination: &str, outcome: &Outcome) {
        if outcome.is_silent() {
            return;
        }
        let sink = self.config.sink.name();
        let kind = format!("credentials/{sink}/{destination}");
        let mut refusing = self.refusing.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Outcome::Down { credentials: true, error, .. } => {
                refusing.insert(destination.to_owned());
                self.alerts.begin(Alert {
                    severity: Severity::Critical,
                    kind,
                    title: format!("Sink {sink}: {destination} refuses our credentials"),
                    fields: vec![("error", error.clone())],
                    event: None,
                });
            }
            _ if refusing.remove(destination) => {
                self.alerts.end(kind, format!("Sink {sink}: {destination} takes our credentials"));
            }
            _ => {}
        }
    }
}
