//! Some thousand seeds in each claim mode, and what the simulation itself promises.

use postrider::store::ClaimMode;
use postrider_simulation::{Scenario, run, shrink};

/// Seeds per claim mode: about a minute on two cores.
const SEEDS: u64 = 2_000;

fn seeds(mode: ClaimMode) {
    for seed in 0..SEEDS {
        if let Err(failed) = run(&Scenario::of(seed, mode), false) {
            let smallest = shrink(&failed);
            let trace = smallest.trace.join("\n");
            panic!(
                "{mode}, seed {seed}: {}: {}\n{:#?}\n{trace}\nagain: dev/simulate --claim {mode} \
                 --seed {seed}",
                failed.violation.promise, failed.violation.seen, smallest.scenario
            );
        }
    }
}

#[test]
fn promises_hold_in_rows() {
    seeds(ClaimMode::Rows);
}

#[test]
fn promises_hold_in_lanes() {
    seeds(ClaimMode::Lanes);
}

#[test]
fn a_seed_runs_the_same_way_twice() {
    for mode in [ClaimMode::Rows, ClaimMode::Lanes] {
        for seed in 0..50 {
            let runs = [(); 2].map(|()| run(&Scenario::of(seed, mode), false).map_err(|_| ()));
            assert_eq!(runs[0], runs[1], "{mode}, seed {seed}");
        }
    }
}
