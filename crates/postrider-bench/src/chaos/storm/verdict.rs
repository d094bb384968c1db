//! The findings of a storm, promise by promise.

use postrider_command::Failure;
use postrider_command::output::{self, Table, number};
use serde::Serialize;

use super::fleet::Disturbances;
use super::judge::Findings;
use super::receiver::Faults;
use crate::bench::facts::Facts;

/// The promises, in the words of the documentation.
const NOTHING_LOST: &str = "every committed event is delivered, or a dead letter";
const NOTHING_MADE_UP: &str = "an event of a transaction that is not committed is not delivered";
const ORDER: &str = "events of one key arrive in the order of their ids, provided that the \
                     transactions which append to that key follow one another";
const DEAD: &str = "a dead letter is only what the destination rejects";
const DRAINED: &str = "when the faults end, all is delivered and no row is held";
const LEDGER: &str = "the ledger is balanced: appended = delivered + dead + pending";

/// The settings of the run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Settings {
    pub(super) claim: &'static str,
    pub(super) sink: &'static str,
    pub(super) relays: u32,
    /// Events per second.
    pub(super) rate: u32,
    pub(super) keys: u32,
    pub(super) writers: u32,
    pub(super) kill_every_s: f64,
    pub(super) lease_s: f64,
    pub(super) heartbeat_s: f64,
    pub(super) seed: u64,
}

/// The faults that were caused, and how long everything took.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    pub(super) kills: u64,
    #[serde(flatten)]
    pub(super) disturbances: Disturbances,
    /// The reason why no session was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) links_hindrance: Option<&'static str>,
    pub(super) faults: Faults,
    /// Relays that ended without being killed.
    pub(super) relay_exits: u64,
    /// Transactions of the writers that the database refused, for example because of deadlocks.
    pub(super) writes_refused: u64,
    /// Seconds from the first relay to the last kill.
    pub(super) storm_s: f64,
    /// Seconds from the last kill until the outbox was drained.
    pub(super) recovery_s: f64,
    pub(super) drained: bool,
}

/// One promise.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Promise {
    pub(super) promise: &'static str,
    pub(super) measured: String,
    /// `None` if it is not promised in this run.
    pub(super) passed: Option<bool>,
}

/// The figures of a run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Verdict {
    chaos: &'static str,
    #[serde(flatten)]
    pub(super) facts: Facts,
    #[serde(flatten)]
    pub(super) settings: Settings,
    #[serde(flatten)]
    pub(super) findings: Findings,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    /// Rows that are held by a relay.
    processing: u64,
    balanced: bool,
    pub(super) promises: Vec<Promise>,
    pub(super) passed: bool,
}

impl Verdict {
    pub(super) fn new(
        facts: Facts,
        settings: Settings,
        findings: Findings,
        outcome: Outcome,
        processing: u64,
        balanced: bool,
    ) -> Self {
        let f = &findings;
        let ordered = settings.claim == "lanes";
        let out_of_order = number(f.out_of_order);
        let promises = vec![
            promise(NOTHING_LOST, format!("{} lost", number(f.lost)), f.lost == 0),
            promise(
                NOTHING_MADE_UP,
                format!("{} uncommitted", number(f.uncommitted)),
                f.uncommitted == 0,
            ),
            Promise {
                promise: ORDER,
                measured: match ordered {
                    true => format!("{out_of_order} out of order"),
                    false => format!("{out_of_order} out of order; `rows` keeps no order"),
                },
                passed: ordered.then_some(f.out_of_order == 0),
            },
            promise(
                DEAD,
                format!("{} dead, {} wrongly", number(f.dead), number(f.dead_wrongly)),
                f.dead_wrongly == 0,
            ),
            promise(
                DRAINED,
                format!(
                    "{} pending, {} held, after {:.1} s",
                    number(f.pending),
                    number(processing),
                    outcome.recovery_s
                ),
                outcome.drained && f.pending == 0 && processing == 0,
            ),
            promise(LEDGER, if balanced { "balanced" } else { "NOT BALANCED" }.into(), balanced),
        ];
        let passed = promises.iter().all(|promise| promise.passed != Some(false));
        Self {
            chaos: "storm",
            facts,
            settings,
            findings,
            outcome,
            processing,
            balanced,
            promises,
            passed,
        }
    }

    /// Returns the figures beside the promises, as name and value.
    pub(super) fn figures(&self) -> Vec<(&'static str, String)> {
        let (f, o) = (&self.findings, &self.outcome);
        let cut = match o.links_hindrance {
            Some(why) => why.to_owned(),
            None => format!(
                "{} cut, {} times all of a relay stalled",
                number(o.disturbances.sessions_cut),
                number(o.disturbances.stalls)
            ),
        };
        let Faults { hung, reset, late, refused, taken_unanswered } = o.faults;
        let receiver = match self.settings.sink {
            "http" => format!(
                "{} requests hung, {} reset, {} answered late, {} refused",
                number(hung),
                number(reset),
                number(late),
                number(refused)
            ),
            _ => "behaves".to_owned(),
        };
        vec![
            (
                "committed",
                format!("{}, {} rolled back", number(f.committed), number(f.rolled_back)),
            ),
            ("delivered", number(f.delivered)),
            (
                "duplicates",
                format!(
                    "{}; {} answers of the receiver were withheld",
                    number(f.duplicates),
                    number(taken_unanswered)
                ),
            ),
            (
                "dead letters",
                format!(
                    "{}: {} poison, {} that relays died with",
                    number(f.dead),
                    number(f.dead - f.dead_by_kills - f.dead_wrongly),
                    number(f.dead_by_kills)
                ),
            ),
            (
                "kills",
                format!(
                    "{} in {:.1} s; {} relays ended by themselves",
                    number(o.kills),
                    o.storm_s,
                    number(o.relay_exits)
                ),
            ),
            ("store sessions", cut),
            ("receiver", receiver),
            ("recovery", format!("{:.1} s after the last kill", o.recovery_s)),
            ("seed", self.settings.seed.to_string()),
        ]
    }

    pub(super) fn print(&self) -> Result<(), Failure> {
        output::print("\n")?;
        let mut table = Table::new(&["", "MEASURED", "PROMISE"]);
        for Promise { promise, measured, passed } in &self.promises {
            table.row(vec![word(*passed).to_owned(), measured.clone(), (*promise).to_owned()]);
        }
        table.print()?;
        let mut text = String::from("\n");
        for (name, value) in self.figures() {
            text.push_str(&format!("{name:<15} {value}\n"));
        }
        for example in &self.findings.examples {
            text.push_str(&format!("FAULT           {example}\n"));
        }
        output::print(&text)
    }

    /// Returns the command's result.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        let broken = self.promises.iter().filter(|promise| promise.passed == Some(false));
        let broken: Vec<_> = broken.map(|promise| promise.promise).collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::Partly(format!("broken: {}", broken.join("; ")))),
        }
    }
}

fn promise(promise: &'static str, measured: String, passed: bool) -> Promise {
    Promise { promise, measured, passed: Some(passed) }
}

pub(super) fn word(passed: Option<bool>) -> &'static str {
    match passed {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "not judged",
    }
}
