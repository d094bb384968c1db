//! `postrider bench backlog`

use std::time::Duration;

use postrider_command::Failure;
use postrider_command::output::number;
use serde::Serialize;

use super::event::Maker;
use super::facts::Facts;
use super::numbers::{median, ratio, rounded};
use super::relays::{Plan, Relays};
use super::report::{Bars, Plot, Report};
use super::sinks::Sinks;
use super::stage::{Stage, bar};
use super::{details, rate};
use crate::cli::BacklogArgs;

/// Number of claims measured per case, after the first; the figure is their median. It is smaller
/// if fewer claims take everything.
const CLAIMS: usize = 15;
/// Interval between checks of the number of claims.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time limit for all claims of a case.
const CLAIMS_TIMEOUT: Duration = Duration::from_secs(120);
const NOT_YET: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Serialize)]
struct Details {
    claim: &'static str,
    batch: u32,
    payload_bytes: u32,
    keys: u64,
    /// Events claimed per second of claiming, in the slowest case.
    events_per_s: f64,
    /// The same in the first case.
    limit_events_per_s: f64,
    ratio: f64,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    waiting: u64,
    /// Of these, events that are not due before tomorrow.
    not_yet_due: u64,
    /// Number of claims; lanes read more than a batch at a time.
    claims: usize,
    events_per_claim: f64,
    median_ms: f64,
    /// The first claim of a relay reads the table from its beginning.
    first_ms: f64,
    /// Time per claim, relative to the first case.
    growth: f64,
}

pub(super) async fn backlog(stage: &Stage, args: &BacklogArgs) -> Result<Report, Failure> {
    let (Some(smallest), Some(largest)) = (args.sizes.iter().min(), args.sizes.iter().max()) else {
        return Err(Failure::Usage("--sizes: name at least one".to_owned()));
    };
    let mut cases: Vec<Case> = Vec::new();
    let sizes = args.sizes.iter().map(|size| (*size, 0));
    for (due, not_yet_due) in sizes.chain([(*smallest, *largest)]) {
        let mut case = measure(stage, args, due, not_yet_due).await?;
        case.growth = rounded(ratio(case.median_ms, cases.first().unwrap_or(&case).median_ms), 3);
        cases.push(case);
    }
    report(stage, args, cases).await
}

/// Times the claims of a relay on an outbox with this many events.
async fn measure(
    stage: &Stage,
    args: &BacklogArgs,
    due: u64,
    not_yet_due: u64,
) -> Result<Case, Failure> {
    let outbox = stage.outbox("").await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    // With other keys: in lanes, no event overtakes an earlier one of its key.
    let later = maker.clone().keys_named(args.event.keys, "later-").deliver_after(NOT_YET);
    stage.fill(&outbox, &later, not_yet_due).await?;
    stage.fill(&outbox, &maker, due).await?;
    let sinks = Sinks::Null;
    let mut plan = Plan::new(&outbox, &sinks, args.claim, args.batch, 1);
    plan.one_at_a_time = true;
    let relays = Relays::start(stage, &plan).await?;
    let bar = bar("claiming", CLAIMS as u64 + 1);
    let enough = async {
        while stage.claims.count() <= CLAIMS && plan.checker.delivered() < due {
            bar.set_position(stage.claims.count() as u64);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(CLAIMS_TIMEOUT, enough).await.is_err() {
        let made = stage.claims.count();
        let why = format!("only {made} claims were made within {CLAIMS_TIMEOUT:?}");
        return Err(Failure::Partly(why));
    }
    bar.finish_and_clear();
    relays.stop().await?;
    let times: Vec<f64> = stage.claims.timed().iter().map(|(_, ms)| *ms).collect();
    let events_per_claim = ratio(stage.claims.events() as f64, times.len() as f64);
    stage.drop_outbox(&outbox).await?;
    let Some((first_ms, further)) = times.split_first().filter(|(_, further)| !further.is_empty())
    else {
        return Err(Failure::Usage(format!(
            "--sizes {due}: one claim takes all of it ({events_per_claim:.0} events); use larger \
             --sizes or a smaller --batch"
        )));
    };
    Ok(Case {
        waiting: due + not_yet_due,
        not_yet_due,
        claims: times.len(),
        events_per_claim: rounded(events_per_claim, 1),
        median_ms: rounded(median(&further[..further.len().min(CLAIMS)]), 3),
        first_ms: rounded(*first_ms, 3),
        growth: 1.0,
    })
}

async fn report(stage: &Stage, args: &BacklogArgs, cases: Vec<Case>) -> Result<Report, Failure> {
    let per_s = |case: &Case| ratio(case.events_per_claim, case.median_ms / 1_000.0);
    let events_per_s = rounded(cases.iter().map(per_s).fold(f64::INFINITY, f64::min), 1);
    let limit_events_per_s = rounded(per_s(&cases[0]), 1);
    let slowest = cases.iter().map(|case| case.median_ms).fold(0.0, f64::max);
    let name = |case: &Case| match case.not_yet_due {
        0 => format!("{} waiting", number(i128::from(case.waiting))),
        later => format!("{} not yet due", number(i128::from(later))),
    };
    let words = |case: &Case| {
        format!(
            "{:.2} ms a claim of {:.0} events ({:.2}×), the first {:.2} ms",
            case.median_ms, case.events_per_claim, case.growth, case.first_ms
        )
    };
    let mut figures: Vec<_> = cases.iter().map(|case| (name(case), words(case))).collect();
    figures.push(("claim".to_owned(), format!("{}, batch {}", args.claim.as_str(), args.batch)));
    let bars = cases.iter().map(|case| (name(case), case.median_ms, None)).collect();
    let share = rounded(ratio(events_per_s, limit_events_per_s), 4);
    Ok(Report {
        facts: Facts::gather("backlog", stage).await?,
        headline: format!("{slowest:.2} ms for a claim in the slowest case"),
        against: format!("of the claiming speed of the first case ({})", rate(limit_events_per_s)),
        ratio: share,
        figures,
        plots: vec![Plot::Bars(Bars { title: "Time of a claim", unit: "ms", bars })],
        failure: None,
        details: details(&Details {
            claim: args.claim.as_str(),
            batch: args.batch,
            payload_bytes: args.event.payload,
            keys: args.event.keys,
            events_per_s,
            limit_events_per_s,
            ratio: share,
            cases,
        })?,
    })
}
