//! Writes settlements: delivered, failed and deferred events in separate transactions, so that one
//! bad row does not hold back the others. A write is repeated until it succeeds or the rows
//! no longer belong to this relay.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use postrider::Outbox;
use postrider::internal::DoublingWait;
use postrider_store::{
    Ages, Database, DeadReason, Death, Deferral, Delivery, Event, Failure, Key, Lease, OnSuccess,
    Result, Settled, StoreError,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OutboxConfig;
use crate::delivery::safety_net::SafetyNet;
use crate::delivery::trouble::{Step, Trouble};
use crate::lease::LeaseKeeper;
use crate::observations::Observations;
use crate::policy::Settlement;
use crate::sinks::fan_out::FanOut;
use crate::telemetry::{self, label};
use crate::waker::Waker;

/// Wait between repeats of a write.
pub(super) fn repeat_wait() -> DoublingWait {
    DoublingWait::new(Duration::from_millis(20), Duration::from_secs(2))
}

/// How often the database may refuse a single row, for a reason that may lie in the row, before the
/// row is set aside.
const REFUSALS_MAX: u32 = 5;

#[derive(Clone)]
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) lease_keeper: Arc<LeaseKeeper>,
    pub(crate) safety_net: Arc<SafetyNet>,
    pub(crate) observations: Arc<Observations>,
    /// Wakes the outboxes of branches.
    pub(crate) waker: Waker,
    /// Tracks failures of this outbox.
    pub(crate) trouble: Arc<Trouble>,
    /// Cancelled when the stop deadline has passed: writes that fail are then given up.
    pub(crate) abort: CancellationToken,
}

/// Rows that are settled by the same kind of statement.
enum Work {
    Delivered(Vec<Delivery>, OnSuccess),
    FannedOut(Vec<Delivery>, Arc<FanOut>, OnSuccess),
    Failed(Vec<Failure>),
    Deferred(Vec<Deferral>),
}

impl Work {
    fn len(&self) -> usize {
        match self {
            Self::Delivered(rows, _) | Self::FannedOut(rows, ..) => rows.len(),
            Self::Failed(rows) => rows.len(),
            Self::Deferred(rows) => rows.len(),
        }
    }

    fn delivered(&self, range: Range<usize>) -> &[Delivery] {
        match self {
            Self::Delivered(rows, _) | Self::FannedOut(rows, ..) => &rows[range],
            Self::Failed(_) | Self::Deferred(_) => &[],
        }
    }

    fn metric(&self) -> &'static str {
        match self {
            Self::Delivered(..) | Self::FannedOut(..) => telemetry::PROCESSED,
            Self::Failed(_) => telemetry::FAILED,
            Self::Deferred(_) => telemetry::DEFERRED,
        }
    }

    async fn write(
        &self,
        range: Range<usize>,
        store: &dyn Database,
        outbox: &Outbox,
        lease: &Lease,
    ) -> Result<Settled> {
        match self {
            Self::Delivered(rows, on_success) => {
                store.settle_delivered(outbox, lease, &rows[range], *on_success).await
            }
            Self::FannedOut(rows, fan_out, on_success) => {
                store.fan_out(outbox, lease, &rows[range], fan_out.children(), *on_success).await
            }
            Self::Failed(rows) => store.settle_failed(outbox, lease, &rows[range]).await,
            Self::Deferred(rows) => store.release(outbox, lease, &rows[range]).await,
        }
    }
}

