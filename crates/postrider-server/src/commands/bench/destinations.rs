//! `postrider bench destinations`

use postrider::Outbox;
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
use crate::commands::Failure;
use crate::output::number;

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
    /// Of the others; the limit is the faster of two runs without the events of those that are down.
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
    let healthy = maker.clone().of_types(up_names);
    // As many of each destination, one after the other.
    let all = u64::from(args.destinations) * (args.events / u64::from(up)).max(1);
    let delivered = all / u64::from(args.destinations) * u64::from(up);

    let outbox = stage.outbox("").await?;
    let idle = relays::idle_bytes(stage, &plan(args, &outbox, &sinks)).await?;
    // Once before and once after: the first run of a process is not its fastest.
    let before = drained(stage, args, outbox, (&healthy, delivered), &sinks).await?;

    let outbox = stage.outbox("_down").await?;
    stage.fill(&outbox, &maker.of_types(names), all).await?;
    let plan = plan(args, &outbox, &sinks);
    let run = relays::drain(stage, &plan, delivered, all - delivered).await?;
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let outbox = stage.outbox("").await?;
    let after = drained(stage, args, outbox, (&healthy, delivered), &sinks).await?;
    let without = ratio(delivered as f64, before.seconds.min(after.seconds));
    let speed = Speed::new(delivered, run.seconds, without);
    let soundness = Soundness::new(
        (run.rss_max_bytes, idle),
        plan.checker.duplicates_and_order_violations(),
        balanced,
    );
    let settings = Settings::new(&args.relay, &args.event, 1);
    let mut figures = vec![
        ("destinations".to_owned(), format!("{}, {} of them down", args.destinations, args.down)),
        ("held back".to_owned(), format!("{} events", number(i128::from(all - delivered)))),
    ];
    figures.extend(settings.figures(&sinks, delivered));
    figures.extend(soundness_figures(&soundness));
    let both = |title, y_unit, of: fn(&Watch) -> Vec<(f64, f64)>| {
        let series = vec![("some are down".into(), of(&run)), ("all are up".into(), of(&after))];
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
            held_back: all - delivered,
            speed,
            soundness,
        })?,
    })
}

fn plan<'a>(args: &DestinationsArgs, outbox: &'a Outbox, sinks: &'a Sinks) -> Plan<'a> {
    // The shortest of all presets: a destination that is down is probed so often.
    let idle_poll = Preset::broker().idle_poll;
    Plan { idle_poll, ..Plan::new(outbox, sinks, args.relay.claim, args.relay.batch, 1) }
}

/// The events of the destinations that are up, alone.
async fn drained(
    stage: &Stage,
    args: &DestinationsArgs,
    outbox: Outbox,
    (maker, events): (&Maker, u64),
    sinks: &Sinks,
) -> Result<Watch, Failure> {
    stage.fill(&outbox, maker, events).await?;
    let watched = relays::drain(stage, &plan(args, &outbox, sinks), events, 0).await?;
    stage.drop_outbox(&outbox).await?;
    Ok(watched)
}
