//! `postrider bench blocked-keys`

use postrider::Outbox;
use serde::Serialize;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::ratio;
use super::relays::{self, Plan, Watch};
use super::report::{Axis, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, soundness_figures};
use crate::cli::BlockedKeysArgs;
use crate::commands::Failure;
use crate::output::number;

const FAILING: &str = "failing-";

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    blocked: u64,
    failing_keys: u64,
    /// Of the ready events, from the first of them on; the limit is the faster of two runs without
    /// the blocked ones.
    #[serde(flatten)]
    speed: Speed,
    /// The same from the start of the relay on, which meets the blocked events for the first time
    /// and passes over each of them once.
    from_start: Speed,
    #[serde(flatten)]
    soundness: Soundness,
}

pub(super) async fn blocked_keys(stage: &Stage, args: &BlockedKeysArgs) -> Result<Report, Failure> {
    let sinks = Sinks::prepare(stage, &args.sink).await?;
    let outbox = stage.outbox("").await?;
    let idle = relays::idle_bytes(stage, &plan(args, &outbox, &sinks)).await?;
    // Once before and once after: the first run of a process is not its fastest.
    let before = without_blocked(stage, args, outbox, &sinks).await?;

    let outbox = stage.outbox("_blocked").await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    let failing = maker.clone().keys_named(args.failing_keys, FAILING);
    stage.fill(&outbox, &failing, args.blocked).await?;
    stage.fill(&outbox, &maker, args.ready).await?;
    let mut plan = plan(args, &outbox, &sinks);
    plan.failing = Some(FAILING);
    let run = relays::drain(stage, &plan, args.ready, args.blocked).await?;
    let claims = stage.claims.thinned();
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let outbox = stage.outbox("").await?;
    let after = without_blocked(stage, args, outbox, &sinks).await?;
    let unblocked = |seconds: fn(&Watch) -> f64| {
        ratio(args.ready as f64, seconds(&before).min(seconds(&after)))
    };
    let speed = Speed::new(args.ready, run.running_s(), unblocked(Watch::running_s));
    let from_start = Speed::new(args.ready, run.seconds, unblocked(|watch| watch.seconds));
    let soundness = Soundness::new(
        (run.rss_max_bytes, idle),
        plan.checker.duplicates_and_order_violations(),
        balanced,
    );
    let settings = Settings::new(&args.relay, &args.event, args.relays);
    let mut figures = vec![(
        "blocked".to_owned(),
        format!(
            "{} events behind {} failing keys",
            number(i128::from(args.blocked)),
            args.failing_keys
        ),
    )];
    figures.push((
        "from the start on".to_owned(),
        format!(
            "{}, {:.1} % of the rate without them; first delivery after {:.0} ms instead of {:.0}",
            rate(from_start.events_per_s),
            from_start.ratio * 100.0,
            run.first_s * 1_000.0,
            before.first_s.min(after.first_s) * 1_000.0,
        ),
    ));
    figures.extend(settings.figures(&sinks, args.ready));
    figures.extend(soundness_figures(&soundness));
    let both = |title, y_unit, of: fn(&Watch) -> Vec<(f64, f64)>| {
        let series = vec![("with blocked keys".into(), of(&run)), ("without".into(), of(&after))];
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series })
    };
    let plots = vec![
        both("Delivery rate over time", "events/s", Watch::rate_over_time),
        both("Ready events over time", "events waiting", Watch::backlog_over_time),
        Plot::Lines(Lines {
            title: "Claim time over time",
            y_unit: "ms per claim",
            x: Axis::Seconds,
            series: vec![("with blocked keys".into(), claims)],
        }),
    ];
    Ok(Report {
        facts: Facts::gather("blocked-keys", stage).await?,
        headline: format!("{} past blocked keys", rate(speed.events_per_s)),
        against: format!("of the rate without them ({})", rate(speed.limit_events_per_s)),
        ratio: speed.ratio,
        figures,
        plots,
        failure: soundness.failure(settings.claim),
        details: details(&Details {
            sink: sinks.facts(),
            settings,
            blocked: args.blocked,
            failing_keys: args.failing_keys,
            speed,
            from_start,
            soundness,
        })?,
    })
}

fn plan<'a>(args: &BlockedKeysArgs, outbox: &'a Outbox, sinks: &'a Sinks) -> Plan<'a> {
    Plan::new(outbox, sinks, args.relay.claim, args.relay.batch, args.relays)
}

/// The same ready events alone.
async fn without_blocked(
    stage: &Stage,
    args: &BlockedKeysArgs,
    outbox: Outbox,
    sinks: &Sinks,
) -> Result<Watch, Failure> {
    stage.fill(&outbox, &Maker::new(args.event.keys, args.event.payload), args.ready).await?;
    let watched = relays::drain(stage, &plan(args, &outbox, sinks), args.ready, 0).await?;
    stage.drop_outbox(&outbox).await?;
    Ok(watched)
}
