//! `postrider bench destinations`

use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::Preset;
use serde::Serialize;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::ratio;
use super::relays::{self, Plan, Watch};
use super::report::{Axis, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks, dead_target};
use super::stage::Stage;
use super::{details, rate, soundness_figures};
use crate::cli::DestinationsArgs;

const ROUNDS: u32 = 2;

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    destinations: u32,
    down: u32,
    /// Events of destinations that are down.
    held_back: u64,
    /// Rate of the other destinations; the limit is the same without the events of those that are
    /// down.
    #[serde(flatten)]
    speed: Speed,
    #[serde(flatten)]
    soundness: Soundness,
}

pub(super) async fn destinations(
    stage: &Stage,
    args: &DestinationsArgs,
) -> Result<Report, Failure> {
    if args.down >= args.destinations {
        let message = "--down must leave a destination that is up (--destinations)";
        return Err(Failure::Usage(message.to_owned()));
    }
    let up = args.destinations - args.down;
    let (sinks, up_names) = Sinks::targets(up).await?;
    let mut names = up_names.clone();
    for _ in 0..args.down {
        names.push(dead_target().await?);
    }
    let maker = Maker::new(args.event.keys, args.event.payload);
    let (healthy, all_of_them) = (maker.clone().of_types(up_names), maker.of_types(names));
    // The same number for each destination, one after the other.
    let all = u64::from(args.destinations) * (args.events / u64::from(up)).max(1);
    let delivered = all / u64::from(args.destinations) * u64::from(up);
    let held_back = all - delivered;

    let outbox = stage.outbox("").await?;
    let idle = relays::idle_bytes(stage, &plan(args, &outbox, &sinks)).await?;
    stage.drop_outbox(&outbox).await?;
    // In turns, and the fastest round of each counts: a machine's speed varies over time.
    let (mut clean, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        clean.push(drained(stage, args, (&healthy, delivered), 0, &sinks).await?);
        runs.push(drained(stage, args, (&all_of_them, delivered), held_back, &sinks).await?);
    }
    let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum();
    let faults = (sum(|run| run.duplicates), sum(|run| run.order_violations));
    let balanced = runs.iter().all(|run| run.balanced);
    let rss_max = runs.iter().map(|run| run.watch.rss_max_bytes).max().unwrap_or_default();
    let (Some(clean), Some(run)) = (fastest(clean), fastest(runs)) else {
        return Err(Failure::Partly("no round was run".to_owned()));
    };
    let without = ratio(delivered as f64, clean.seconds);
    let speed = Speed::new(delivered, run.seconds, without);
    let soundness = Soundness::new((rss_max, idle), faults, balanced);
    let settings = Settings::new(&args.relay, &args.event, 1);
    let mut figures = vec![
        ("destinations".to_owned(), format!("{}, {} of them down", args.destinations, args.down)),
        ("held back".to_owned(), format!("{} events", number(i128::from(held_back)))),
    ];
    figures.extend(settings.figures(&sinks, delivered));
    figures.extend(soundness_figures(&soundness));
    let both = |title, y_unit, of: fn(&Watch) -> Vec<(f64, f64)>| {
        let series = vec![("some are down".into(), of(&run)), ("all are up".into(), of(&clean))];
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series })
    };
    Ok(Report {
        facts: Facts::gather("destinations", stage).await?,
        headline: format!("{} to the destinations that are up", rate(speed.events_per_s)),
        against: format!("of the rate without those that are down ({})", rate(without)),
        ratio: speed.ratio,
        figures,
        plots: vec![
            both("Delivery rate over time", "events/s", Watch::rate_over_time),
            both("Events over time", "events waiting", Watch::backlog_over_time),
        ],
        failure: soundness.failure(settings.claim),
        details: details(&Details {
            sink: sinks.facts(),
            settings,
            destinations: args.destinations,
            down: args.down,
            held_back,
            speed,
            soundness,
        })?,
    })
}

fn plan<'a>(args: &DestinationsArgs, outbox: &'a Outbox, sinks: &'a Sinks) -> Plan<'a> {
    // The shortest interval of all presets; destinations that are down are probed at this interval.
    let idle_poll = Preset::broker().idle_poll;
    Plan { idle_poll, ..Plan::new(outbox, sinks, args.relay.claim, args.relay.batch, 1) }
}

/// One round, with its checks.
struct Run {
    watch: Watch,
    duplicates: u64,
    order_violations: u64,
    balanced: bool,
}

fn fastest(runs: Vec<Run>) -> Option<Watch> {
    let watches = runs.into_iter().map(|run| run.watch);
    watches.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// Fills an outbox and drains it, except for the events that are held back.
async fn drained(
    stage: &Stage,
    args: &DestinationsArgs,
    (maker, delivered): (&Maker, u64),
    held_back: u64,
    sinks: &Sinks,
) -> Result<Run, Failure> {
    let outbox = stage.outbox("").await?;
    stage.fill(&outbox, maker, delivered + held_back).await?;
    let plan = plan(args, &outbox, sinks);
    let watch = relays::drain(stage, &plan, delivered, held_back).await?;
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;
    let (duplicates, order_violations) = plan.checker.duplicates_and_order_violations();
    Ok(Run { watch, duplicates, order_violations, balanced })
}
