//! `postrider bench blocked-keys`

use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use serde::Serialize;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::{ratio, rounded};
use super::relays::{self, Plan, Watch};
use super::report::{Axis, Lines, Plot, Report};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, rounds_figure, soundness_figures};
use crate::cli::BlockedKeysArgs;

const FAILING: &str = "failing-";

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    blocked: u64,
    failing_keys: u64,
    /// Rate of the ready events, from the first delivery on, in the fastest round. The limit is
    /// that of the fastest round without blocked events.
    #[serde(flatten)]
    speed: Speed,
    rounds_events_per_s: Vec<f64>,
    rounds_limit_events_per_s: Vec<f64>,
    /// The same, measured from the start of the relay, which meets the blocked events for the first
    /// time and passes over each of them once.
    from_start: Speed,
    #[serde(flatten)]
    soundness: Soundness,
}

/// The results of the rounds.
#[derive(Default)]
struct Rounds {
    without: Vec<Watch>,
    with: Vec<Watch>,
    /// Claim times of each round with blocked events.
    claims: Vec<Vec<(f64, f64)>>,
    duplicates: u64,
    order_violations: u64,
    unbalanced: bool,
}

pub(super) async fn blocked_keys(stage: &Stage, args: &BlockedKeysArgs) -> Result<Report, Failure> {
    let sinks = Sinks::prepare(stage, &args.sink).await?;
    let outbox = stage.outbox("").await?;
    let idle = relays::idle_bytes(stage, &plan(args, &outbox, &sinks)).await?;
    stage.drop_outbox(&outbox).await?;
    let mut rounds = Rounds::default();
    // In turns, and the fastest round of each counts: a machine's speed varies over time.
    for round in 0..args.rounds {
        rounds.without.push(without_blocked(stage, args, round, &sinks).await?);
        with_blocked(stage, args, round, &sinks, &mut rounds).await?;
    }
    let rss_max = rounds.with.iter().map(|watch| watch.rss_max_bytes).max().unwrap_or_default();
    let found = (rounds.duplicates, rounds.order_violations);
    let soundness = Soundness::new((rss_max, idle), found, !rounds.unbalanced);
    report(stage, args, &sinks, &rounds, soundness).await
}

async fn report(
    stage: &Stage,
    args: &BlockedKeysArgs,
    sinks: &Sinks,
    rounds: &Rounds,
    soundness: Soundness,
) -> Result<Report, Failure> {
    let rates = |watches: &[Watch]| -> Vec<f64> {
        let rate = |watch: &Watch| rounded(ratio(args.ready as f64, watch.running_s()), 1);
        watches.iter().map(rate).collect()
    };
    let least = |watches: &[Watch], seconds: fn(&Watch) -> f64| {
        watches.iter().map(seconds).fold(f64::INFINITY, f64::min)
    };
    let speed = |seconds: fn(&Watch) -> f64| {
        let unblocked = ratio(args.ready as f64, least(&rounds.without, seconds));
        Speed::new(args.ready, least(&rounds.with, seconds), unblocked)
    };
    let (speed, from_start) = (speed(Watch::running_s), speed(|watch| watch.seconds));
    let fastest = |watches: &[Watch]| {
        let by_time =
            |a: &usize, b: &usize| watches[*a].running_s().total_cmp(&watches[*b].running_s());
        (0..watches.len()).min_by(by_time).unwrap_or_default()
    };
    let (run, alone) = (fastest(&rounds.with), fastest(&rounds.without));
    let (run, claims, alone) = (&rounds.with[run], &rounds.claims[run], &rounds.without[alone]);
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
            least(&rounds.with, |watch| watch.first_s) * 1_000.0,
            least(&rounds.without, |watch| watch.first_s) * 1_000.0,
        ),
    ));
    figures.push(rounds_figure(args.rounds));
    figures.extend(settings.figures(sinks, args.ready));
    figures.extend(soundness_figures(&soundness));
    let both = |title, y_unit, of: fn(&Watch) -> Vec<(f64, f64)>| {
        let series = vec![("with blocked keys".into(), of(run)), ("without".into(), of(alone))];
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series })
    };
    let plots = vec![
        both("Delivery rate over time", "events/s", Watch::rate_over_time),
        both("Ready events over time", "events waiting", Watch::backlog_over_time),
        Plot::Lines(Lines {
            title: "Claim time over time",
            y_unit: "ms per claim",
            x: Axis::Seconds,
            series: vec![("with blocked keys".into(), claims.clone())],
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
            rounds_events_per_s: rates(&rounds.with),
            rounds_limit_events_per_s: rates(&rounds.without),
            from_start,
            soundness,
        })?,
    })
}

fn plan<'a>(args: &BlockedKeysArgs, outbox: &'a Outbox, sinks: &'a Sinks) -> Plan<'a> {
    Plan::new(outbox, sinks, args.relay.claim, args.relay.batch, args.relays)
}

/// Delivers the ready events alone.
async fn without_blocked(
    stage: &Stage,
    args: &BlockedKeysArgs,
    round: u32,
    sinks: &Sinks,
) -> Result<Watch, Failure> {
    let outbox = stage.outbox(&format!("_{round}")).await?;
    stage.fill(&outbox, &Maker::new(args.event.keys, args.event.payload), args.ready).await?;
    let watched = relays::drain(stage, &plan(args, &outbox, sinks), args.ready, 0).await?;
    stage.drop_outbox(&outbox).await?;
    Ok(watched)
}

/// Delivers the same ready events behind the blocked ones.
async fn with_blocked(
    stage: &Stage,
    args: &BlockedKeysArgs,
    round: u32,
    sinks: &Sinks,
    rounds: &mut Rounds,
) -> Result<(), Failure> {
    let outbox = stage.outbox(&format!("_blocked_{round}")).await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    let failing = maker.clone().keys_named(args.failing_keys, FAILING);
    stage.fill(&outbox, &failing, args.blocked).await?;
    stage.fill(&outbox, &maker, args.ready).await?;
    let mut plan = plan(args, &outbox, sinks);
    plan.failing = Some(FAILING);
    rounds.with.push(relays::drain(stage, &plan, args.ready, args.blocked).await?);
    rounds.claims.push(stage.claims.thinned());
    rounds.unbalanced |= !relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;
    let (duplicates, order_violations) = plan.checker.duplicates_and_order_violations();
    rounds.duplicates += duplicates;
    rounds.order_violations += order_violations;
    Ok(())
}
