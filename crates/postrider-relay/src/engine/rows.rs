//! Claim mode `rows`: relays compete for rows, and a claim marks them as its own.
//!
//! Claims run one after the other. Up to `batches_max` batches are delivered and settled at the
//! same time, so that the next claim overlaps the last settle. The semaphore bounds the number of
//! batches in flight.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use postrider::internal::DoublingWait;
use postrider_store::{ClaimLimit, Cursor, Event, StoreError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::OutboxConfig;
use crate::delivery::pipeline::{BatchResult, DeliveryMode, Pipeline};
use crate::delivery::settle::Settler;
use crate::delivery::trouble::Step;
use crate::lease::{Held, LeaseKeeper};
use crate::telemetry;
use crate::waker::Waker;

/// Wait before the first poll after a batch; it doubles up to the idle poll.
const POLL_FIRST: Duration = Duration::from_millis(5);
/// Events claimed while the only destination is down: a waiting one and a fresh one. With one row,
/// the waiting ones would always go first, and events that never succeed would starve the rest.
const PROBE_ROWS: u32 = 2;
/// First and longest wait after a failed claim.
const CLAIM_REPEAT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

const USUAL: DeliveryMode = DeliveryMode { keep_order: false, may_probe: false };
const PROBING: DeliveryMode = DeliveryMode { keep_order: false, may_probe: true };

pub(crate) struct Rows {
    pub(crate) config: OutboxConfig,
    pub(crate) settler: Settler,
    pub(crate) lease_keeper: Arc<LeaseKeeper>,
    pub(crate) pipeline: Pipeline,
    pub(crate) waker: Waker,
    /// Batches hold it shared. A suspect holds it exclusively, across all outboxes of the process.
    pub(crate) alone: Arc<RwLock<()>>,
    pub(crate) suspects_every: Duration,
    /// Set while this relay may hold rows that no task works on: a batch panicked, or could not be
    /// settled before the stop deadline.
    pub(crate) abandoned: AtomicBool,
}

/// The permits for batches in flight.
struct Permits {
    batches: Arc<Semaphore>,
    batches_max: u32,
    /// One more permit, for events of destinations that are down: a probe that waits for a timeout
    /// does not take a permit from the destinations that are up.
    down: Arc<Semaphore>,
}

impl Permits {
    fn new(batches_max: usize) -> Self {
        Self {
            batches: Arc::new(Semaphore::new(batches_max)),
            batches_max: u32::try_from(batches_max).unwrap_or(u32::MAX),
            down: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until nothing is in flight and keeps new batches from starting while the permits are
    /// held.
    async fn all(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'_>)> {
        let batches = self.batches.acquire_many(self.batches_max).await.ok()?;
        Some((batches, self.down.acquire().await.ok()?))
    }
}

/// The permits of a batch, held while it is in flight.
struct InFlight {
    _permit: OwnedSemaphorePermit,
    _among_others: OwnedRwLockReadGuard<()>,
}

impl Rows {
    /// Runs until stopped, and returns once everything in flight is settled or given up. Returns
    /// whether no row is held any longer.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> bool {
        let permits = Permits::new(self.config.batches_max);
        let tasks = TaskTracker::new();
        let mut state = ClaimState::new(self.config.preset.idle_poll);
        let mut wakes = self.waker.subscribe();
        while !stop.is_cancelled() {
            // A stop interrupts waits but never a claim: its rows would be held without the relay
            // knowing.
            let Some(held) = stop.run_until_cancelled(self.lease_keeper.held()).await else {
                break;
            };
            state.follow(&held, self.config.preset.idle_poll);
            self.deliver_suspects(&held, &mut state, &stop).await;
            let permit = stop.run_until_cancelled(self.permit(&permits)).await;
            let Some(Some(in_flight)) = permit else { break };
            // An event appended from here on may be missed by the claim, so its wake-up must
            // trigger another one.
            wakes.mark_unchanged();
            let rest = self.claim(&held, &mut state, &permits, in_flight, &tasks).await;
            if let Some(wait) = rest {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    // The probe succeeded: waiting events are due at once, not at the next poll.
                    () = self.pipeline.came_back.notified() => state.poll.reset(),
                    _ = wakes.changed(),
                        if self.pipeline.health.rest(Instant::now()).is_none() =>
                    {
                        state.poll.reset();
                    }
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
        tasks.close();
        tasks.wait().await;
        loop {
            self.release_lost(&mut state).await;
            let held = state.answer_lost || self.abandoned.load(Ordering::SeqCst);
            if !held || self.settler.abort.is_cancelled() {
                return !held;
            }
        }
    }

    async fn permit(&self, permits: &Permits) -> Option<InFlight> {
        // The semaphore is never closed; `None` would only mean that the relay is stopping.
        let permit = Arc::clone(&permits.batches).acquire_owned().await.ok()?;
        let among_others = Arc::clone(&self.alone).read_owned().await;
        Some(InFlight { _permit: permit, _among_others: among_others })
    }

    /// Acquires a permit for events of destinations that are down. It must not wait: a suspect that
    /// waits for exclusive access waits for the very batch that is asking.
    fn permit_for_down(&self, permits: &Permits) -> Option<InFlight> {
        if !self.pipeline.health.holds_back() {
            return None;
        }
        let permit = Arc::clone(&permits.down).try_acquire_owned().ok()?;
        let among_others = Arc::clone(&self.alone).try_read_owned().ok()?;
        Some(InFlight { _permit: permit, _among_others: among_others })
    }

    /// Claims once. Returns how long to wait before the next claim; `None` means no wait.
    async fn claim(
        self: &Arc<Self>,
        held: &Held,
        state: &mut ClaimState,
        permits: &Permits,
        in_flight: InFlight,
        tasks: &TaskTracker,
    ) -> Option<Duration> {
        if state.answer_lost || self.abandoned.load(Ordering::SeqCst) {
            drop(in_flight);
            // Nothing else may be in flight: then every row that this relay holds belongs to the
            // lost claim.
            let Ok(_all) = tokio::time::timeout(CLAIM_REPEAT.1, permits.all()).await else {
                self.settler.trouble.still_waiting();
                return Some(POLL_FIRST);
            };
            self.release_lost(state).await;
            return Some(POLL_FIRST);
        }
        let rest = self.pipeline.health.rest(Instant::now());
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Some(rest);
        }
        let probing = rest.is_some();
        let limit = ClaimLimit {
            rows: if probing { PROBE_ROWS } else { self.config.rows_max() },
            bytes: self.config.batch_bytes_max,
            share: self.config.share,
        };
        let store = self.settler.store.as_ref();
        let (outbox, started) = (&self.config.outbox, Instant::now());
        state.answer_lost = true;
        let claimed = store.claim(outbox, &held.lease, limit, &mut state.cursor).await;
        match claimed {
            Ok(claimed) => {
                state.answer_lost = false;
                state.claim_repeat.reset();
                self.settler.trouble.succeeded(Step::Claim);
                if claimed.events.is_empty() {
                    return Some(state.poll.take());
                }
                self.count_claim(claimed.events.len(), started);
                state.poll.reset();
                let mut events = claimed.events;
                if let Some(permit) = self.permit_for_down(permits) {
                    let down = self.pipeline.split_off_down(&mut events);
                    self.start(held, down, PROBING, permit, tasks);
                }
                self.start(held, events, USUAL, in_flight, tasks);
                match (probing, claimed.full) {
                    (true, _) => Some(self.config.preset.idle_poll),
                    (false, true) => None,
                    (false, false) => Some(state.poll.take()),
                }
            }
            Err(error) => Some(self.claim_failed(state, &error)),
        }
    }

    /// Returns the wait before the next claim.
    fn claim_failed(&self, state: &mut ClaimState, error: &StoreError) -> Duration {
        match error {
            StoreError::LeaseLost => self.lease_keeper.lost(),
            StoreError::HistoryChanged(_) => self.pipeline.report_changed_history(error),
            _ => {}
        }
        self.settler.trouble.failed(Step::Claim, error);
        // A deadlock is an answer: the claim was rolled back, and nothing is ours.
        state.answer_lost = !matches!(error, StoreError::Busy(_));
        let outbox = self.config.outbox.name();
        match error {
            StoreError::Busy(_) => tracing::debug!(outbox, %error, "busy"),
            _ => tracing::warn!(outbox, %error, "claim failed; repeating"),
        }
        state.claim_repeat.take()
    }

    fn count_claim(&self, events: usize, started: Instant) {
        let name = self.config.outbox.name().to_owned();
        metrics::histogram!(telemetry::CLAIM_SECONDS, telemetry::label::OUTBOX => name.clone())
            .record(started.elapsed().as_secs_f64());
        metrics::counter!(telemetry::CLAIMED, telemetry::label::OUTBOX => name)
            .increment(events as u64);
    }

    /// Delivers and settles a batch in a task of its own, while claims continue.
    fn start(
        self: &Arc<Self>,
        held: &Held,
        events: Vec<Event>,
        mode: DeliveryMode,
        in_flight: InFlight,
        tasks: &TaskTracker,
    ) {
        if events.is_empty() {
            return;
        }
        let (pipeline, held) = (Arc::clone(self), held.clone());
        tasks.spawn(async move {
            let work = AssertUnwindSafe(pipeline.work(&held, events, mode));
            if work.catch_unwind().await.is_err() {
                pipeline.settler.trouble.panicked();
                pipeline.abandoned.store(true, Ordering::SeqCst);
            }
            drop(in_flight);
        });
    }

    /// Delivers and settles one batch.
    async fn work(&self, held: &Held, events: Vec<Event>, mode: DeliveryMode) {
        let BatchResult { settled, took } = self.pipeline.deliver_batch(held, events, mode).await;
        match self.settler.settle(&self.config, &held.lease, settled, took).await {
            Ok(0) => return,
            // What is still there is held by this relay, and by none of its batches.
            Ok(rows) => tracing::warn!(
                outbox = self.config.outbox.name(),
                rows,
                "not settled: no longer there, or changed since they were claimed"
            ),
            Err(error) => tracing::warn!(outbox = self.config.outbox.name(), %error,
                "batch not settled; whoever recovers it delivers it again"),
        }
        self.abandoned.fetch_or(self.lease_keeper.is_current(&held.lease), Ordering::SeqCst);
    }

    /// Delivers suspects: events that two relays held when they died. Nothing else is in flight in
    /// this process meanwhile, so that another crash identifies the event.
    async fn deliver_suspects(
        &self,
        held: &Held,
        state: &mut ClaimState,
        stop: &CancellationToken,
    ) {
        // The next claim gives back what a lost one took. The claim of a suspect would forget it.
        if state.answer_lost || self.abandoned.load(Ordering::SeqCst) {
            return;
        }
        if state.suspects_at.elapsed() < self.suspects_every {
            return;
        }
        state.suspects_at = Instant::now();
        let store = self.settler.store.as_ref();
        if !matches!(store.has_suspect(&self.config.outbox).await, Ok(true)) {
            return;
        }
        while !stop.is_cancelled() && self.lease_keeper.holds(&held.lease) {
            // Acquired per suspect, so that the other outboxes get their turn in between.
            let _alone = self.alone.write().await;
            state.answer_lost = true;
            match store.claim_suspect(&self.config.outbox, &held.lease).await {
                Ok(suspect) => {
                    state.answer_lost = false;
                    let Some(event) = suspect else { return };
                    tracing::warn!(
                        outbox = self.config.outbox.name(),
                        id = event.id,
                        crash_count = event.crash_count,
                        "suspect: delivered alone"
                    );
                    let work = AssertUnwindSafe(self.work(held, vec![event], PROBING));
                    if work.catch_unwind().await.is_err() {
                        self.abandoned.store(true, Ordering::SeqCst);
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(outbox = self.config.outbox.name(), %error,
                        "suspect not claimed; trying again");
                    return;
                }
            }
        }
    }

    /// Releases rows of a claim whose answer never arrived, or of a batch that was abandoned. Call
    /// it with nothing in flight.
    async fn release_lost(&self, state: &mut ClaimState) {
        let Some(lease) = state.lease.clone().filter(|lease| self.lease_keeper.is_current(lease))
        else {
            state.answer_lost = false;
            self.abandoned.store(false, Ordering::SeqCst);
            return;
        };
        if !state.answer_lost && !self.abandoned.load(Ordering::SeqCst) {
            return;
        }
        let outbox = &self.config.outbox;
        match self.settler.store.release_lost(outbox, &lease, &[]).await {
            Ok(rows) => {
                state.answer_lost = false;
                self.abandoned.store(false, Ordering::SeqCst);
                if rows > 0 {
                    tracing::warn!(
                        outbox = outbox.name(),
                        rows,
                        "released: no relay was working on them"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(outbox = outbox.name(), %error, "lost claim not given back yet");
                self.settler.trouble.failed(Step::Claim, &error);
                tokio::time::sleep(CLAIM_REPEAT.0).await;
            }
        }
    }
}

/// State of the claim loop.
struct ClaimState {
    cursor: Cursor,
    lease: Option<postrider_store::Lease>,
    poll: DoublingWait,
    claim_repeat: DoublingWait,
    suspects_at: Instant,
    /// A claim was sent and its answer has not arrived: rows may be held without the relay knowing.
    answer_lost: bool,
}

impl ClaimState {
    fn new(idle_poll: Duration) -> Self {
        Self {
            cursor: Cursor::new(),
            lease: None,
            poll: DoublingWait::new(POLL_FIRST, idle_poll),
            claim_repeat: DoublingWait::new(CLAIM_REPEAT.0, CLAIM_REPEAT.1),
            suspects_at: Instant::now(),
            answer_lost: false,
        }
    }

    /// Resets the state for a new lease: rows of the old lease are recovered like those of a dead
    /// relay.
    fn follow(&mut self, held: &Held, idle_poll: Duration) {
        if self.lease.as_ref() != Some(&held.lease) {
            *self = Self { lease: Some(held.lease.clone()), ..Self::new(idle_poll) };
        }
    }
}
