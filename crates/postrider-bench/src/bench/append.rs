//! `postrider bench append`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use serde::Serialize;
use tokio::task::JoinSet;

use super::bare::Bare;
use super::event::Maker;
use super::facts::{Facts, Speed};
use super::numbers::ratio;
use super::relays;
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use super::{details, rate};
use crate::cli::AppendBenchArgs;

/// Factor for the number of events in batched cases, which are faster: their runs would otherwise
/// shrink from a second to a tenth.
const BATCHED_TIMES: u64 = 10;

#[derive(Debug, Serialize)]
struct Details {
    payload_bytes: u32,
    keys: u64,
    batch: u32,
    writers: u32,
    /// Of the first case: single appends without request id.
    #[serde(flatten)]
    speed: Speed,
    cases: Vec<Case>,
    balanced: bool,
}

#[derive(Debug, Serialize)]
struct Case {
    case: &'static str,
    request_id: bool,
    per_append: u32,
    /// The limit: plain inserts of the same batch size into a table with nothing but a primary key.
    #[serde(flatten)]
    speed: Speed,
}

/// The table that events are written to.
#[derive(Clone)]
enum Into {
    Outbox(Outbox),
    PlainTable(String),
}

pub(super) async fn append(stage: &Stage, args: &AppendBenchArgs) -> Result<Report, Failure> {
    let outbox = stage.outbox("").await?;
    let plain = Into::PlainTable(stage.plain_table("_plain").await?);
    let bare = Bare::connect(&stage.url, args.writers).await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    let mut cases: Vec<Case> = Vec::new();
    for (events, per_append, [without, with]) in [
        (args.events, 1, ["single", "single, request id"]),
        (args.events * BATCHED_TIMES, args.batch, ["batch", "batch, request id"]),
    ] {
        let work = |into: &Into, maker: &Maker| Work {
            bare: bare.clone(),
            into: into.clone(),
            maker: maker.clone(),
            events,
            per_append: u64::from(per_append),
            next: AtomicU64::new(0),
        };
        // Measured before and after: the first writes of a connection are not its fastest.
        let before_s = work(&plain, &maker).timed(args.writers).await?;
        let mut measured = Vec::new();
        for (case, request_id) in [(without, false), (with, true)] {
            let maker = match request_id {
                true => maker.clone().request_ids(&format!("per-{per_append}")),
                false => maker.clone(),
            };
            let work = work(&Into::Outbox(outbox.clone()), &maker);
            measured.push((case, request_id, work.timed(args.writers).await?));
        }
        let after_s = work(&plain, &maker).timed(args.writers).await?;
        let limit = ratio(events as f64, before_s.min(after_s));
        cases.extend(measured.into_iter().map(|(case, request_id, seconds)| {
            let speed = Speed::new(events, seconds, limit);
            Case { case, request_id, per_append, speed }
        }));
    }
    let balanced = relays::balanced(stage, &outbox).await?;
    report(stage, args, cases, balanced).await
}

/// Events to append, shared by all writers.
struct Work {
    bare: Bare,
    into: Into,
    maker: Maker,
    events: u64,
    per_append: u64,
    next: AtomicU64,
}

impl Work {
    /// Returns the seconds that all writers together take.
    async fn timed(self, writers: u32) -> Result<f64, Failure> {
        let (work, bar) = (Arc::new(self), bar("appending", 0));
        bar.set_length(work.events);
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..writers {
            let (work, bar) = (Arc::clone(&work), bar.clone());
            tasks.spawn(async move {
                while let Some(numbers) = work.take() {
                    let count = numbers.end - numbers.start;
                    work.write(numbers).await?;
                    bar.inc(count);
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap_or_else(|error| Err(Failure::Partly(format!("a writer: {error}"))))?;
        }
        bar.finish_and_clear();
        Ok(started.elapsed().as_secs_f64())
    }

    fn take(&self) -> Option<std::ops::Range<u64>> {
        let first = self.next.fetch_add(self.per_append, Ordering::SeqCst);
        (first < self.events).then(|| first..(first + self.per_append).min(self.events))
    }

    async fn write(&self, numbers: std::ops::Range<u64>) -> Result<(), Failure> {
        match (&self.into, self.per_append) {
            (Into::Outbox(outbox), 1) => {
                self.bare.append_one(outbox, &self.maker.make(numbers.start)).await
            }
            (Into::Outbox(outbox), _) => {
                let events: Vec<_> = numbers.map(|number| self.maker.make(number)).collect();
                drop(self.bare.appender().append_all(outbox, &events).await?);
                Ok(())
            }
            (Into::PlainTable(table), 1) => {
                self.bare.insert_one(table, &self.maker, numbers.start).await
            }
            (Into::PlainTable(table), _) => {
                self.bare.insert_many(table, &self.maker, numbers).await
            }
        }
    }
}

async fn report(
    stage: &Stage,
    args: &AppendBenchArgs,
    cases: Vec<Case>,
    balanced: bool,
) -> Result<Report, Failure> {
    let speed = cases[0].speed;
    let mut figures: Vec<(String, String)> = cases
        .iter()
        .map(|case| {
            let Speed { events_per_s, limit_events_per_s, ratio, .. } = case.speed;
            let limit = format!("{:.0} % of {}", ratio * 100.0, rate(limit_events_per_s));
            (case.case.to_owned(), format!("{}, {limit}", rate(events_per_s)))
        })
        .collect();
    figures.extend([
        ("writers".to_owned(), number(i128::from(args.writers))),
        ("events per batch".to_owned(), number(i128::from(args.batch))),
        ("payload".to_owned(), format!("{} B", args.event.payload)),
        ("ledger".to_owned(), if balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
    ]);
    let bars = |cases: &[Case]| {
        let bar = |case: &Case| {
            let Speed { events_per_s, limit_events_per_s, .. } = case.speed;
            (case.case.to_owned(), events_per_s, Some(limit_events_per_s))
        };
        cases.iter().map(bar).collect::<Vec<_>>()
    };
    let (single, batched) = cases.split_at(2);
    let plots = vec![
        Plot::Bars(Bars { title: "One by one", unit: "events/s", bars: bars(single) }),
        Plot::Bars(Bars { title: "In batches", unit: "events/s", bars: bars(batched) }),
    ];
    Ok(Report {
        facts: Facts::gather("append", stage).await?,
        headline: format!("{} one by one", rate(speed.events_per_s)),
        against: format!("of plain inserts ({})", rate(speed.limit_events_per_s)),
        ratio: speed.ratio,
        figures,
        plots,
        failure: (!balanced).then(|| Failure::Unbalanced("after the appends".to_owned())),
        details: details(&Details {
            payload_bytes: args.event.payload,
            keys: args.event.keys,
            batch: args.batch,
            writers: args.writers,
            speed,
            cases,
            balanced,
        })?,
    })
}
