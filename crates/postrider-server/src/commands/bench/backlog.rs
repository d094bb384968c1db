//! `postrider bench backlog`

use std::time::Duration;

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
use crate::commands::Failure;
use crate::output::number;

/// Claims measured per case, after the first; their median is the figure.
const CLAIMS: usize = 15;
/// Between looks at how many claims there were.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time for all claims of a case.
const CLAIMS_TIMEOUT: Duration = Duration::from_secs(120);
const NOT_YET: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Serialize)]
struct Details {
    claim: &'static str,
    batch: u32,
    payload_bytes: u32,
    keys: u64,
    /// Claimed per second of claiming in the slowest case.
    events_per_s: f64,
    /// The same in the first case.
    limit_events_per_s: f64,
    ratio: f64,
    cases: Vec<Case>,
}

#[derive(Debug, Serialize)]
struct Case {
    waiting: u64,
    /// Of these, not due before tomorrow.
    not_yet_due: u64,
    median_ms: f64,
    /// The first claim of a relay reads the table from its beginning.
    first_ms: f64,
    /// Time of a claim against that of the first case.
    growth: f64,
}

pub(super) async fn backlog(stage: &Stage, args: &BacklogArgs) -> Result<Report, Failure> {
    let need = u64::from(args.batch) * (CLAIMS as u64 + 1);
    let (Some(smallest), Some(largest)) = (args.sizes.iter().min(), args.sizes.iter().max()) else {
        return Err(Failure::Usage("--sizes: name at least one".to_owned()));
    };
    if *smallest < need {
        return Err(Failure::Usage(format!(
            "--sizes {smallest}: at least {need} for {} claims of --batch {}",
            CLAIMS + 1,
            args.batch
        )));
    }
    let mut cases: Vec<Case> = Vec::new();
    let sizes = args.sizes.iter().map(|size| (*size, 0));
    for (due, not_yet_due) in sizes.chain([(*smallest, *largest)]) {
        let (first, middle) = measure(stage, args, due, not_yet_due).await?;
        let base = cases.first().map_or(middle, |case| case.median_ms);
        cases.push(Case {
            waiting: due + not_yet_due,
            not_yet_due,
            median_ms: rounded(middle, 3),
            first_ms: rounded(first, 3),
            growth: rounded(ratio(middle, base), 3),
        });
    }
    report(stage, args, cases).await
}

/// Milliseconds of the first claim and of the median one, as a relay makes them.
async fn measure(
    stage: &Stage,
    args: &BacklogArgs,
    due: u64,
    not_yet_due: u64,
) -> Result<(f64, f64), Failure> {
    let outbox = stage.outbox("").await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    stage.fill(&outbox, &maker.clone().deliver_after(NOT_YET), not_yet_due).await?;
    stage.fill(&outbox, &maker, due).await?;
    let sinks = Sinks::null();
    let mut plan = Plan::new(&outbox, &sinks, args.claim, args.batch, 1);
    plan.one_at_a_time = true;
    stage.claims.restart();
    let relays = Relays::start(stage, &plan).await?;
    let bar = bar("claiming", CLAIMS as u64 + 1);
    let enough = async {
        while stage.claims.count() <= CLAIMS {
            bar.set_position(stage.claims.count() as u64);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(CLAIMS_TIMEOUT, enough).await.is_err() {
        let (made, of) = (stage.claims.count(), CLAIMS + 1);
        let why = format!("{made} of {of} claims were made within {CLAIMS_TIMEOUT:?}");
        return Err(Failure::Partly(why));
    }
    bar.finish_and_clear();
    let times: Vec<f64> = stage.claims.timed().iter().map(|(_, ms)| *ms).collect();
    relays.stop().await?;
    stage.drop_outbox(&outbox).await?;
    Ok((times[0], median(&times[1..=CLAIMS])))
}

async fn report(stage: &Stage, args: &BacklogArgs, cases: Vec<Case>) -> Result<Report, Failure> {
    let slowest = cases.iter().map(|case| case.median_ms).fold(0.0, f64::max);
    let per_s = |ms: f64| rounded(ratio(f64::from(args.batch), ms / 1_000.0), 1);
    let (events_per_s, limit_events_per_s) = (per_s(slowest), per_s(cases[0].median_ms));
    let name = |case: &Case| match case.not_yet_due {
        0 => format!("{} waiting", number(i128::from(case.waiting))),
        later => format!("{} not yet due", number(i128::from(later))),
    };
    let words = |case: &Case| {
        format!(
            "{:.2} ms a claim ({:.2}×), the first {:.2} ms",
            case.median_ms, case.growth, case.first_ms
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
