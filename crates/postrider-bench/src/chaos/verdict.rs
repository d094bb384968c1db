//! The findings of a run, compared with the targets.

use postrider_command::Failure;
use postrider_command::output::{self, Table, number};
use serde::Serialize;

use crate::bench::facts::Facts;

/// The figures of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Verdict {
    pub(super) chaos: &'static str,
    #[serde(flatten)]
    pub(super) facts: Facts,
    pub(super) events: u64,
    pub(super) poison: u64,
    pub(super) scale: u32,
    pub(super) claim: &'static str,
    pub(super) batch: u32,
    pub(super) concurrency: u32,
    /// Different events that the API says it accepted.
    pub(super) delivered: u64,
    pub(super) dead: u64,
    pub(super) pending: u64,
    /// Events that are neither accepted by the API, nor dead letters, nor pending.
    pub(super) lost: u64,
    /// Events that the API accepted again.
    pub(super) duplicates: u64,
    /// Share of the events that are not poison.
    pub(super) recovered_percent: f64,
    pub(super) attempts_spent_by_outage: u64,
    /// Requests that the API received while it was down.
    pub(super) requests_during_outage: u64,
    pub(super) outage_s: f64,
    pub(super) recovery_s: f64,
    pub(super) events_per_s: f64,
    pub(super) limit_events_per_s: f64,
    pub(super) ratio: f64,
    pub(super) balanced: bool,
    pub(super) targets: Vec<Target>,
    pub(super) passed: bool,
}

/// One target.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Target {
    pub(super) target: &'static str,
    pub(super) measured: String,
    pub(super) passed: bool,
}

impl Verdict {
    /// Compares the figures with the targets of the incident.
    pub(super) fn judged(mut self) -> Self {
        let of_events = |n: u64| n as f64 * 100.0 / self.events.max(1) as f64;
        let dead_besides_poison = of_events(self.dead.saturating_sub(self.poison));
        let target = |target, measured: String, passed| Target { target, measured, passed };
        self.targets = vec![
            target("nothing lost", format!("{} lost", number(self.lost)), self.lost == 0),
            target(
                "99.9 % recovered",
                format!("{:.3} %", self.recovered_percent),
                self.recovered_percent >= 99.9,
            ),
            target(
                "dead letters: poison, and less than 0.1 % besides",
                format!("{} of {} poison", number(self.dead), number(self.poison)),
                self.dead >= self.poison && dead_besides_poison < 0.1,
            ),
            target(
                "no attempt spent by the outage",
                number(self.attempts_spent_by_outage),
                self.attempts_spent_by_outage == 0,
            ),
            target(
                "back within 60 minutes",
                format!("{:.1} s", self.recovery_s),
                self.pending == 0 && self.recovery_s < 3_600.0,
            ),
            target(
                "1,000 events/s or more",
                format!("{} events/s", number(self.events_per_s as i128)),
                self.events_per_s >= 1_000.0,
            ),
            target(
                "the ledger balances",
                if self.balanced { "balanced" } else { "they do not" }.to_owned(),
                self.balanced,
            ),
        ];
        self.passed = self.targets.iter().all(|target| target.passed);
        self
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        output::print(&format!(
            "\n{} calls failed during an outage of {:.1} s ({}× compressed); {} came back in \
             {:.1} s: {} events/s,\n\
             {:.0} % of what this API takes from a bare client loop ({} calls/s).\n\
             While it was down, the API was asked {} times. {} calls arrived twice.\n\n",
            number(self.events),
            self.outage_s,
            self.scale,
            number(self.delivered),
            self.recovery_s,
            number(self.events_per_s as i128),
            self.ratio * 100.0,
            number(self.limit_events_per_s as i128),
            number(self.requests_during_outage),
            number(self.duplicates),
        ))?;
        let mut table = Table::new(&["TARGET", "MEASURED", ""]);
        for Target { target, measured, passed } in &self.targets {
            let word = if *passed { "pass" } else { "FAIL" };
            table.row(vec![(*target).to_owned(), measured.clone(), word.to_owned()]);
        }
        table.print()
    }

    /// Returns the command's result.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        let missed: Vec<_> = self.targets.iter().filter(|t| !t.passed).map(|t| t.target).collect();
        match missed.is_empty() {
            true => Ok(()),
            false => Err(Failure::Partly(format!("missed: {}", missed.join("; ")))),
        }
    }
}
