//! `postrider bench latency`

use std::sync::Arc;
use std::time::Duration;

use postrider_command::Failure;
use postrider_relay::Batch;
use postrider_store::Event;
use serde::Serialize;
use tokio::time::Instant;

use super::event::{Maker, sample};
use super::facts::{Facts, Settings, Soundness, Speed};
use super::numbers::{Percentiles, percentile, thinned};
use super::paced;
use super::relays::{self, POINTS_MAX, Plan};
use super::report::{Axis, Lines, Plot, Report};
use super::schedule::{Latencies, Schedule, Times, Writers};
use super::sinks::{SinkFacts, Sinks};
use super::stage::{Stage, bar};
use super::{details, rate, soundness_figures};
use crate::cli::LatencyArgs;

/// Maximum length of the run that determines the limit, in seconds.
const LIMIT_SECONDS_MAX: u32 = 10;
/// Interval at which the barest loop polls an empty table.
const LIMIT_POLL: Duration = Duration::from_millis(1);
const SINK_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of points in the plot of percentiles.
const NINES: u32 = 80;

#[derive(Debug, Serialize)]
struct Details {
    #[serde(flatten)]
    sink: SinkFacts,
    #[serde(flatten)]
    settings: Settings,
    rate: u32,
    /// Excluded from the times.
    warm_up_s: u32,
    writers: u32,
    #[serde(flatten)]
    speed: Speed,
    /// From the commit to the delivery.
    #[serde(flatten)]
    from_commit: Percentiles,
    /// From the time at which the event was due, whatever delayed its writer.
    from_due: Percentiles,
    /// From the commit, for the barest client loop at the same rate.
    limit: Percentiles,
    #[serde(flatten)]
    soundness: Soundness,
}

pub(super) async fn latency(stage: &Stage, args: &LatencyArgs) -> Result<Report, Failure> {
    let load = &args.load;
    let warm_up_events = paced::events(args.rate, args.warm_up)?;
    let events = paced::events(args.rate, args.warm_up + args.seconds)?;
    let sinks = Sinks::prepare(stage, &load.sink).await?;
    let outbox = stage.outbox("").await?;
    let plan = Plan::new(&outbox, &sinks, load.relay.claim, load.relay.batch, load.relays);
    let idle = relays::idle_bytes(stage, &plan).await?;
    let run =
        paced::run(stage, (&outbox, &sinks), load, (args.rate, events, warm_up_events)).await?;
    stage.drop_outbox(&outbox).await?;
    let limit = barest(stage, &sinks, args).await?;

    let found = &run.latencies;
    let from_commit = Percentiles::of(&found.from_commit_ms);
    let from_due = Percentiles::of(&found.from_due_ms);
    let limit_from_commit = Percentiles::of(&limit.from_commit_ms);
    let soundness = Soundness::new(
        (run.watched.rss_max_bytes, idle),
        run.duplicates_and_order_violations,
        run.balanced,
    );
    let speed = Speed::new(events, run.watched.seconds, f64::from(args.rate));
    let settings = Settings::new(&load.relay, &load.event, load.relays);
    let mut figures = vec![
        ("commit → delivered".to_owned(), in_words(&from_commit)),
        ("due → delivered".to_owned(), in_words(&from_due)),
        ("barest client loop".to_owned(), in_words(&limit_from_commit)),
        (
            "delivered".to_owned(),
            format!("{} of {}", rate(speed.events_per_s), rate(args.rate.into())),
        ),
    ];
    figures.extend(settings.figures(&sinks, events));
    figures.extend(soundness_figures(&soundness));
    Ok(Report {
        facts: Facts::gather("latency", stage).await?,
        headline: format!("p99 {} ms at {}", from_commit.p99_ms, rate(args.rate.into())),
        against: format!("of the {} that were asked for", rate(args.rate.into())),
        ratio: speed.ratio,
        figures,
        plots: plots(stage, &run, &limit),
        failure: soundness.failure(settings.claim),
        details: details(&Details {
            sink: sinks.facts(),
            settings,
            rate: args.rate,
            warm_up_s: args.warm_up,
            writers: load.writers,
            speed,
            from_commit,
            from_due,
            limit: limit_from_commit,
            soundness,
        })?,
    })
}

