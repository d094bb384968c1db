//! Applications that append: their transactions commit, roll back, or stay open while others
//! overtake them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::{AppendError, Appended, NewEvent, Outbox};
use postrider_command::Failure;
use postrider_store::Appender;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::journal::{End, Journal};
use crate::cli::StormArgs;

/// Number of events per transaction.
const EVENTS: std::ops::RangeInclusive<u32> = 1..=5;
/// Share of the transactions that are rolled back.
const ROLLED_BACK: f64 = 0.1;
/// Share of the events that the receiver always rejects.
const POISON: f64 = 0.002;
/// Time that a late transaction stays open, in milliseconds.
const LATE_MS: std::ops::Range<u64> = 20..2_000;
/// Shorter on SQLite, where no one else can write during that time.
const LATE_SQLITE_MS: std::ops::Range<u64> = 5..50;
/// One writer in this many commits late.
const LATE_OF: u32 = 3;
/// Number of consecutive failed transactions of one writer after which the run has failed.
const FAILURES_MAX: u32 = 50;
/// Pause of a writer while too many events wait.
const PAUSE: Duration = Duration::from_millis(100);
const PAYLOAD: &str = "0f3a9c1be0724d6d8f7e5a4b3c2d1e0f0f3a9c1be0724d6d8f7e5a4b3c2d1e0f";

/// Event types, for people who inspect the tables during a run.
const EVENT_TYPE: &str = "Storm";
const POISON_TYPE: &str = "Poison";

/// State that all writers share.
pub(super) struct Plan {
    pub(super) outbox: Outbox,
    pub(super) journal: Arc<Journal>,
    pub(super) keys: u32,
    /// The aggregate types that keys are mapped to: the receiver's destinations.
    pub(super) destinations: Vec<String>,
    /// Number of bytes that poison has in addition.
    pub(super) poison_bytes: usize,
    /// Rate of each writer that commits at once; the others add as much as they can.
    pub(super) events_per_s: f64,
    /// Number of events that waited at the last sample; above `backlog_max`, writers pause.
    pub(super) backlog: Arc<AtomicI64>,
    pub(super) backlog_max: i64,
    /// Number of transactions that the database refused.
    pub(super) refused: AtomicU64,
    /// Sequence numbers per key, for people who inspect the payloads.
    pub(super) sequences: Vec<AtomicU64>,
}

/// Returns how many of the writers commit at once; these keep the rate.
pub(super) fn prompt(writers: u32) -> u32 {
    writers - writers / LATE_OF
}

/// The writers of a run. They stop on request, or when this is dropped.
pub(super) struct Writers {
    stop: CancellationToken,
    running: JoinSet<Result<(), Failure>>,
}

impl Writers {
    pub(super) async fn start(
        url: &str,
        args: &StormArgs,
        plan: &Arc<Plan>,
        dice: &mut StdRng,
    ) -> Result<Self, Failure> {
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        for number in 0..args.writers {
            let writer = Writer {
                // One session each, as separate programs would have.
                appender: Appender::connect(url, 1).await?,
                plan: Arc::clone(plan),
                is_late: number % LATE_OF == LATE_OF - 1,
                dice: StdRng::from_rng(dice),
                stop: stop.clone(),
            };
            running.spawn(writer.run());
        }
        Ok(Self { stop, running })
    }

    /// Returns when a writer fails; otherwise never.
    pub(super) async fn failed(&mut self) -> Failure {
        while let Some(ended) = self.running.join_next().await {
            if let Err(failure) = flattened(ended) {
                return failure;
            }
        }
        std::future::pending().await
    }

    /// Stops the writers; open transactions finish first.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.stop.cancel();
        while let Some(ended) = self.running.join_next().await {
            flattened(ended)?;
        }
        Ok(())
    }
}

fn flattened(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    ended.unwrap_or_else(|error| Err(Failure::Partly(format!("a writer ended with {error}"))))
}

struct Writer {
    appender: Appender,
    plan: Arc<Plan>,
    is_late: bool,
    dice: StdRng,
    stop: CancellationToken,
}

