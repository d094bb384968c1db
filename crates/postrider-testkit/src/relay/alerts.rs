//! A channel that remembers the alerts it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use postrider_relay::alert::{Alert, Channel};
use tokio::sync::watch;

use crate::PATIENCE;

/// A channel for tests; clones share what they remember.
#[derive(Clone)]
pub struct RecordedAlerts {
    name: &'static str,
    payloads: bool,
    /// Sends that still fail before one succeeds.
    failures: Arc<AtomicU32>,
    tries: Arc<AtomicU32>,
    gate: Arc<watch::Sender<bool>>,
    alerts: Arc<watch::Sender<Vec<Alert>>>,
}

impl RecordedAlerts {
    /// A channel that may, or may not, carry payloads.
    pub fn new(payloads: bool) -> Self {
        Self {
            name: "recorded",
            payloads,
            failures: Arc::default(),
            tries: Arc::default(),
            gate: Arc::new(watch::Sender::new(true)),
            alerts: Arc::default(),
        }
    }

    /// A channel with a name of its own in the metrics.
    pub fn named(name: &'static str) -> Self {
        Self { name, ..Self::new(false) }
    }

    /// The next sends fail.
    pub fn fail(&self, sends: u32) {
        self.failures.store(sends, Ordering::SeqCst);
    }

    /// Sends wait until [`RecordedAlerts::open`].
    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    /// Sends go on.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Sends tried.
    pub fn tries(&self) -> u32 {
        self.tries.load(Ordering::SeqCst)
    }

    /// What was sent.
    pub fn sent(&self) -> Vec<Alert> {
        self.alerts.borrow().clone()
    }

    /// As the relay takes it.
    pub fn boxed(&self) -> Box<dyn Channel> {
        Box::new(self.clone())
    }

    /// Waits for an alert whose title contains the text.
    ///
    /// # Panics
    /// After [`PATIENCE`], showing what was sent instead.
    pub async fn until(&self, title: &str) -> Alert {
        let mut alerts = self.alerts.subscribe();
        let found = alerts.wait_for(|sent| sent.iter().any(|alert| alert.title.contains(title)));
        if tokio::time::timeout(PATIENCE, found).await.is_err() {
            let titles: Vec<_> = self.sent().into_iter().map(|alert| alert.title).collect();
            panic!("within {PATIENCE:?}, no alert with `{title}` came, but {titles:#?}");
        }
        self.sent().into_iter().find(|alert| alert.title.contains(title)).unwrap()
    }
}

#[async_trait]
impl Channel for RecordedAlerts {
    fn name(&self) -> &str {
        self.name
    }

    fn carries_payloads(&self) -> bool {
        self.payloads
    }

    async fn send(&self, alert: &Alert) -> Result<(), String> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.subscribe().wait_for(|open| *open).await);
        let failing = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if failing.is_ok() {
            return Err("scripted failure".to_owned());
        }
        self.alerts.send_modify(|alerts| alerts.push(alert.clone()));
        Ok(())
    }
}