/// Runs the same load against a loop that reads the oldest rows, passes them to the sink and
/// deletes them.
async fn barest(stage: &Stage, sinks: &Sinks, args: &LatencyArgs) -> Result<Latencies, Failure> {
    let (load, rate) = (&args.load, args.rate);
    let warm_up_events = paced::events(rate, args.warm_up)?;
    let events = paced::events(rate, args.warm_up + args.seconds.min(LIMIT_SECONDS_MAX))?;
    let copy = stage.outbox("_limit").await?;
    let maker = Maker::new(load.event.keys, load.event.payload);
    let schedule = Arc::new(Schedule::start(rate, events));
    let times = Arc::new(Times::of(&schedule));
    let clock = (&schedule, Some(&times));
    let mut writers = Writers::start(stage, &copy, &maker, clock, load.writers).await?;
    let sink = sinks.open()?;
    let model = sample(0, load.event.keys, load.event.payload);
    let (bar, mut taken) = (bar("limit", events), 0);
    while taken < events {
        writers.check()?;
        let rows = stage.bare.read_first(copy.table(), load.relay.batch).await?;
        if rows.is_empty() {
            tokio::time::sleep(LIMIT_POLL).await;
            continue;
        }
        let (ids, payloads): (Vec<i64>, Vec<String>) = rows.into_iter().unzip();
        let event = |payload: &String| Event { payload: payload.clone(), ..model.clone() };
        let events: Vec<Event> = payloads.iter().map(event).collect();
        drop(sink.deliver(Batch::new(&events, Instant::now() + SINK_TIMEOUT)).await);
        payloads.iter().for_each(|payload| times.delivered(payload));
        stage.bare.delete(copy.table(), &ids).await?;
        taken += ids.len() as u64;
        bar.set_position(taken);
    }
    bar.finish_and_clear();
    sink.close().await;
    writers.finish().await?;
    stage.drop_outbox(&copy).await?;
    Ok(times.latencies(warm_up_events))
}

fn in_words(times: &Percentiles) -> String {
    let Percentiles { p50_ms, p95_ms, p99_ms, max_ms } = times;
    format!("p50 {p50_ms} ms, p95 {p95_ms} ms, p99 {p99_ms} ms, max {max_ms} ms")
}

fn plots(stage: &Stage, run: &paced::Paced, limit: &Latencies) -> Vec<Plot> {
    // As many nines as the number of events can resolve.
    let nines = (run.events as f64).log10().max(1.0);
    let curve = |sorted: &[f64]| {
        let points = (0..=NINES).map(|step| {
            let p = 1.0 - 10_f64.powf(-nines * f64::from(step) / f64::from(NINES));
            (p, percentile(sorted, p * 100.0))
        });
        points.collect::<Vec<_>>()
    };
    let over_time = |title, y_unit, points| {
        Plot::Lines(Lines { title, y_unit, x: Axis::Seconds, series: vec![("".into(), points)] })
    };
    vec![
        Plot::Lines(Lines {
            title: "Latency by percentile",
            y_unit: "ms",
            x: Axis::Nines,
            series: vec![
                ("commit → delivered".into(), curve(&run.latencies.from_commit_ms)),
                ("due → delivered".into(), curve(&run.latencies.from_due_ms)),
                ("barest client loop".into(), curve(&limit.from_commit_ms)),
            ],
        }),
        over_time(
            "Latency over time",
            "ms from commit to delivery",
            thinned(&run.latencies.over_time, POINTS_MAX),
        ),
        over_time("Delivery rate over time", "events/s", run.watched.rate_over_time()),
        over_time("Backlog over time", "events waiting", run.watched.backlog_over_time()),
        over_time("Claim time over time", "ms per claim", stage.claims.thinned()),
    ]
}
