//! `postrider bench producers`

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::bare::Bare;
use super::event::Maker;
use super::facts::Facts;
use super::numbers::{Percentiles, ratio, rounded};
use super::relays::{self, Plan, Relays};
use super::report::{Bars, Plot, Report};
use super::sinks::Sinks;
use super::stage::Stage;
use super::{details, rate};
use crate::cli::ProducersArgs;

/// Interval between checks whether the backlog is gone.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Serialize)]
struct Details {
    claim: &'static str,
    relays: u32,
    batch: u32,
    payload_bytes: u32,
    keys: u64,
    writers: u32,
    rate: u32,
    backlog: u64,
    /// Rate of deliveries while the producers work.
    delivered_per_s: f64,
    /// Rate of the application's transactions, beside the relays and alone.
    events_per_s: f64,
    limit_events_per_s: f64,
    /// The p99 alone, divided by the p99 beside the relays.
    ratio: f64,
    alone: Percentiles,
    beside_relays: Percentiles,
    /// Beside a loop that reads and deletes the same backlog with plain statements.
    beside_barest: Percentiles,
    balanced: bool,
}

pub(super) async fn producers(stage: &Stage, args: &ProducersArgs) -> Result<Report, Failure> {
    let outbox = stage.outbox("").await?;
    let producers = Producers::connect(stage, args).await?;
    stage.fill(&outbox, &producers.maker, args.events).await?;
    let alone = producers.run(&outbox, || false).await?;

    let sinks = Sinks::Null;
    let plan = Plan::new(&outbox, &sinks, args.relay.claim, args.relay.batch, args.relays);
    let relays = Relays::start(stage, &plan).await?;
    let beside_relays = producers.run(&outbox, || plan.checker.delivered() >= args.events).await?;
    let delivered_per_s = ratio(plan.checker.delivered() as f64, beside_relays.seconds);
    relays.stop().await?;
    let balanced = relays::balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let copy = stage.outbox("_limit").await?;
    stage.fill(&copy, &producers.maker, args.events).await?;
    let taken = AtomicU64::new(0);
    let count = |rows| taken.store(rows, Ordering::Relaxed);
    let taking = stage.bare.take_out(copy.table(), args.relay.batch, count);
    let gone = || taken.load(Ordering::Relaxed) >= args.events;
    let mut producing = pin!(producers.run(&copy, gone));
    let beside_barest = tokio::select! {
        run = &mut producing => run?,
        rows = taking => {
            taken.store(rows?.max(args.events), Ordering::Relaxed);
            producing.await?
        }
    };
    stage.drop_outbox(&copy).await?;
    let runs = [alone, beside_relays, beside_barest];
    report(stage, args, (runs, delivered_per_s), balanced).await
}

/// The times of the application's transactions in one run.
struct Run {
    seconds: f64,
    /// Sorted.
    times_ms: Vec<f64>,
}

impl Run {
    fn per_s(&self) -> f64 {
        rounded(ratio(self.times_ms.len() as f64, self.seconds), 1)
    }
}

/// Connections of an application that appends at a fixed rate, each event in its own transaction.
struct Producers {
    bare: Bare,
    maker: Maker,
    writers: u32,
    rate: u32,
    time: Duration,
    transactions_min: u32,
    /// The next event number; those of the backlog come first.
    next: Arc<AtomicU64>,
}

impl Producers {
    async fn connect(stage: &Stage, args: &ProducersArgs) -> Result<Self, Failure> {
        Ok(Self {
            bare: Bare::connect(&stage.url, args.writers).await?,
            maker: Maker::new(args.event.keys, args.event.payload),
            writers: args.writers,
            rate: args.rate,
            time: Duration::from_secs(args.seconds.into()),
            transactions_min: args.transactions_min,
            next: Arc::new(AtomicU64::new(args.events)),
        })
    }

