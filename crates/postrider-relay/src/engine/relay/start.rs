//! The start: what must hold before a relay works on anything.
//!
//! The relay waits for a database that cannot be reached, as it does later: a session that is cut
//! while a relay starts must not end the process. Anything that waiting does not change is an
//! error.

use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider::internal::DoublingWait;
use postrider_store::{Lease, SchemaState, Serving};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Relay, RelayError};
use crate::alerts::reachability::Reachability;
use crate::alerts::{Alerts, Dispatcher};
use crate::lease::keeper;

/// First and longest wait between attempts.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The parts that send alerts, and the reachability of the store so far.
pub(super) struct Alerting {
    pub(super) alerts: Alerts,
    pub(super) dispatcher: JoinHandle<()>,
    pub(super) store_answers: Reachability,
}

/// The result of a start: the outboxes to work on, and the lease if it was granted.
pub(super) type Begun = (Vec<Serving>, Option<Lease>);

impl Relay {
    /// Waits until the database shows whether this relay can work. Returns `None` if the stop came
    /// first. A database that stays unreachable raises an alert, as it does later; unless that
    /// happens, no alerts are started, and `alerting` stays empty.
    pub(super) async fn begin(
        &mut self,
        alerting: &mut Option<Alerting>,
        stop_alerts: &CancellationToken,
        stop: &CancellationToken,
    ) -> Result<Option<Begun>, RelayError> {
        let names: Vec<Outbox> = self.outboxes.iter().map(|o| o.outbox.clone()).collect();
        let mut wait = DoublingWait::new(WAIT.0, WAIT.1);
        loop {
            let started = Instant::now();
            let error = match self.try_begin(&names).await {
                Err(RelayError::Store(error)) if error.is_transient() => error,
                outcome => return outcome.map(Some),
            };
            tracing::warn!(%error, "the start waits for the store; trying again");
            let alerting = alerting.get_or_insert_with(|| self.start_alerts(stop_alerts));
            alerting.store_answers.failed(started, &error.to_string());
            if stop.run_until_cancelled(tokio::time::sleep(wait.take())).await.is_none() {
                return Ok(None);
            }
        }
    }

    async fn try_begin(&self, names: &[Outbox]) -> Result<Begun, RelayError> {
        match self.store.schema_state(names).await? {
            SchemaState::Ready => {}
            SchemaState::NeedsMigration(what) => {
                return Err(RelayError::Schema(format!("{what}; run `postrider migrate` first")));
            }
            SchemaState::TooNew(what) => {
                return Err(RelayError::Schema(format!("{what}; install a newer postrider")));
            }
        }
        #[cfg(feature = "buffer")]
        for buffer in &self.buffers {
            buffer.check(self.store.as_ref()).await?;
        }
        let serving = self.serving().await?;
        // A relay without the right to register would wait forever, and look healthy from outside.
        let registered = keeper::register(self.store.as_ref(), &self.config, serving.clone()).await;
        match registered {
            Ok(lease) => Ok((serving, Some(lease))),
            // The first heartbeat registers.
            Err(error) if error.is_transient() => Ok((serving, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts to send alerts.
    pub(super) fn start_alerts(&mut self, stop: &CancellationToken) -> Alerting {
        let channels = std::mem::take(&mut self.channels);
        let (alerts, dispatcher) = Dispatcher::new(channels, self.alert_settings);
        let dispatcher = dispatcher.into_registry(Arc::clone(&self.registry));
        let dispatcher = tokio::spawn(dispatcher.run(stop.clone()));
        let store_answers = Reachability::of_store(self.config.unreachable_after, alerts.clone())
            .shown_by(Arc::clone(&self.heartbeat_fails));
        Alerting { alerts, dispatcher, store_answers }
    }
}
