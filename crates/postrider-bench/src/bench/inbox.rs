//! `postrider bench inbox`: the cost of deduplicating events for a consumer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use postrider::{Inbox, Incoming, ReceiveError, Transience, transience};
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_store::{Appender, StoreError};
use serde::Serialize;
use sqlx::QueryBuilder;
use tokio::task::JoinSet;

use super::bare::Bare;
use super::event::Maker;
use super::facts::{Facts, Speed};
use super::numbers::ratio;
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use super::{details, rate};
use crate::cli::InboxBenchArgs;

/// Maximum number of repeats of a rolled-back transaction: two consumers may conflict over a gap in
/// MariaDB's index.
const REPEATS_MAX: u32 = 20;

#[derive(Debug, Serialize)]
struct Details {
    payload_bytes: u32,
    batch: u32,
    consumers: u32,
    random_ids: bool,
    /// Rate of new events, each of which has an effect: a row in a table.
    #[serde(flatten)]
    speed: Speed,
    /// Rate of the same events once more, which have no effect.
    ignored_events_per_s: f64,
    received: i64,
    applied: i64,
    ignored: i64,
    balanced: bool,
}

pub(super) async fn inbox(stage: &Stage, args: &InboxBenchArgs) -> Result<Report, Failure> {
    stage.store.migrate(&[]).await?;
    let inbox = stage.inbox()?;
    let (with, without) = (stage.plain_table("_with").await?, stage.plain_table("_without").await?);
    let bare = Bare::connect(&stage.url, args.consumers).await?;
    let work = |table: &str, inbox: Option<&Inbox>| Work {
        bare: bare.clone(),
        table: table.to_owned(),
        inbox: inbox.cloned(),
        maker: Maker::new(args.event.keys, args.event.payload),
        events: args.events,
        batch: u64::from(args.batch),
        random_ids: args.random_ids,
        next: AtomicU64::new(0),
    };
    // Measured before and after: the first writes of a connection are not its fastest.
    let before_s = work(&without, None).timed(args.consumers).await?;
    let applied_s = work(&with, Some(&inbox)).timed(args.consumers).await?;
    let ignored_s = work(&with, Some(&inbox)).timed(args.consumers).await?;
    let after_s = work(&without, None).timed(args.consumers).await?;
    let events = args.events as f64;
    let speed = Speed::new(args.events, applied_s, ratio(events, before_s.min(after_s)));
    report(stage, args, &inbox, speed, ratio(events, ignored_s)).await
}

/// Batches to consume, shared by all consumers.
struct Work {
    bare: Bare,
    table: String,
    inbox: Option<Inbox>,
    maker: Maker,
    events: u64,
    batch: u64,
    random_ids: bool,
    next: AtomicU64,
}

/// Inbox, effect, commit; the same statements on any database.
macro_rules! consume {
    ($work:expr, $pool:expr, $begin:literal, $module:ident, $numbers:expr) => {{
        let mut tx = $pool.begin_with($begin).await?;
        let mut fresh: Vec<u64> = $numbers.clone().collect();
        if let Some(inbox) = &$work.inbox {
            let events: Vec<Incoming> =
                $numbers.map(|number| Incoming::new(identity(number, $work.random_ids))).collect();
            let answers = postrider::$module::receive_all(&mut tx, inbox, &events).await;
            let answers = answers.map_err(|error| match error {
                ReceiveError::Database(error) => error,
                error => sqlx::Error::Protocol(error.to_string()),
            })?;
            let mut answers = answers.into_iter();
            fresh.retain(|_| answers.next().is_some_and(|answer| answer.is_new()));
        }
        if !fresh.is_empty() {
            let head = "(aggregate_type, aggregate_id, event_type, payload) ";
            let mut insert = QueryBuilder::new(format!("INSERT INTO {} {head}", $work.table));
            insert.push_values(fresh, |mut row, number| {
                for column in $work.maker.columns(number) {
                    row.push_bind(column);
                }
            });
            insert.build().execute(&mut *tx).await?;
        }
        tx.commit().await
    }};
}

