//! `postrider bench scale`

use postrider_command::Failure;
use serde::Serialize;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::{ratio, rounded};
use super::relays::{self, Plan, Watch};
use super::report::{Axis, Bars, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, rounds_figure, soundness_figures};
use crate::cli::ScaleArgs;

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    /// The slowest of the further cases; the limit is the rate of the first case.
    #[serde(flatten)]
    speed: Speed,
    cases: Vec<Case>,
    #[serde(flatten)]
    soundness: Soundness,
}

#[derive(Debug, Serialize)]
struct Case {
    relays: u32,
    /// Of the fastest round; the limit is the rate of the first case.
    #[serde(flatten)]
    speed: Speed,
    rounds_events_per_s: Vec<f64>,
    duplicates: u64,
    order_violations: u64,
    balanced: bool,
}

/// The results of the rounds with one number of relays.
#[derive(Default)]
struct Rounds {
    watches: Vec<Watch>,
    duplicates: u64,
    order_violations: u64,
    unbalanced: bool,
}

pub(super) async fn scale(stage: &Stage, args: &ScaleArgs) -> Result<Report, Failure> {
    let sinks = Sinks::prepare(stage, &args.sink).await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    let mut found: Vec<Rounds> = args.relays.iter().map(|_| Rounds::default()).collect();
    let mut idle = None;
    // In turns, and the fastest round of each counts: a machine's speed varies over time.
    for round in 0..args.rounds {
        for (relays, rounds) in args.relays.iter().copied().zip(&mut found) {
            let outbox = stage.outbox(&format!("_{relays}_{round}")).await?;
            let plan = Plan::new(&outbox, &sinks, args.relay.claim, args.relay.batch, relays);
            if idle.is_none() {
                idle = Some(relays::idle_bytes(stage, &plan).await?);
            }
            stage.fill(&outbox, &maker, args.events).await?;
            rounds.watches.push(relays::drain(stage, &plan, args.events, 0).await?);
            rounds.unbalanced |= !relays::balanced(stage, &outbox).await?;
            stage.drop_outbox(&outbox).await?;
            let (duplicates, order_violations) = plan.checker.duplicates_and_order_violations();
            rounds.duplicates += duplicates;
            rounds.order_violations += order_violations;
        }
    }
    let rss_max = found.iter().flat_map(|rounds| &rounds.watches).map(|watch| watch.rss_max_bytes);
    let memory = (rss_max.max().unwrap_or_default(), idle.unwrap_or_default());
    let (mut cases, mut watches): (Vec<Case>, Vec<Watch>) = (Vec::new(), Vec::new());
    for (relays, rounds) in args.relays.iter().copied().zip(found) {
        let rate = |watch: &Watch| rounded(ratio(args.events as f64, watch.seconds), 1);
        let rounds_events_per_s: Vec<f64> = rounds.watches.iter().map(rate).collect();
        let by_time = |a: &Watch, b: &Watch| a.seconds.total_cmp(&b.seconds);
        let Some(fastest) = rounds.watches.into_iter().min_by(by_time) else { continue };
        let first = cases.first().map_or(rate(&fastest), |case: &Case| case.speed.events_per_s);
        cases.push(Case {
            relays,
            speed: Speed::new(args.events, fastest.seconds, first),
            rounds_events_per_s,
            duplicates: rounds.duplicates,
            order_violations: rounds.order_violations,
            balanced: !rounds.unbalanced,
        });
        watches.push(fastest);
    }
    report(stage, args, &sinks, (cases, watches), memory).await
}

async fn report(
    stage: &Stage,
    args: &ScaleArgs,
    sinks: &Sinks,
    (cases, watches): (Vec<Case>, Vec<Watch>),
    memory: (u64, u64),
) -> Result<Report, Failure> {
    let sum = |of: fn(&Case) -> u64| cases.iter().map(of).sum::<u64>();
    let found = (sum(|case| case.duplicates), sum(|case| case.order_violations));
    let soundness = Soundness::new(memory, found, cases.iter().all(|case| case.balanced));
    let (first, others) = cases
        .split_first()
        .ok_or_else(|| Failure::Usage("--relays: name at least one".to_owned()))?;
    let slowest = others.iter().min_by(|a, b| a.speed.ratio.total_cmp(&b.speed.ratio));
    let slowest = slowest.unwrap_or(first);
    let (speed, relays) = (slowest.speed, slowest.relays);
    let settings = Settings::new(&args.relay, &args.event, relays);
    let mut figures: Vec<(String, String)> = cases
        .iter()
        .map(|case| {
            let Speed { events_per_s, ratio, .. } = case.speed;
            let percent = format!("{:.0} % of the first", ratio * 100.0);
            (relays_in_words(case.relays), format!("{}, {percent}", rate(events_per_s)))
        })
        .collect();
    figures.push(rounds_figure(args.rounds));
    figures.extend(settings.figures(sinks, args.events).into_iter().filter(|(n, _)| n != "relays"));
    figures.extend(soundness_figures(&soundness));
    let bars = cases
        .iter()
        .map(|case| (relays_in_words(case.relays), case.speed.events_per_s, None))
        .collect();
    let over_time = |(case, watched): (&Case, &Watch)| {
        (relays_in_words(case.relays).into(), watched.rate_over_time())
    };
    let plots = vec![
        Plot::Bars(Bars { title: "Rate by relays", unit: "events/s", bars }),
        Plot::Lines(Lines {
            title: "Delivery rate over time",
            y_unit: "events/s",
            x: Axis::Seconds,
            series: cases.iter().zip(&watches).map(over_time).collect(),
        }),
    ];
    let against =
        format!("of {} ({})", relays_in_words(first.relays), rate(speed.limit_events_per_s));
    Ok(Report {
        facts: Facts::gather("scale", stage).await?,
        headline: format!("{} with {}", rate(speed.events_per_s), relays_in_words(relays)),
        against,
        ratio: speed.ratio,
        figures,
        plots,
        failure: soundness.failure(settings.claim),
        details: details(&Details { sink: sinks.facts(), settings, speed, cases, soundness })?,
    })
}

fn relays_in_words(relays: u32) -> String {
    format!("{relays} relay{}", if relays == 1 { "" } else { "s" })
}