    /// Appends until the time is over, or until `over` holds.
    async fn run(&self, outbox: &Outbox, over: impl Fn() -> bool) -> Result<Run, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..self.writers {
            let (bare, maker) = (self.bare.clone(), self.maker.clone());
            let (next, stop) = (Arc::clone(&self.next), Arc::clone(&stop));
            let outbox = outbox.clone();
            let every = Duration::from_secs(self.writers.into()) / self.rate;
            tasks.spawn(async move {
                let mut ticks = tokio::time::interval(every);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let event = maker.make(next.fetch_add(1, Ordering::Relaxed));
                    let began = Instant::now();
                    bare.append_one(&outbox, &event).await?;
                    times.push(began.elapsed().as_secs_f64() * 1_000.0);
                }
                Ok::<_, Failure>(times)
            });
        }
        let began = Instant::now();
        while began.elapsed() < self.time && !over() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut times_ms = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            let failed = |error| Err(Failure::Partly(format!("a writer: {error}")));
            times_ms.extend(ended.unwrap_or_else(failed)?);
        }
        if times_ms.len() < self.transactions_min as usize {
            return Err(Failure::Usage(format!(
                "only {} transactions were measured, and {} are needed; use a larger --rate, more \
                 --seconds, or more --events of backlog",
                times_ms.len(),
                self.transactions_min
            )));
        }
        times_ms.sort_by(f64::total_cmp);
        Ok(Run { seconds: began.elapsed().as_secs_f64(), times_ms })
    }
}

async fn report(
    stage: &Stage,
    args: &ProducersArgs,
    (runs, delivered_per_s): ([Run; 3], f64),
    balanced: bool,
) -> Result<Report, Failure> {
    let [alone, beside_relays, beside_barest] =
        runs.each_ref().map(|run| Percentiles::of(&run.times_ms));
    let share = rounded(ratio(alone.p99_ms, beside_relays.p99_ms), 4);
    let names = ["alone", "beside the relays", "beside the barest loop"];
    let found = [alone, beside_relays, beside_barest];
    let words = |times: &Percentiles| format!("p50 {} ms, p99 {} ms", times.p50_ms, times.p99_ms);
    let mut figures: Vec<(String, String)> =
        names.iter().zip(&found).map(|(name, times)| ((*name).to_owned(), words(times))).collect();
    figures.extend([
        ("delivered meanwhile".to_owned(), rate(delivered_per_s)),
        ("writers".to_owned(), format!("{}, {}", args.writers, rate(args.rate.into()))),
        ("backlog".to_owned(), number(i128::from(args.events))),
        ("claim".to_owned(), format!("{}, batch {}", args.relay.claim, args.relay.batch)),
        ("ledger".to_owned(), if balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
    ]);
    let bars = |of: fn(&Percentiles) -> f64| {
        let bar = |(name, times): (&&str, &Percentiles)| ((*name).to_owned(), of(times), None);
        names.iter().zip(&found).map(bar).collect::<Vec<_>>()
    };
    Ok(Report {
        facts: Facts::gather("producers", stage).await?,
        headline: format!("p99 {} ms for the application's transaction", beside_relays.p99_ms),
        against: format!("of the speed without relays (p99 {} ms)", alone.p99_ms),
        ratio: share,
        figures,
        plots: vec![
            Plot::Bars(Bars { title: "p50", unit: "ms", bars: bars(|times| times.p50_ms) }),
            Plot::Bars(Bars { title: "p99", unit: "ms", bars: bars(|times| times.p99_ms) }),
        ],
        failure: (!balanced).then(|| Failure::Unbalanced("after the appends".to_owned())),
        details: details(&Details {
            claim: args.relay.claim.as_str(),
            relays: args.relays,
            batch: args.relay.batch,
            payload_bytes: args.event.payload,
            keys: args.event.keys,
            writers: args.writers,
            rate: args.rate,
            backlog: args.events,
            delivered_per_s: rounded(delivered_per_s, 1),
            events_per_s: runs[1].per_s(),
            limit_events_per_s: runs[0].per_s(),
            ratio: share,
            alone,
            beside_relays,
            beside_barest,
            balanced,
        })?,
    })
}
