//! The monitor: checks each outbox every minute, judges the results, and reports every ten minutes.
//!
//! One relay watches the tables for all: the oldest of those that serve the outbox. Each relay
//! watches its own attempts. Nothing here reads a table as a whole: see `docs/decisions/0016`.

pub mod judge;
mod report;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_store::{Database, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::alerts::Alerts;
use crate::config::{OutboxConfig, RelayConfig};
use crate::lease::Membership;
pub use crate::observations::Attempts;
use crate::observations::Observations;
use crate::telemetry::{self, label};
use crate::timer::Every;
use judge::{AttemptSample, StoreSample, Verdict, Watched, judge_attempts, judge_store};

/// Maximum number of rows that a check reads.
const ROWS_MAX: u32 = 10_000;

pub(crate) struct Monitor {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) config: RelayConfig,
    pub(crate) outboxes: Vec<(OutboxConfig, Arc<Observations>)>,
    pub(crate) alerts: Alerts,
}

/// State that the monitor keeps between checks.
#[derive(Default)]
struct Memory {
    /// Conditions that held at the last check, by kind.
    held: HashSet<String>,
    /// Outboxes whose tables this relay watched at the last check.
    led: HashSet<String>,
}

/// What this relay's own attempts look like now.
fn sample(observations: &Observations) -> AttemptSample {
    let attempts = observations.tally.attempts(Instant::now());
    AttemptSample { attempts, open: observations.open.load(Ordering::Relaxed) }
}

impl Monitor {
    /// Runs until the task is aborted.
    pub(crate) async fn run(&self, memberships: watch::Receiver<Membership>) {
        let (mut look, mut report) =
            (Every::new(self.config.monitor_every), Every::new(self.config.report_every));
        let tick = self.config.fold_every.min(self.config.monitor_every);
        let mut memory = Memory::default();
        loop {
            tokio::time::sleep(tick).await;
            let membership = memberships.borrow().clone();
            self.show_rates();
            let looks = look.due();
            let reports = !self.config.report_every.is_zero() && report.due();
            for (config, observations) in &self.outboxes {
                if looks {
                    self.look_at_attempts(config, observations, &mut memory);
                }
                self.follow_lead(config, &membership, &mut memory);
                if !membership.leads(config.outbox.name()) {
                    continue;
                }
                if looks {
                    self.log("look", self.look_at_store(config, &mut memory).await);
                }
                if reports {
                    self.log("report", self.report(config).await);
                }
            }
        }
    }

    fn log(&self, what: &str, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(what, %error, "monitor failed; it is tried again");
        }
    }

    /// Updates the gauges between two checks, for alert rules in other systems.
    fn show_rates(&self) {
        for (config, observations) in &self.outboxes {
            let (outbox, sample) = (config.outbox.name().to_owned(), sample(observations));
            let sink = config.sink.name().to_owned();
            metrics::gauge!(telemetry::RETRY_RATE, label::OUTBOX => outbox.clone())
                .set(sample.retry_rate().unwrap_or(0.0));
            let up = match sample.open {
                0 => sample.availability().unwrap_or(1.0),
                _ => sample.availability().unwrap_or(0.0),
            };
            metrics::gauge!(telemetry::DESTINATION_AVAILABILITY,
                label::OUTBOX => outbox, label::SINK => sink)
            .set(up);
        }
    }

    fn look_at_attempts(
        &self,
        config: &OutboxConfig,
        observations: &Observations,
        memory: &mut Memory,
    ) {
        let (outbox, sample) = (config.outbox.name(), sample(observations));
        let held = |watched: Watched| memory.held.contains(&watched.kind(outbox));
        let verdicts = judge_attempts(outbox, &sample, &config.preset.alerts, held);
        self.report_verdicts(outbox, Instant::now(), verdicts, memory);
    }

    async fn look_at_store(
        &self,
        config: &OutboxConfig,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let outbox = config.outbox.name();
        let read_at = Instant::now();
        let statistics = self.store.statistics(&config.outbox).await?;
        let failed = self.store.failed_rows(&config.outbox, ROWS_MAX).await?;
        metrics::gauge!(telemetry::FAILED_ROWS, label::OUTBOX => outbox.to_owned())
            .set(failed.count as f64);
        let sample = StoreSample {
            pending: statistics.pending,
            failed_rows: failed.count,
            unresolved: statistics.unresolved,
        };
        let verdicts = judge_store(outbox, &sample, &config.preset.alerts);
        self.report_verdicts(outbox, read_at, verdicts, memory);
        Ok(())
    }

    /// Reports every verdict at each check: the dispatcher knows which ones are new.
    fn report_verdicts(
        &self,
        outbox: &str,
        read_at: Instant,
        verdicts: Vec<Verdict>,
        memory: &mut Memory,
    ) {
        for verdict in verdicts {
            let kind = verdict.watched.kind(outbox);
            match verdict.holds {
                true => {
                    memory.held.insert(kind);
                    self.alerts.begin_as_of(read_at, verdict.alert(outbox));
                }
                false => {
                    memory.held.remove(&kind);
                    self.alerts.end_as_of(read_at, kind, verdict.title);
                }
            }
        }
    }

    /// Forgets the state of the tables if this relay no longer watches them.
    fn follow_lead(&self, config: &OutboxConfig, membership: &Membership, memory: &mut Memory) {
        let outbox = config.outbox.name();
        if membership.leads(outbox) {
            memory.led.insert(outbox.to_owned());
        } else if memory.led.remove(outbox) {
            for watched in Watched::OF_STORE {
                self.alerts.hand_over(watched.kind(outbox));
            }
            telemetry::forget_store(outbox);
        }
    }

    async fn report(&self, config: &OutboxConfig) -> Result<(), StoreError> {
        let statistics = self.store.statistics(&config.outbox).await?;
        let composition = self.store.composition(&config.outbox, ROWS_MAX).await?;
        self.alerts.report(report::report(config.outbox.name(), &statistics, &composition));
        Ok(())
    }
}
