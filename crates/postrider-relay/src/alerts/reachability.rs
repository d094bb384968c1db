//! Raises an alert when a server has not answered for a while, and ends it when the server is back.
//!
//! The alert does not depend on the database: the dispatcher and its channels run in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::alerts::{Alert, Alerts, Severity};

/// Tracks whether one server answers.
pub(crate) struct Reachability {
    /// Kind of the alert.
    kind: String,
    /// Name of the server in messages, such as "The store".
    server: String,
    /// How long it may be silent before an alert is raised.
    silent_max: Duration,
    /// When the first request that got no answer was sent; `None` while the server answers.
    silent_since: Option<Instant>,
    /// Whether the alert has been raised.
    reported: bool,
    /// Whether the last request failed, for readers in this process such as `/readyz`.
    fails: Arc<AtomicBool>,
    alerts: Alerts,
}

impl Reachability {
    /// Creates the state of a server that has not been asked yet.
    pub(crate) fn new(kind: String, server: String, silent_max: Duration, alerts: Alerts) -> Self {
        let fails = Arc::default();
        Self { kind, server, silent_max, silent_since: None, reported: false, fails, alerts }
    }

    /// Creates the state of the store, as the heartbeat sees it.
    pub(crate) fn of_store(silent_max: Duration, alerts: Alerts) -> Self {
        Self::new("store-unreachable".to_owned(), "The store".to_owned(), silent_max, alerts)
    }

    /// Shares `fails` with its readers.
    pub(crate) fn shown_by(mut self, fails: Arc<AtomicBool>) -> Self {
        self.fails = fails;
        self
    }

    /// Records that the server answered.
    pub(crate) fn answered(&mut self) {
        self.silent_since = None;
        self.fails.store(false, Ordering::Relaxed);
        if std::mem::take(&mut self.reported) {
            let title = format!("{} answers again", self.server);
            tracing::info!(kind = self.kind, "{title}");
            self.alerts.end(&self.kind, title);
        }
    }

    /// Records that a request sent at `asked_at` failed with `error`.
    pub(crate) fn failed(&mut self, asked_at: Instant, error: &str) {
        self.fails.store(true, Ordering::Relaxed);
        let silent = self.silent_since.get_or_insert(asked_at).elapsed();
        if silent < self.silent_max {
            return;
        }
        self.reported = true;
        self.alerts.begin(Alert {
            severity: Severity::Critical,
            kind: self.kind.clone(),
            title: format!("{} has not answered for {} s", self.server, silent.as_secs()),
            fields: vec![("error", error.chars().take(300).collect())],
            event: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::{AlertRegistry, AlertSettings, Dispatcher};
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_after_its_limit_and_its_end_once() {
        let (alerts, dispatcher) = Dispatcher::new(Vec::new(), AlertSettings::default());
        let registry = Arc::new(AlertRegistry::default());
        tokio::spawn(dispatcher.into_registry(Arc::clone(&registry)).run(Default::default()));
        let limit = Duration::from_secs(30);
        let mut store = Reachability::of_store(limit, alerts);
        let active = async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            registry.lists().active.into_iter().map(|entry| entry.kind).collect::<Vec<_>>()
        };
        let began = Instant::now();

        store.failed(began, "refused");
        tokio::time::advance(limit - Duration::from_secs(1)).await;
        store.failed(Instant::now(), "refused");
        assert!(active().await.is_empty(), "not yet");
        tokio::time::advance(Duration::from_secs(1)).await;
        store.failed(Instant::now(), "refused");
        assert_eq!(active().await, ["store-unreachable"]);
        store.answered();
        assert!(active().await.is_empty());
        assert_eq!(registry.lists().past.len(), 1);
        store.failed(Instant::now(), "refused");
        assert!(active().await.is_empty(), "counted anew after an answer");
    }
}