impl Settler {
    /// Settles a batch. Returns how many of its rows were not found as they were read. Fails only
    /// if the rows no longer belong to this relay, or on an abort.
    pub(crate) async fn settle(
        &self,
        config: &OutboxConfig,
        lease: &Lease,
        settled: Vec<(Event, Settlement)>,
        took: Duration,
    ) -> Result<u64> {
        let (mut delivered, mut failed, mut deferred) = (Vec::new(), Vec::new(), Vec::new());
        let mut dead = Vec::new();
        for (event, settlement) in settled {
            let (id, version) = (event.id, event.version);
            match settlement {
                Settlement::Delivered { answer } => delivered.push(config.delivery(event, answer)),
                Settlement::Failed { delay, error } => {
                    let event_id = event.event_id;
                    failed.push(Failure { id, event_id, version, delay, error, took });
                }
                Settlement::Deferred { delay, error } => {
                    let event_id = event.event_id;
                    deferred.push(Deferral { id, event_id, version, delay, error });
                }
                Settlement::Dead { reason, message, detail, attempted } => {
                    let event_id = event.event_id.clone();
                    let death = Death { id, event_id, version, reason, message, detail, attempted };
                    dead.push((event, death));
                }
            }
        }
        let mut missing = self.settle_delivered(config, lease, delivered).await?;
        for work in [Work::Failed(failed), Work::Deferred(deferred)] {
            missing += self.write(&config.outbox, lease, &work).await?;
        }
        if !dead.is_empty() {
            self.safety_net.move_to_dlq(&config.outbox, lease, dead, self).await?;
            self.trouble.succeeded(Step::Settle);
        }
        Ok(missing)
    }

    /// Settles the delivered events of one or more batches. Returns as [`Self::settle`].
    pub(crate) async fn settle_delivered(
        &self,
        config: &OutboxConfig,
        lease: &Lease,
        delivered: Vec<Delivery>,
    ) -> Result<u64> {
        let on_success = config.preset.on_success;
        let work = match &config.fan_out {
            None => Work::Delivered(delivered, on_success),
            Some(fan_out) => Work::FannedOut(delivered, Arc::clone(fan_out), on_success),
        };
        let missing = self.write(&config.outbox, lease, &work).await?;
        if config.fan_out.is_some() {
            self.waker.wake();
        }
        Ok(missing)
    }

    /// Parks keys until an operator releases them. Repeats until it succeeds or the lease is lost.
    pub(crate) async fn park_keys(
        &self,
        config: &OutboxConfig,
        lease: &Lease,
        keys: &[Key],
    ) -> Result<()> {
        let mut wait = repeat_wait();
        while let Err(error) = self.store.park_keys(&config.outbox, lease, keys).await {
            if matches!(error, StoreError::LeaseLost) {
                self.lease_keeper.lost();
                return Err(error);
            }
            self.pause(&config.outbox, lease, &mut wait, &error).await?;
        }
        self.trouble.succeeded(Step::Settle);
        Ok(())
    }

    /// Returns how many rows were not found: somebody changed them, or a write before this one was
    /// not heard to succeed.
    async fn write(&self, outbox: &Outbox, lease: &Lease, work: &Work) -> Result<u64> {
        // All rows first; ranges that fail are queued again in halves.
        let mut todo: VecDeque<Range<usize>> = std::iter::once(0..work.len()).collect();
        let (mut wait, mut refusals, mut missing_in_all) = (repeat_wait(), 0, 0);
        while let Some(range) = todo.pop_front().filter(|range| !range.is_empty()) {
            let started = Instant::now();
            match work.write(range.clone(), self.store.as_ref(), outbox, lease).await {
                Ok(settled) => {
                    let name = outbox.name().to_owned();
                    metrics::histogram!(telemetry::SETTLE_SECONDS, label::OUTBOX => name)
                        .record(started.elapsed().as_secs_f64());
                    metrics::counter!(work.metric(), label::OUTBOX => outbox.name().to_owned())
                        .increment(settled.rows);
                    let missing = (range.len() as u64).saturating_sub(settled.rows);
                    metrics::counter!(telemetry::FENCED, label::OUTBOX => outbox.name().to_owned())
                        .increment(missing);
                    missing_in_all += missing;
                    self.measure_age(outbox, work.delivered(range));
                    self.trouble.succeeded(Step::Settle);
                    wait.reset();
                    refusals = 0;
                }
                Err(StoreError::LeaseLost) => {
                    self.lease_keeper.lost();
                    return Err(StoreError::LeaseLost);
                }
                Err(error) => {
                    refusals += u32::from(range.len() == 1 && error.may_be_the_rows_fault());
                    match work.delivered(range.clone()) {
                        [row] if refusals >= REFUSALS_MAX => {
                            self.set_aside(outbox, lease, row, &error).await?;
                            self.trouble.succeeded(Step::Settle);
                            refusals = 0;
                        }
                        _ => {
                            match work {
                                // In place: the copies get their ids in this order.
                                Work::FannedOut(..) => halves(range, &error)
                                    .into_iter()
                                    .rev()
                                    .for_each(|half| todo.push_front(half)),
                                // At the end: a row that another transaction keeps locked must not
                                // delay the others.
                                _ => todo.extend(halves(range, &error)),
                            }
                            self.pause(outbox, lease, &mut wait, &error).await?;
                        }
                    }
                }
            }
        }
        Ok(missing_in_all)
    }

