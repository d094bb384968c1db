//! `simulate`: runs seeds until one fails.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use postrider_simulation::{Counts, Failed, MODES, Scenario, Violation, run, shrink};
use postrider_store::ClaimMode;

/// Runs the relay on a simulated database, sink and clock, once per seed, and checks its promises.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of seeds to run in each claim mode.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this seed and print everything that happens in it.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: also print the relays' log.
    #[arg(long, requires = "seed")]
    log: bool,
    /// Only this claim mode: rows or lanes.
    #[arg(long)]
    claim: Option<ClaimMode>,
    /// Number of threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Stop after this many seconds, even if seeds are left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Run each seed twice, and fail if the two runs differ.
    #[arg(long)]
    twice: bool,
    /// Show a failed run unchanged, instead of the smallest one that fails.
    #[arg(long)]
    no_shrink: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let modes: Vec<ClaimMode> =
        MODES.into_iter().filter(|mode| arguments.claim.is_none_or(|only| only == *mode)).collect();
    if arguments.log {
        tracing_subscriber::fmt().without_time().with_target(false).with_ansi(false).init();
    }
    if let Some(seed) = arguments.seed {
        return one(seed, &modes, arguments.no_shrink);
    }
    for mode in modes {
        let started = Instant::now();
        let (done, counts, failed) = many(&arguments, mode);
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{mode}: {done} seeds in {seconds:.0} s: {} committed, {} delivered, {} duplicates, \
             {} dead, {} kills",
            counts.committed, counts.delivered, counts.duplicates, counts.dead, counts.kills
        );
        if let Some(failed) = failed {
            show(&failed, arguments.no_shrink);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn one(seed: u64, modes: &[ClaimMode], no_shrink: bool) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for mode in modes {
        match run(&Scenario::of(seed, *mode), true) {
            Ok(counts) => println!("{mode}: {counts:?}"),
            Err(failed) => {
                show(&failed, no_shrink);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Runs seeds on several threads, until the first one fails.
fn many(arguments: &Arguments, mode: ClaimMode) -> (u64, Counts, Option<Box<Failed>>) {
    let (next, done) = (AtomicU64::new(arguments.from), AtomicU64::new(0));
    let end = arguments.from.saturating_add(arguments.seeds);
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let failure: Mutex<Option<Box<Failed>>> = Mutex::new(None);
    let totals = Mutex::new(Counts::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let late = until.is_some_and(|until| Instant::now() >= until);
            if seed >= end || late || failure.lock().is_ok_and(|failed| failed.is_some()) {
                return;
            }
            let scenario = Scenario::of(seed, mode);
            let answer = run(&scenario, false);
            let answer = if arguments.twice { same(&scenario, answer) } else { answer };
            done.fetch_add(1, Ordering::Relaxed);
            match answer {
                Ok(counts) => totals.lock().iter_mut().for_each(|sum| add(sum, &counts)),
                Err(failed) => failure.lock().iter_mut().for_each(|slot| {
                    slot.get_or_insert_with(|| failed.clone());
                }),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(work);
        }
    });
    let totals = totals.into_inner().unwrap_or_default();
    (done.into_inner(), totals, failure.into_inner().unwrap_or_default())
}

/// Returns the result, if a second run ends with the same.
fn same(scenario: &Scenario, first: Result<Counts, Box<Failed>>) -> Result<Counts, Box<Failed>> {
    match (first, run(scenario, false)) {
        (Ok(first), Ok(second)) if first == second => Ok(first),
        (Err(failed), Err(_)) => Err(failed),
        (first, second) => {
            let seen = format!("{first:?} and {second:?}");
            let violation = Violation { promise: "a seed runs the same way twice", seen };
            Err(Box::new(Failed { scenario: scenario.clone(), violation, trace: Vec::new() }))
        }
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.committed += counts.committed;
    sum.delivered += counts.delivered;
    sum.duplicates += counts.duplicates;
    sum.dead += counts.dead;
    sum.kills += counts.kills;
}

fn show(failed: &Failed, no_shrink: bool) {
    let seed = failed.scenario.seed;
    println!("seed {seed} broke a promise: {}", failed.violation.promise);
    println!("  {}", failed.violation.seen);
    let smallest = if no_shrink { Box::new(failed.clone()) } else { shrink(failed) };
    println!("the smallest run that fails: {:#?}", smallest.scenario);
    let quiet = |line: &&String| !line.ends_with("claimed []");
    for line in smallest.trace.iter().filter(quiet) {
        println!("{line}");
    }
    println!("{}: {}", smallest.violation.promise, smallest.violation.seen);
}
