//! A channel that records its alerts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use postrider_relay::alerts::{Channel, Message, MessageState, NotSent, Severity, Subscription};
use tokio::sync::watch;

use crate::PATIENCE;

/// A channel for tests; clones share the record.
#[derive(Clone)]
pub struct RecordedAlerts {
    name: &'static str,
    payloads: bool,
    reports: bool,
    severity_min: Severity,
    /// Number of sends that still fail before one succeeds.
    failures: Arc<AtomicU32>,
    tries: Arc<AtomicU32>,
    gate: Arc<watch::Sender<bool>>,
    alerts: Arc<watch::Sender<Vec<Message>>>,
}

impl RecordedAlerts {
    /// Creates a channel that may, or may not, contain payloads.
    pub fn new(payloads: bool) -> Self {
        Self {
            name: "recorded",
            payloads,
            reports: false,
            severity_min: Severity::Info,
            failures: Arc::default(),
            tries: Arc::default(),
            gate: Arc::new(watch::Sender::new(true)),
            alerts: Arc::default(),
        }
    }

    /// Creates a channel with its own name in the metrics.
    pub fn named(name: &'static str) -> Self {
        Self { name, ..Self::new(false) }
    }

    /// Subscribes it to reports as well.
    #[must_use]
    pub fn with_reports(self) -> Self {
        Self { reports: true, ..self }
    }

    /// Sets its minimum severity.
    #[must_use]
    pub fn from(self, severity_min: Severity) -> Self {
        Self { severity_min, ..self }
    }

    /// Makes the next sends fail.
    pub fn fail(&self, sends: u32) {
        self.failures.store(sends, Ordering::SeqCst);
    }

    /// Holds sends until [`RecordedAlerts::open`].
    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    /// Lets sends through.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Returns the number of attempted sends.
    pub fn tries(&self) -> u32 {
        self.tries.load(Ordering::SeqCst)
    }

    /// Returns the sent messages.
    pub fn sent(&self) -> Vec<Message> {
        self.alerts.borrow().clone()
    }

    /// Returns the subscription for a relay.
    pub fn subscribed(&self) -> Subscription {
        Subscription {
            payloads: self.payloads,
            reports: self.reports,
            severity_min: self.severity_min,
            ..Subscription::new(self.clone())
        }
    }

    /// Waits for a message whose title contains the text.
    ///
    /// # Panics
    /// After [`PATIENCE`], showing what was sent instead.
    pub async fn until(&self, title: &str) -> Message {
        self.until_any(title, |message| message.title.contains(title)).await
    }

    /// Like [`until`](Self::until), for a message in state resolved.
    pub async fn until_resolved(&self, title: &str) -> Message {
        let over = |message: &Message| {
            message.state == MessageState::Resolved && message.title.contains(title)
        };
        self.until_any(&format!("resolved: {title}"), over).await
    }

    async fn until_any(&self, what: &str, fits: impl Fn(&Message) -> bool) -> Message {
        let mut alerts = self.alerts.subscribe();
        let found = alerts.wait_for(|sent| sent.iter().any(&fits));
        if tokio::time::timeout(PATIENCE, found).await.is_err() {
            let titles: Vec<_> = self.sent().into_iter().map(|m| (m.state, m.title)).collect();
            panic!("within {PATIENCE:?}, no message with `{what}` came, but {titles:#?}");
        }
        self.sent().into_iter().find(fits).unwrap()
    }
}

#[async_trait]
impl Channel for RecordedAlerts {
    fn name(&self) -> &str {
        self.name
    }

    fn target(&self) -> &str {
        "a test"
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.subscribe().wait_for(|open| *open).await);
        let failing = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if failing.is_ok() {
            return Err(NotSent::for_now("scripted failure"));
        }
        self.alerts.send_modify(|alerts| alerts.push(message.clone()));
        Ok("remembered".to_owned())
    }
}