    /// Moves an event to the dead letters whose row the database refuses to settle as delivered. It
    /// no longer blocks the others, and an operator sees it.
    async fn set_aside(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &Delivery,
        error: &StoreError,
    ) -> Result<()> {
        let mut wait = repeat_wait();
        let rows = loop {
            match self.store.read_ids(outbox, &[delivered.id]).await {
                Ok(rows) => break rows,
                Err(error) => self.pause(outbox, lease, &mut wait, &error).await?,
            }
        };
        let same = rows.into_iter().map(|row| row.event).find(|event| {
            event.event_id == delivered.event_id && event.version == delivered.version
        });
        let Some(event) = same else { return Ok(()) };
        let death = Death {
            id: event.id,
            event_id: event.event_id.clone(),
            version: event.version,
            reason: DeadReason::Rejected,
            message: format!("the database refuses to settle it as delivered: {error}"),
            detail: None,
            attempted: true,
        };
        self.safety_net.move_to_dlq(outbox, lease, vec![(event, death)], self).await
    }

    /// Records how long events took from insert to settlement, on the database's clock.
    fn measure_age(&self, outbox: &Outbox, delivered: &[Delivery]) {
        if delivered.is_empty() {
            return;
        }
        let (name, now) = (outbox.name().to_owned(), self.observations.clock.at(Utc::now()));
        let histogram = metrics::histogram!(telemetry::END_TO_END_SECONDS, label::OUTBOX => name);
        let mut ages = Ages::default();
        for row in delivered {
            let age = (now - row.created_at).to_std().unwrap_or_default();
            histogram.record(age.as_secs_f64());
            ages.note(age);
        }
        self.observations.meter.delivered(&ages, Instant::now());
    }

    /// Waits before a repeat; fails if a repeat is pointless. While the database is unreachable, no
    /// other relay can take over either, so the lease decides, not the elapsed time.
    pub(crate) async fn pause(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        wait: &mut DoublingWait,
        error: &StoreError,
    ) -> Result<()> {
        tracing::warn!(outbox = outbox.name(), %error, "settle failed; repeating");
        self.trouble.failed(Step::Settle, error);
        tokio::select! {
            biased;
            () = self.abort.cancelled() => return Err(StoreError::LeaseLost),
            () = tokio::time::sleep(wait.take()) => {}
        }
        match self.lease_keeper.is_current(lease) {
            true => Ok(()),
            false => {
                // The rows belong to another relay now, so nothing is left here that could fail.
                self.trouble.succeeded(Step::Settle);
                Err(StoreError::LeaseLost)
            }
        }
    }
}

/// Splits a failed range. An unreachable database gets the same rows again; after any other error,
/// the halves are tried, until the row that causes it is alone.
fn halves(range: Range<usize>, error: &StoreError) -> Vec<Range<usize>> {
    if matches!(error, StoreError::Unavailable(_)) || range.len() < 2 {
        return vec![range];
    }
    let middle = range.start + range.len() / 2;
    vec![range.start..middle, middle..range.end]
}