impl Work {
    /// Returns the seconds that all consumers together take.
    async fn timed(self, consumers: u32) -> Result<f64, Failure> {
        let (work, bar) = (Arc::new(self), bar("consuming", 0));
        bar.set_length(work.events);
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..consumers {
            let (work, bar) = (Arc::clone(&work), bar.clone());
            tasks.spawn(async move {
                while let Some(numbers) = work.take() {
                    let count = numbers.end - numbers.start;
                    work.consume(numbers).await?;
                    bar.inc(count);
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap_or_else(|error| Err(Failure::Partly(format!("a consumer: {error}"))))?;
        }
        bar.finish_and_clear();
        Ok(started.elapsed().as_secs_f64())
    }

    fn take(&self) -> Option<Range<u64>> {
        let first = self.next.fetch_add(self.batch, Ordering::SeqCst);
        (first < self.events).then(|| first..(first + self.batch).min(self.events))
    }

    async fn consume(&self, numbers: Range<u64>) -> Result<(), Failure> {
        let mut repeats = 0;
        loop {
            match self.consume_once(numbers.clone()).await {
                Err(error) if transience(&error) == Transience::Busy && repeats < REPEATS_MAX => {
                    repeats += 1;
                }
                other => return Ok(other.map_err(StoreError::from)?),
            }
        }
    }

    async fn consume_once(&self, numbers: Range<u64>) -> Result<(), sqlx::Error> {
        match self.bare.appender() {
            Appender::Postgres(pool) => consume!(self, pool, "BEGIN", postgres, numbers),
            Appender::Mysql(pool) => consume!(self, pool, "BEGIN", mysql, numbers),
            Appender::Sqlite(pool) => consume!(self, pool, "BEGIN IMMEDIATE", sqlite, numbers),
        }
    }
}

/// Returns an identity, the same in every run: ascending like those of the library, or scattered
/// like the databases' default for a plain INSERT.
fn identity(number: u64, random: bool) -> String {
    const SCATTER: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let scattered = u128::from(number.wrapping_add(1)).wrapping_mul(SCATTER);
    let value = match random {
        true => scattered,
        false => u128::from(number) << 64 | scattered >> 64,
    };
    uuid::Uuid::from_u128(value).to_string()
}

async fn report(
    stage: &Stage,
    args: &InboxBenchArgs,
    inbox: &Inbox,
    speed: Speed,
    ignored_events_per_s: f64,
) -> Result<Report, Failure> {
    let ledgers = stage.store.consumer_ledgers().await?;
    let ledger = ledgers.into_iter().find(|ledger| ledger.consumer == inbox.consumer());
    let Some(ledger) = ledger else {
        return Err(Failure::Partly("the consumer has no ledger".to_owned()));
    };
    let events = i64::try_from(args.events).unwrap_or(i64::MAX);
    let balanced = ledger.balanced() && ledger.applied == events && ledger.ignored == events;
    let figures = vec![
        ("repeats ignored".to_owned(), rate(ignored_events_per_s)),
        ("consumers".to_owned(), number(i128::from(args.consumers))),
        ("events per transaction".to_owned(), number(i128::from(args.batch))),
        ("identities".to_owned(), if args.random_ids { "random" } else { "ascending" }.to_owned()),
        ("payload".to_owned(), format!("{} B", args.event.payload)),
        ("ledger".to_owned(), if balanced { "balanced" } else { "NOT BALANCED" }.to_owned()),
    ];
    let bars = vec![
        ("applied".to_owned(), speed.events_per_s, Some(speed.limit_events_per_s)),
        ("ignored".to_owned(), ignored_events_per_s, None),
    ];
    Ok(Report {
        facts: Facts::gather("inbox", stage).await?,
        headline: format!("{} through an inbox", rate(speed.events_per_s)),
        against: format!("of the effects alone ({})", rate(speed.limit_events_per_s)),
        ratio: speed.ratio,
        figures,
        plots: vec![Plot::Bars(Bars { title: "Consuming", unit: "events/s", bars })],
        failure: (!balanced).then(|| Failure::Unbalanced("of the consumer".to_owned())),
        details: details(&Details {
            payload_bytes: args.event.payload,
            batch: args.batch,
            consumers: args.consumers,
            random_ids: args.random_ids,
            speed,
            ignored_events_per_s: super::numbers::rounded(ignored_events_per_s, 1),
            received: ledger.received,
            applied: ledger.applied,
            ignored: ledger.ignored,
            balanced,
        })?,
    })
}
