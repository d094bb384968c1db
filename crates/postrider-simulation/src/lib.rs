//! Deterministic simulation of the relay.
//!
//! The relay's own code (claim modes `rows` and `lanes`, policy, breaker, lease, settling) runs on
//! a simulated database and sink, with a clock that jumps to the next event. One seed determines
//! what happens: commits out of order, failures, outages, kills, lost answers, restarts. During the
//! run, a checker checks the promises of the README. If a seed breaks one, smaller and smaller runs
//! are tried, and the smallest run that still fails is shown.

mod actors;
mod alerts;
mod checker;
mod database;
mod lanes;
mod run;
mod scenario;
mod sink;
mod store;
mod unsimulated;
mod world;

pub use checker::{Counts, Violation};
pub use run::{Failed, MODES, run};
pub use scenario::{HorizonKind, Scenario};

/// Shrinks a failed run as long as it still fails, and runs the smallest with a trace.
pub fn shrink(failed: &Failed) -> Box<Failed> {
    let mut smallest = failed.scenario.clone();
    let fails = |scenario: &Scenario| run(scenario, false).is_err();
    while let Some(smaller) = smallest.smaller().into_iter().find(fails) {
        smallest = smaller;
    }
    match run(&smallest, true) {
        Err(failed) => failed,
        Ok(_) => Box::new(failed.clone()),
    }
}
