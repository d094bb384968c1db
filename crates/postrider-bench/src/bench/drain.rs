//! `postrider bench drain`

use postrider_command::Failure;
use serde::Serialize;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::limit::Limits;
use super::relays::{self, Plan};
use super::report::{Axis, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, soundness_figures};
use crate::cli::DrainArgs;

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    #[serde(flatten)]
    speed: Speed,
    #[serde(flatten)]
    limits: Limits,
    #[serde(flatten)]
    soundness: Soundness,
}

pub(super) async fn drain(stage: &Stage, args: &DrainArgs) -> Result<Report, Failure> {
    let sinks = Sinks::prepare(stage, &args.sink).await?;
    let outbox = stage.outbox("").await?;
    let plan = Plan::new(&outbox, &sinks, args.relay.claim, args.relay.batch, args.relays);
    let idle = relays::idle_bytes(stage, &plan).await?;

    stage.fill(&outbox, &Maker::new(args.event.keys, args.event.payload), args.events).await?;
    let watched = relays::drain(stage, &plan, args.events, 0).await?;
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let limits = Limits::measure(stage, &sinks, (&args.event, &args.relay), args.events).await?;
    let soundness = Soundness::new(
        (watched.rss_max_bytes, idle),
        plan.checker.duplicates_and_order_violations(),
        balanced,
    );
    let speed = Speed::new(args.events, watched.seconds, limits.smaller());
    let settings = Settings::new(&args.relay, &args.event, args.relays);
    let mut figures = vec![("time".to_owned(), format!("{:.2} s", watched.seconds))];
    figures.extend(settings.figures(&sinks, args.events));
    figures.extend(limits.figures());
    figures.extend(soundness_figures(&soundness));
    let lines = |title, y_unit, points| {
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series: vec![("".into(), points)] })
    };
    let plots = vec![
        lines("Delivery rate over time", "events/s", watched.rate_over_time()),
        lines("Backlog over time", "events waiting", watched.backlog_over_time()),
        lines("Claim time over time", "ms per claim", stage.claims.thinned()),
    ];
    Ok(Report {
        facts: Facts::gather("drain", stage).await?,
        headline: rate(speed.events_per_s),
        against: limits.against(),
        ratio: speed.ratio,
        figures,
        plots,
        failure: soundness.failure(settings.claim),
        details: details(&Details { sink: sinks.facts(), settings, speed, limits, soundness })?,
    })
}
