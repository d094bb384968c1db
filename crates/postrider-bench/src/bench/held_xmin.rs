//! `postrider bench held-xmin`

use postrider_command::Failure;
use serde::Serialize;

use super::bare::Bare;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::{first_and_last_fifth, ratio, rounded, thinned};
use super::paced::{self, Paced};
use super::relays::{self, POINTS_MAX, Plan};
use super::report::{Axis, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, soundness_figures};
use crate::cli::HeldXminArgs;

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    rate: u32,
    writers: u32,
    /// With the transaction open; the limit is the rate without it.
    #[serde(flatten)]
    speed: Speed,
    claim_ms: ClaimTimes,
    clean_claim_ms: ClaimTimes,
    #[serde(flatten)]
    soundness: Soundness,
}

/// Medians at the beginning and at the end of a run.
#[derive(Debug, Clone, Copy, Serialize)]
struct ClaimTimes {
    claims: usize,
    first_fifth: f64,
    last_fifth: f64,
    growth: f64,
}

impl ClaimTimes {
    fn of(claims: &[(f64, f64)]) -> Self {
        let times: Vec<f64> = claims.iter().map(|(_, ms)| *ms).collect();
        let (first, last) = first_and_last_fifth(&times);
        Self {
            claims: times.len(),
            first_fifth: rounded(first, 3),
            last_fifth: rounded(last, 3),
            growth: rounded(ratio(last, first), 3),
        }
    }

    fn in_words(&self) -> String {
        let Self { first_fifth, last_fifth, growth, .. } = self;
        format!("{first_fifth} ms in the first fifth, {last_fifth} ms in the last ({growth}×)")
    }
}

pub(super) async fn held_xmin(stage: &Stage, args: &HeldXminArgs) -> Result<Report, Failure> {
    let load = &args.load;
    let events = paced::events(args.rate, args.seconds)?;
    let sinks = Sinks::prepare(stage, &load.sink).await?;
    let outbox = stage.outbox("").await?;
    let plan = Plan::new(&outbox, &sinks, load.relay.claim, load.relay.batch, load.relays);
    let idle = relays::idle_bytes(stage, &plan).await?;
    let clean = paced::run(stage, (&outbox, &sinks), load, (args.rate, events, 0)).await?;
    stage.drop_outbox(&outbox).await?;

    let outbox = stage.outbox("_held").await?;
    let held = Bare::connect(&stage.url, 1).await?.hold_snapshot().await?;
    let run = paced::run(stage, (&outbox, &sinks), load, (args.rate, events, 0)).await?;
    // An error here means that the database ended the transaction earlier, so nothing was measured.
    held.release().await?;
    stage.drop_outbox(&outbox).await?;

    let clean_rate = ratio(events as f64, clean.watched.seconds);
    let speed = Speed::new(events, run.watched.seconds, clean_rate);
    let (claim_ms, clean_claim_ms) = (ClaimTimes::of(&run.claims), ClaimTimes::of(&clean.claims));
    let soundness = Soundness::new(
        (run.watched.rss_max_bytes.max(clean.watched.rss_max_bytes), idle),
        (
            run.duplicates_and_order_violations.0 + clean.duplicates_and_order_violations.0,
            run.duplicates_and_order_violations.1 + clean.duplicates_and_order_violations.1,
        ),
        run.balanced && clean.balanced,
    );
    let settings = Settings::new(&load.relay, &load.event, load.relays);
    let mut figures = vec![
        ("claim".to_owned(), claim_ms.in_words()),
        ("claim, clean run".to_owned(), clean_claim_ms.in_words()),
        ("offered".to_owned(), format!("{} for {} s", rate(args.rate.into()), args.seconds)),
    ];
    figures.extend(settings.figures(&sinks, events));
    figures.extend(soundness_figures(&soundness));
    Ok(Report {
        facts: Facts::gather("held-xmin", stage).await?,
        headline: format!("{} with a transaction open", rate(speed.events_per_s)),
        against: format!("of the clean run ({})", rate(clean_rate)),
        ratio: speed.ratio,
        figures,
        plots: plots(&run, &clean),
        failure: soundness.failure(settings.claim),
        details: details(&Details {
            sink: sinks.facts(),
            settings,
            rate: args.rate,
            writers: load.writers,
            speed,
            claim_ms,
            clean_claim_ms,
            soundness,
        })?,
    })
}

fn plots(held: &Paced, clean: &Paced) -> Vec<Plot> {
    let both = |title, y_unit, of: &dyn Fn(&Paced) -> Vec<(f64, f64)>| {
        let series = vec![("transaction open".into(), of(held)), ("clean".into(), of(clean))];
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series })
    };
    vec![
        both("Claim time over time", "ms per claim", &|run| thinned(&run.claims, POINTS_MAX)),
        both("Delivery rate over time", "events/s", &|run| run.watched.rate_over_time()),
        both("Backlog over time", "events waiting", &|run| run.watched.backlog_over_time()),
        both("Latency over time", "ms from commit to delivery", &|run| {
            thinned(&run.latencies.over_time, POINTS_MAX)
        }),
    ]
}
