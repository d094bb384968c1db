//! `postrider bench buffer`

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::buffer::{Buffer, BufferSettings, INCREMENTS_MAX};
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::{BufferConfig, Durability, Relay, RelayConfig};
use postrider_store::{BatchTarget, StoreKind, TableTarget};
use rand::seq::SliceRandom;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::facts::{Facts, Speed};
use super::numbers::ratio;
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use super::{buffer_bare, details};
use crate::cli::BufferBenchArgs;

/// Interval between checks whether the buffer is empty.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
struct Details {
    fields_max: u32,
    redis: String,
    /// Of the first case: new rows.
    #[serde(flatten)]
    speed: Speed,
    cases: Vec<Case>,
    /// Whether the sum in the table is the sum that was written.
    exact: bool,
}

#[derive(Debug, Serialize)]
struct Case {
    case: &'static str,
    #[serde(flatten)]
    speed: Speed,
}

pub(super) async fn buffer(stage: &Stage, args: &BufferBenchArgs) -> Result<Report, Failure> {
    stage.store.migrate(&[]).await?;
    let settings = stage.buffer(&args.redis)?;
    let (saved, plain) = (stage.count_table("").await?, stage.count_table("_plain").await?);
    let mut entries: Vec<(String, i64)> =
        (0..args.entries).map(|n| (format!("post-{n:08}"), 1 + (n % 7) as i64)).collect();
    // In random order, since Redis returns the fields of a batch that way; ascending ones would be
    // easier on an index than anything that a real buffer contains.
    entries.shuffle(&mut rand::rng());
    let per_batch = match stage.store.kind() {
        StoreKind::Sqlite => args.fields_max.min(1_000),
        StoreKind::Postgres | StoreKind::Mysql => args.fields_max,
    };
    let mut cases = Vec::new();
    for case in ["new rows", "known rows"] {
        let started = Instant::now();
        buffer_bare::upsert(&stage.bare, &plain, &entries, per_batch as usize).await?;
        let limit = ratio(entries.len() as f64, started.elapsed().as_secs_f64());
        fill(&settings, &entries).await?;
        let seconds = flush(stage, args, &settings, &saved).await?;
        cases.push(Case { case, speed: Speed::new(args.entries, seconds, limit) });
    }
    let written: i64 = entries.iter().map(|(_, count)| count).sum();
    let exact = buffer_bare::total(&stage.bare, &saved).await? == 2 * written;
    report(stage, args, cases, exact).await
}

async fn fill(settings: &BufferSettings, entries: &[(String, i64)]) -> Result<(), Failure> {
    let (buffer, bar) = (Buffer::new(settings.clone())?, bar("filling", entries.len() as u64));
    for part in entries.chunks(INCREMENTS_MAX) {
        let counts: Vec<_> = part.iter().map(|(field, count)| (field.as_str(), *count)).collect();
        buffer.increment_all(&counts).await?;
        bar.inc(part.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Returns the seconds from the start of a relay until the buffer is empty and nothing is in
/// transit.
async fn flush(
    stage: &Stage,
    args: &BufferBenchArgs,
    settings: &BufferSettings,
    table: &str,
) -> Result<f64, Failure> {
    let target = TableTarget::new(table, "post", "total").map_err(Failure::Usage)?;
    let worker = Arc::new(Buffer::new(settings.clone())?);
    let config = BufferConfig {
        fields_max: args.fields_max,
        flush_every: Duration::from_millis(10),
        // The counts are artificial, so losing them does no harm.
        durability: Durability::Warn,
        ..BufferConfig::new(worker, BatchTarget::Table(target))
    };
    let buffer = Buffer::new(settings.clone())?;
    let stop = CancellationToken::new();
    let relay = Relay::new(stage.another_store().await?, RelayConfig::default()).buffer(config);
    let started = Instant::now();
    let running = stage.running.spawn(relay.run(stop.clone()));
    let _stop = stop.clone().drop_guard();
    loop {
        let look = buffer.look().await?;
        if look.fields == 0 && look.batches.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    stop.cancel();
    running.await.map_err(|error| Failure::Partly(format!("the relay: {error}")))??;
    Ok(seconds)
}

async fn report(
    stage: &Stage,
    args: &BufferBenchArgs,
    cases: Vec<Case>,
    exact: bool,
) -> Result<Report, Failure> {
    let speed = cases[0].speed;
    let rate = |per_s: f64| format!("{} entries/s", number(per_s.round() as i128));
    let mut figures: Vec<(String, String)> = cases
        .iter()
        .map(|case| {
            let Speed { events_per_s, limit_events_per_s, ratio, .. } = case.speed;
            let limit = format!("{:.0} % of {}", ratio * 100.0, rate(limit_events_per_s));
            (case.case.to_owned(), format!("{}, {limit}", rate(events_per_s)))
        })
        .collect();
    figures.extend([
        ("entries".to_owned(), number(i128::from(args.entries))),
        ("fields per batch".to_owned(), number(i128::from(args.fields_max))),
        ("sum".to_owned(), if exact { "exact" } else { "NOT EXACT" }.to_owned()),
    ]);
    let bars = cases.iter().map(|case| {
        let Speed { events_per_s, limit_events_per_s, .. } = case.speed;
        (case.case.to_owned(), events_per_s, Some(limit_events_per_s))
    });
    let plots = vec![Plot::Bars(Bars {
        title: "From Redis into the table",
        unit: "entries/s",
        bars: bars.collect(),
    })];
    Ok(Report {
        facts: Facts::gather("buffer", stage).await?,
        headline: format!("{} saved as new rows", rate(speed.events_per_s)),
        against: format!("of plain upserts from memory ({})", rate(speed.limit_events_per_s)),
        ratio: speed.ratio,
        figures,
        plots,
        failure: (!exact).then(|| Failure::Unbalanced("the sum in the table".to_owned())),
        details: details(&Details {
            fields_max: args.fields_max,
            redis: Buffer::new(BufferSettings::new("bench", &args.redis))?.nodes(),
            speed,
            cases,
            exact,
        })?,
    })
}
