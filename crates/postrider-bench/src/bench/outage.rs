//! `postrider bench outage`

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::Preset;
use serde::Serialize;
use tokio::process::Command;

use super::event::Maker;
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::rounded;
use super::paced;
use super::relays::{self, Goal, Plan, Relays};
use super::report::{Axis, Lines, Plot, Report};
use super::schedule::{Schedule, Writers};
use super::sinks::{SinkFacts, Sinks};
use super::stage::Stage;
use super::{details, rate, soundness_figures};
use crate::cli::OutageArgs;

/// Interval between checks of the deliveries.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    rate: u32,
    writers: u32,
    #[serde(flatten)]
    outage: Outage,
    lost: u64,
    #[serde(flatten)]
    speed: Speed,
    #[serde(flatten)]
    soundness: Soundness,
}

/// The course of the outage, as this process saw it.
#[derive(Debug, Clone, Copy, Serialize)]
struct Outage {
    /// Seconds from the end of the command that stopped the destination to the end of the command
    /// that started it.
    away_s: f64,
    /// Seconds from the end of the command that started it to the next delivery.
    resumed_after_s: f64,
    /// Events that waited when it returned.
    waiting: u64,
}

pub(super) async fn outage(stage: &Stage, args: &OutageArgs) -> Result<Report, Failure> {
    let load = &args.load;
    let away_s = u32::try_from(args.away.as_secs()).unwrap_or(u32::MAX / 2);
    let events = paced::events(args.rate, away_s.saturating_add(2 * args.around))?;
    let sinks = Sinks::prepare(stage, &load.sink).await?;
    let outbox = stage.outbox("").await?;
    let mut plan = Plan::new(&outbox, &sinks, load.relay.claim, load.relay.batch, load.relays);
    let idle = relays::idle_bytes(stage, &plan).await?;
    // Probes are sent at the preset's interval, since that is what is measured.
    plan.idle_poll = Preset::broker().idle_poll;
    plan.stall = args.away * 2 + relays::STALL;
    let schedule = Arc::new(Schedule::start(args.rate, events));
    let relays = Relays::start(stage, &plan).await?;
    let maker = Maker::new(load.event.keys, load.event.payload);
    let mut writers =
        Writers::start(stage, &outbox, &maker, (&schedule, None), load.writers).await?;
    let appended = || schedule.appended.load(Ordering::SeqCst);
    let goal = Goal { title: "outage", deliver: events, leave: 0, appended: &appended };
    let (watched, seen) = tokio::try_join!(
        relays::watch(stage, (&plan, &relays), Some(&mut writers), goal),
        disturb(args, || plan.checker.delivered(), &appended),
    )?;
    relays.stop().await?;
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let soundness = Soundness::new(
        (watched.rss_max_bytes, idle),
        plan.checker.duplicates_and_order_violations(),
        balanced,
    );
    let speed = Speed::new(events, watched.seconds, f64::from(args.rate));
    let settings = Settings::new(&load.relay, &load.event, load.relays);
    let lost = events.saturating_sub(plan.checker.delivered());
    let mut figures = vec![
        ("away".to_owned(), format!("{} s", seen.away_s)),
        ("waiting at its return".to_owned(), number(i128::from(seen.waiting))),
        ("lost".to_owned(), number(i128::from(lost))),
        ("offered".to_owned(), rate(args.rate.into())),
    ];
    figures.extend(settings.figures(&sinks, events));
    figures.extend(soundness_figures(&soundness));
    let over_time = |title, y_unit, points| {
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series: vec![("".into(), points)] })
    };
    Ok(Report {
        facts: Facts::gather("outage", stage).await?,
        headline: format!("delivering again {} s after its return", seen.resumed_after_s),
        against: format!(
            "of the {} that were asked for, over the whole run",
            rate(args.rate.into())
        ),
        ratio: speed.ratio,
        figures,
        plots: vec![
            over_time("Delivery rate over time", "events/s", watched.rate_over_time()),
            over_time("Backlog over time", "events waiting", watched.backlog_over_time()),
        ],
        failure: soundness.failure(settings.claim),
        details: details(&Details {
            sink: sinks.facts(),
            settings,
            rate: args.rate,
            writers: load.writers,
            outage: seen,
            lost,
            speed,
            soundness,
        })?,
    })
}

/// Stops the destination and starts it again.
async fn disturb(
    args: &OutageArgs,
    delivered: impl Fn() -> u64,
    appended: &impl Fn() -> u64,
) -> Result<Outage, Failure> {
    tokio::time::sleep(Duration::from_secs(args.around.into())).await;
    shell("--stop", &args.stop).await?;
    let stopped = Instant::now();
    tokio::time::sleep(args.away).await;
    shell("--start", &args.start).await?;
    let (returned, before) = (Instant::now(), delivered());
    let waiting = appended().saturating_sub(before);
    let away_s = rounded(stopped.elapsed().as_secs_f64(), 2);
    // There is nothing to wait for if everything was delivered between two checks.
    while delivered() == before && appended() > before {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let resumed_after_s = rounded(returned.elapsed().as_secs_f64(), 3);
    Ok(Outage { away_s, resumed_after_s, waiting })
}

async fn shell(option: &str, command: &str) -> Result<(), Failure> {
    let failed = |why: String| Failure::Partly(format!("{option} `{command}`: {why}"));
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
}