impl Writer {
    async fn run(mut self) -> Result<(), Failure> {
        let (mut started, mut written, mut failures) = (Instant::now(), 0_u64, 0);
        while !self.stop.is_cancelled() {
            if self.plan.backlog.load(Ordering::Relaxed) > self.plan.backlog_max {
                // Events that were not written during the pause are not made up for.
                started += PAUSE;
                let _ = self.stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
                continue;
            }
            let events = self.dice.random_range(EVENTS);
            match self.transaction(events).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    self.plan.refused.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%error, "a writer's transaction failed");
                    if failures >= FAILURES_MAX {
                        return Err(error.into());
                    }
                }
            }
            written += u64::from(events);
            let due = Duration::from_secs_f64(written as f64 / self.plan.events_per_s);
            let wait = due.saturating_sub(started.elapsed());
            let _ = self.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        Ok(())
    }

    /// Runs one transaction, and records it before and after each step.
    async fn transaction(&mut self, events: u32) -> Result<(), AppendError> {
        let plan = Arc::clone(&self.plan);
        let journal = &plan.journal;
        let number = journal.begin();
        let mut open = match Open::begin(&self.appender).await {
            Ok(open) => open,
            Err(error) => {
                journal.ended(number, End::RolledBack);
                return Err(error);
            }
        };
        // A late transaction appends before and after the wait.
        let first = if self.is_late { events.div_ceil(2) } else { events };
        let appended = async {
            self.append(&mut open, number, first).await?;
            if self.is_late {
                self.wait().await;
                self.append(&mut open, number, events - first).await?;
            }
            Ok::<_, AppendError>(())
        };
        let appended = appended.await;
        if appended.is_err() || self.dice.random_bool(ROLLED_BACK) {
            // Whatever the result of the rollback: without a commit, nothing was committed.
            let rolled_back = open.rollback().await;
            journal.ended(number, End::RolledBack);
            return appended.and(rolled_back);
        }
        let asked_at = journal.now();
        // In doubt, in case this program is stopped before the answer.
        journal.ended(number, End::InDoubt);
        open.commit().await?;
        let acknowledged_at = journal.now();
        journal.ended(number, End::Committed { asked_at, acknowledged_at });
        Ok(())
    }

    async fn append(
        &mut self,
        open: &mut Open,
        transaction: usize,
        events: u32,
    ) -> Result<(), AppendError> {
        for _ in 0..events {
            // Small numbers are more frequent: some keys are busier than others.
            let share: f64 = self.dice.random();
            let key = (share * share * f64::from(self.plan.keys)) as u32;
            let poison = self.dice.random_bool(POISON);
            let number = self.plan.journal.draft(key, transaction, poison);
            let id = open.append(&self.plan.outbox, &self.plan.event(number, key, poison)).await?;
            self.plan.journal.appended(number, id);
        }
        Ok(())
    }

    async fn wait(&mut self) {
        let range = match self.appender {
            Appender::Sqlite(_) => LATE_SQLITE_MS,
            Appender::Postgres(_) | Appender::Mysql(_) => LATE_MS,
        };
        let wait = Duration::from_millis(self.dice.random_range(range));
        let _ = self.stop.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}

impl Plan {
    fn event(&self, number: usize, key: u32, poison: bool) -> NewEvent {
        let place = key as usize;
        let sequence = self.sequences[place].fetch_add(1, Ordering::Relaxed);
        let (kind, filler) = match poison {
            true => (POISON_TYPE, PAYLOAD.repeat(1 + self.poison_bytes / PAYLOAD.len())),
            false => (EVENT_TYPE, PAYLOAD.to_owned()),
        };
        let payload = format!(
            r#"{{"event":{number},"key":{key},"sequence":{sequence},"filler":"{filler}"}}"#
        );
        let destination = &self.destinations[place % self.destinations.len()];
        NewEvent::new(destination, format!("key-{key}"), kind, payload)
    }
}

/// An open transaction on any of the databases.
enum Open {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Mysql(sqlx::Transaction<'static, sqlx::MySql>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Open {
    async fn begin(appender: &Appender) -> Result<Self, AppendError> {
        Ok(match appender {
            Appender::Postgres(pool) => Self::Postgres(pool.begin().await?),
            Appender::Mysql(pool) => Self::Mysql(pool.begin().await?),
            Appender::Sqlite(pool) => Self::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
        })
    }

    async fn append(&mut self, outbox: &Outbox, event: &NewEvent) -> Result<i64, AppendError> {
        let appended = match self {
            Self::Postgres(open) => postrider::postgres::append(open, outbox, event).await?,
            Self::Mysql(open) => postrider::mysql::append(open, outbox, event).await?,
            Self::Sqlite(open) => postrider::sqlite::append(open, outbox, event).await?,
        };
        let (Appended::New { id, .. } | Appended::Duplicate { id }) = appended;
        Ok(id)
    }

    async fn commit(self) -> Result<(), AppendError> {
        let ended = match self {
            Self::Postgres(open) => open.commit().await,
            Self::Mysql(open) => open.commit().await,
            Self::Sqlite(open) => open.commit().await,
        };
        Ok(ended?)
    }

    async fn rollback(self) -> Result<(), AppendError> {
        let ended = match self {
            Self::Postgres(open) => open.rollback().await,
            Self::Mysql(open) => open.rollback().await,
            Self::Sqlite(open) => open.rollback().await,
        };
        Ok(ended?)
    }
}
