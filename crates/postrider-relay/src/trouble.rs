//! Notices that the work on one outbox does not get on: claims or reads that fail again and again, a
//! pipeline that panics. Raises one alert while that lasts, which also makes `/readyz` fail, and
//! tells the others with the heartbeat, so that `doctor` names it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider::StoreError;
use tokio::time::Instant;

use crate::alert::{Alert, Alerts, Severity};
use crate::heart::Heart;

/// The kind of these alerts is this and the outbox. Whoever asks whether a relay is ready looks for it.
pub const TROUBLE_KIND: &str = "pipeline/";

/// Failures in a row that make trouble.
const FAILURES_MAX: u32 = 5;
/// Failures for this long make trouble, however few they are.
const FAILING_MAX: Duration = Duration::from_secs(30);
/// Without a panic for this long, earlier ones are forgotten.
const CALM_AFTER: Duration = Duration::from_secs(60);
/// Wait before a pipeline that panicked starts again; doubles up to the second.
const RESTART: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// What went wrong with the work on one outbox lately.
pub(crate) struct Trouble {
    outbox: String,
    alerts: Alerts,
    heart: Arc<Heart>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    failures: u32,
    failing_since: Option<Instant>,
    error: String,
    panics: u32,
    panicked_at: Option<Instant>,
    raised: bool,
}

impl Recent {
    fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        self.failures >= FAILURES_MAX || now.duration_since(since) >= FAILING_MAX
    }

    fn panicked(&mut self, now: Instant) -> bool {
        self.forget_old_panics(now);
        self.panics = self.panics.saturating_add(1);
        self.panicked_at = Some(now);
        self.panics >= FAILURES_MAX
    }

    /// Whether nothing is wrong any more.
    fn succeeded(&mut self, now: Instant) -> bool {
        (self.failures, self.failing_since) = (0, None);
        self.forget_old_panics(now);
        self.panics == 0
    }

    fn forget_old_panics(&mut self, now: Instant) {
        if self.panicked_at.is_some_and(|at| now.duration_since(at) >= CALM_AFTER) {
            (self.panics, self.panicked_at) = (0, None);
        }
    }
}

impl Trouble {
    pub(crate) fn new(outbox: &str, alerts: Alerts, heart: Arc<Heart>) -> Self {
        Self { outbox: outbox.to_owned(), alerts, heart, recent: Mutex::default() }
    }

    /// A claim or a read failed. That the database is away is another alert's matter.
    pub(crate) fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::Unavailable(_) | StoreError::LeaseLost) {
            return;
        }
        let mut recent = self.lock();
        recent.error = error.to_string();
        if recent.failed(Instant::now()) {
            let error = recent.error.clone();
            self.raise(&mut recent, error);
        }
    }

    /// Nothing could be tried since the last failure: a batch in flight does not end.
    pub(crate) fn still_waiting(&self) {
        let mut recent = self.lock();
        if recent.failing_since.is_some_and(|since| since.elapsed() >= FAILING_MAX) {
            let error = recent.error.clone();
            self.raise(&mut recent, error);
        }
    }

    /// The pipeline or a batch panicked. Answers how long to wait before the next start.
    pub(crate) fn panicked(&self) -> Duration {
        let mut recent = self.lock();
        if recent.panicked(Instant::now()) {
            self.raise(&mut recent, "panics again and again; the log says where".to_owned());
        }
        (RESTART.0 * 2_u32.saturating_pow(recent.panics.min(16) - 1)).min(RESTART.1)
    }

    /// A claim or a read succeeded.
    pub(crate) fn succeeded(&self) {
        let mut recent = self.lock();
        if recent.succeeded(Instant::now()) && std::mem::take(&mut recent.raised) {
            self.heart.note_trouble(&self.outbox, None);
            let name = &self.outbox;
            self.alerts
                .end(format!("{TROUBLE_KIND}{name}"), format!("Outbox {name} is delivered again"));
        }
    }

    fn raise(&self, recent: &mut Recent, error: String) {
        if std::mem::replace(&mut recent.raised, true) {
            return;
        }
        let name = &self.outbox;
        self.heart.note_trouble(name, Some(error.clone()));
        self.alerts.begin(Alert {
            severity: Severity::Critical,
            kind: format!("{TROUBLE_KIND}{name}"),
            title: format!(
                "Outbox {name} is not delivered by this relay: its work fails repeatedly"
            ),
            fields: vec![("error", error)],
            event: None,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_in_a_row_are_trouble_and_a_success_ends_it() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let raised: Vec<_> = (0..5).map(|_| recent.failed(now)).collect();
        assert_eq!(raised, [false, false, false, false, true]);
        assert!(recent.succeeded(now));
        assert!(!recent.failed(now), "counted from the beginning");
        assert!(recent.failed(now + FAILING_MAX), "few, but for a long time");
    }

    #[test]
    fn panics_are_forgotten_by_time_only() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let raised: Vec<_> = (0..5).map(|_| recent.panicked(now)).collect();
        assert_eq!(raised, [false, false, false, false, true]);
        assert!(!recent.succeeded(now), "claims succeed between two panics");
        assert!(recent.succeeded(now + CALM_AFTER));
        assert!(!recent.panicked(now + CALM_AFTER));
    }
}
