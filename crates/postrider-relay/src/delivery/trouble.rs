//! Detects that work on an outbox makes no progress: claims, reads or settles that fail repeatedly,
//! or a pipeline that panics. Raises one alert while that lasts, which also makes `/readyz` fail,
//! and reports it with the heartbeat, so that `doctor` shows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_store::StoreError;
use tokio::time::Instant;

use crate::alerts::{Alert, Alerts, Severity};
use crate::lease::LeaseKeeper;

/// Prefix of the kind of these alerts; the name of the outbox follows. `/readyz` looks for it.
pub const TROUBLE_KIND: &str = "pipeline/";

/// Panics within [`CALM_AFTER`] of each other, or consecutive failures of any step but a settle,
/// that raise the alert.
const FAILURES_MAX: u32 = 5;
/// Failures of a settle in a row that raise the alert. A single row can cause fewer than this
/// before it becomes a dead letter.
const SETTLE_FAILURES_MAX: u32 = 10;
/// Failures for this long raise the alert, however few they are.
const FAILING_MAX: Duration = Duration::from_secs(30);
/// After this long without a panic, earlier ones are forgotten.
const CALM_AFTER: Duration = Duration::from_secs(60);
/// First and longest wait before a pipeline that panicked starts again; it doubles in between.
const RESTART: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Recent failures of the work on one outbox.
pub(crate) struct Trouble {
    outbox: String,
    alerts: Alerts,
    lease_keeper: Arc<LeaseKeeper>,
    recent: Mutex<Recent>,
}

/// Steps that fail independently: claims may succeed while every settle fails.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// A claim, or a read of lanes.
    Claim,
    /// Memory for more rows of lanes.
    Room,
    Settle,
}

/// Failures of one step in a row.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Recent {
    claims: Failures,
    room: Failures,
    settles: Failures,
    error: String,
    panics: u32,
    panicked_at: Option<Instant>,
    raised: bool,
}

impl Recent {
    fn failed(&mut self, step: Step, now: Instant) -> bool {
        let (failures, max) = match step {
            Step::Claim => (&mut self.claims, FAILURES_MAX),
            Step::Room => (&mut self.room, FAILURES_MAX),
            Step::Settle => (&mut self.settles, SETTLE_FAILURES_MAX),
        };
        failures.count = failures.count.saturating_add(1);
        let since = *failures.since.get_or_insert(now);
        failures.count >= max || now.duration_since(since) >= FAILING_MAX
    }

    fn panicked(&mut self, now: Instant) -> bool {
        self.forget_old_panics(now);
        self.panics = self.panics.saturating_add(1);
        self.panicked_at = Some(now);
        self.panics >= FAILURES_MAX
    }

    /// Returns whether nothing is wrong any longer.
    fn succeeded(&mut self, step: Step, now: Instant) -> bool {
        match step {
            Step::Claim => self.claims = Failures::default(),
            Step::Room => self.room = Failures::default(),
            Step::Settle => self.settles = Failures::default(),
        }
        self.forget_old_panics(now);
        let failing = [&self.claims, &self.room, &self.settles];
        self.panics == 0 && failing.iter().all(|failures| failures.count == 0)
    }

    fn forget_old_panics(&mut self, now: Instant) {
        if self.panicked_at.is_some_and(|at| now.duration_since(at) >= CALM_AFTER) {
            (self.panics, self.panicked_at) = (0, None);
        }
    }
}

impl Trouble {
    pub(crate) fn new(outbox: &str, alerts: Alerts, lease_keeper: Arc<LeaseKeeper>) -> Self {
        Self { outbox: outbox.to_owned(), alerts, lease_keeper, recent: Mutex::default() }
    }

    /// Records a failure. An unreachable database and a lost lease do not count; they are reported
    /// elsewhere.
    pub(crate) fn failed(&self, step: Step, error: &StoreError) {
        if matches!(error, StoreError::Unavailable(_) | StoreError::LeaseLost) {
            return;
        }
        self.record(step, error.to_string());
    }

    /// Records that no new rows are read because too many keys wait.
    pub(crate) fn no_room(&self, waiting: usize) {
        let error = format!(
            "{waiting} keys wait for their time or for a destination that is down, and no new rows \
             are read until some of them are done; claim mode `rows` has no such limit"
        );
        self.record(Step::Room, error);
    }

    fn record(&self, step: Step, error: String) {
        let mut recent = self.lock();
        recent.error = error;
        if recent.failed(step, Instant::now()) {
            let error = recent.error.clone();
            self.raise(&mut recent, error);
        }
    }

    /// Raises the alert if nothing could be tried since the last failure because a batch in flight
    /// does not end.
    pub(crate) fn still_waiting(&self) {
        let mut recent = self.lock();
        if recent.claims.since.is_some_and(|since| since.elapsed() >= FAILING_MAX) {
            let error = recent.error.clone();
            self.raise(&mut recent, error);
        }
    }

    /// Records a panic of the pipeline or of a batch. Returns how long to wait before the next
    /// start.
    pub(crate) fn panicked(&self) -> Duration {
        let mut recent = self.lock();
        if recent.panicked(Instant::now()) {
            self.raise(&mut recent, "panics again and again; the log says where".to_owned());
        }
        (RESTART.0 * 2_u32.saturating_pow(recent.panics.min(16) - 1)).min(RESTART.1)
    }

    pub(crate) fn succeeded(&self, step: Step) {
        let mut recent = self.lock();
        if recent.succeeded(step, Instant::now()) && std::mem::take(&mut recent.raised) {
            self.lease_keeper.note_trouble(&self.outbox, None);
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
        self.lease_keeper.note_trouble(name, Some(error.clone()));
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
        let raised: Vec<_> = (0..5).map(|_| recent.failed(Step::Claim, now)).collect();
        assert_eq!(raised, [false, false, false, false, true]);
        assert!(recent.succeeded(Step::Claim, now));
        assert!(!recent.failed(Step::Claim, now), "counted from the beginning");
        assert!(recent.failed(Step::Claim, now + FAILING_MAX), "few, but for a long time");
    }

    #[test]
    fn claims_that_succeed_do_not_hide_settles_that_fail() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for _ in 1..SETTLE_FAILURES_MAX {
            assert!(!recent.failed(Step::Settle, now));
            assert!(!recent.succeeded(Step::Claim, now), "settles still fail");
        }
        assert!(recent.failed(Step::Settle, now));
        assert!(recent.succeeded(Step::Settle, now));
    }

    #[test]
    fn panics_are_forgotten_by_time_only() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let raised: Vec<_> = (0..5).map(|_| recent.panicked(now)).collect();
        assert_eq!(raised, [false, false, false, false, true]);
        assert!(!recent.succeeded(Step::Claim, now), "claims succeed between two panics");
        assert!(recent.succeeded(Step::Claim, now + CALM_AFTER));
        assert!(!recent.panicked(now + CALM_AFTER));
    }
}
