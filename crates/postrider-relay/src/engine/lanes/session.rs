//! The work under one lease: a reader, workers and settling tasks around the board.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use postrider_store::{Delivery, Event, Key, StoreError};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Lanes;
use super::board::{Board, Standing};
use super::reader::Reader;
use crate::config::FailingKey;
use crate::delivery::pipeline::{BatchResult, DeliveryMode};
use crate::lease::Held;
use crate::policy::Settlement;

/// Maximum number of rows per settle statement: large enough to make its fixed cost small, and done
/// in some ten milliseconds.
const SETTLE_ROWS_MAX: usize = 5_000;

/// Settles that run at the same time: one waits for the disk while the other works.
const SETTLERS: usize = 2;
/// Batches that wait to be settled. With more of them, workers wait for the database.
const UNSETTLED_BATCHES_MAX: usize = 1_000;

const ALONE: DeliveryMode = DeliveryMode { keep_order: true, may_probe: true };

pub(super) struct Session {
    pub(super) lanes: Arc<Lanes>,
    pub(super) held: Held,
    board: Mutex<Board>,
    /// Notified when the reader may have something to do: there is room, a key catches up, or a
    /// lane is empty.
    pub(super) changed: Notify,
    /// One per worker, notified when there is something to take.
    work: Vec<Notify>,
    /// Cancelled when the lease is lost or the session cannot continue.
    pub(super) lost: CancellationToken,
}

/// The outcomes of a batch on their way from a worker to the settling tasks.
struct Outcomes {
    delivered: Vec<Delivery>,
    others: Vec<(Event, Settlement, Standing)>,
    took: Duration,
}

impl Session {
    pub(super) fn new(lanes: Arc<Lanes>, held: Held) -> Arc<Self> {
        let workers = lanes.config.batches_max.max(1);
        let config = &lanes.config;
        let shared = Arc::clone(&lanes);
        let wait = move |event: &Event, now| shared.pipeline.wait(event, now);
        let board = Board::new(config.failing_key, config.lane_limits, workers, Box::new(wait));
        Arc::new(Self {
            lanes,
            held,
            board: Mutex::new(board),
            changed: Notify::new(),
            // One for each worker and one for probes.
            work: (0..=workers).map(|_| Notify::new()).collect(),
            lost: CancellationToken::new(),
        })
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        // A panic while the lock was held ends the session: see `run`.
        self.board.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes the workers that have something to do.
    pub(super) fn wake_workers(&self) {
        let board = self.board();
        for (worker, work) in self.work.iter().enumerate() {
            if board.has_work(worker) {
                work.notify_one();
            }
        }
    }

    /// Runs until stopped or until the lease is lost. Returns whether all lanes were released.
    pub(super) async fn run(self: Arc<Self>, stop: &CancellationToken) -> bool {
        let ended = CancellationToken::new();
        let (sender, receiver) = mpsc::channel(UNSETTLED_BATCHES_MAX);
        let mut workers = JoinSet::new();
        for worker in 0..self.work.len() {
            let (session, sender, ended) = (Arc::clone(&self), sender.clone(), ended.clone());
            workers.spawn(async move {
                let work = AssertUnwindSafe(session.deliver(worker, &sender, &ended));
                if work.catch_unwind().await.is_err() {
                    // Only the board knows its rows: start over with an empty one.
                    session.lost.cancel();
                }
            });
        }
        drop(sender);
        let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
        let mut settling = JoinSet::new();
        for _ in 0..SETTLERS {
            settling.spawn(Arc::clone(&self).settle_all(Arc::clone(&receiver)));
        }
        let watch = tokio::spawn(Arc::clone(&self).watch_lease(ended.clone()));

        let mut reader = Reader::new(Arc::clone(&self));
        reader.run(stop).await;
        ended.cancel();
        while workers.join_next().await.is_some() {}
        while settling.join_next().await.is_some() {}
        watch.abort();
        reader.release_all().await
    }

    /// Ends the session with its lease.
    async fn watch_lease(self: Arc<Self>, ended: CancellationToken) {
        let replaced = self.lanes.lease_keeper.replaced(&self.held.lease);
        if ended.run_until_cancelled(replaced).await.is_some() {
            self.lost.cancel();
        }
    }

    /// Runs one worker: one batch at a time, so that the events of a key follow each other.
    async fn deliver(
        &self,
        worker: usize,
        outcomes: &mpsc::Sender<Outcomes>,
        ended: &CancellationToken,
    ) {
        let config = &self.lanes.config;
        let rows = config.rows_max() as usize;
        let bytes = usize::try_from(config.batch_bytes_max).unwrap_or(usize::MAX);
        // A probe may wait for a timeout, and nothing else may wait with it.
        let may_probe = worker == self.board().probes();
        let mode = DeliveryMode { keep_order: config.failing_key != FailingKey::Skip, may_probe };
        while !ended.is_cancelled() {
            let events = self.board().take(worker, rows, bytes);
            if events.is_empty() {
                self.wake_reader();
                tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    () = self.work[worker].notified() => {}
                }
                continue;
            }
            let _among_others = self.lanes.alone.read().await;
            let result = self.lanes.pipeline.deliver_batch(&self.held, events, mode).await;
            let noted = self.note(result);
            if config.fan_out.is_some() {
                // The settle is the delivery: it gives the copies their ids, and those of a key
                // come one after the other because a worker waits for its own.
                self.settle(vec![noted]).await;
            } else {
                // The receiver lives until all workers have ended.
                drop(outcomes.send(noted).await);
            }
        }
    }

    /// Reports the outcomes of a batch to the board: keys of delivered events continue, others
    /// wait.
    fn note(&self, result: BatchResult) -> Outcomes {
        let BatchResult { settled, took } = result;
        let parks = self.lanes.config.failing_key == FailingKey::Park;
        let (mut delivered, mut others) = (Vec::with_capacity(settled.len()), Vec::new());
        let mut board = self.board();
        for (event, settlement) in settled {
            match settlement {
                Settlement::Delivered { answer } => {
                    board.delivered(&event);
                    delivered.push(self.lanes.config.delivery(event, answer));
                }
                Settlement::Dead { .. }
                | Settlement::Failed { .. }
                | Settlement::Deferred { .. } => {
                    let is_dead = matches!(settlement, Settlement::Dead { .. });
                    if parks && is_dead && event.defect.is_none() {
                        board.park_key_of(&event);
                    }
                    // A dead one stops its key, too, until its dead letter is written.
                    let standing = board.not_delivered(&event);
                    others.push((event, settlement, standing));
                }
            }
        }
        Outcomes { delivered, others, took }
    }

    /// Delivers one event alone. The caller makes sure that nothing else is in flight in this
    /// process.
    pub(super) async fn deliver_alone(&self, event: Event) {
        let result = self.lanes.pipeline.deliver_batch(&self.held, vec![event], ALONE).await;
        let outcomes = self.note(result);
        self.settle(vec![outcomes]).await;
    }

    /// Settles the outcomes that have arrived together, until the channel is closed. Two settles
    /// never have rows in common, so their order does not matter.
    async fn settle_all(
        self: Arc<Self>,
        outcomes: Arc<tokio::sync::Mutex<mpsc::Receiver<Outcomes>>>,
    ) {
        loop {
            let batches = {
                let mut outcomes = outcomes.lock().await;
                let Some(first) = outcomes.recv().await else { return };
                let (mut batches, mut rows) = (vec![first], 0);
                while rows < SETTLE_ROWS_MAX
                    && let Ok(next) = outcomes.try_recv()
                {
                    rows += next.delivered.len();
                    batches.push(next);
                }
                batches
            };
            let work = AssertUnwindSafe(self.settle(batches));
            if work.catch_unwind().await.is_err() {
                self.lost.cancel();
            }
        }
    }

    /// Settles batches together. Without the lease there is nothing to do: the rows are unchanged,
    /// and the next owner of the lanes delivers them again.
    async fn settle(&self, batches: Vec<Outcomes>) {
        let mut delivered = Vec::new();
        let mut others = Vec::new();
        for batch in batches {
            delivered.extend(batch.delivered);
            if !batch.others.is_empty() {
                others.push((batch.others, batch.took));
            }
        }
        // Sorted by id, so that two settles that meet in the database wait instead of deadlocking.
        delivered.sort_unstable_by_key(|row| row.id);
        let result = async {
            self.settle_delivered(delivered).await?;
            for (batch, took) in others {
                self.settle_others(batch, took).await?;
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = result.await {
            tracing::warn!(outbox = self.lanes.config.outbox.name(), %error,
                "batch not settled; whoever owns its lanes delivers it again");
            self.lost.cancel();
        }
        self.wake_reader();
    }

    fn wake_reader(&self) {
        if self.board().wants_reader() {
            self.changed.notify_one();
        }
    }

    async fn settle_delivered(&self, delivered: Vec<Delivery>) -> Result<(), StoreError> {
        let (config, lease) = (&self.lanes.config, &self.held.lease);
        let mut delivered = delivered.into_iter();
        loop {
            let chunk: Vec<Delivery> = delivered.by_ref().take(SETTLE_ROWS_MAX).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            let ids: Vec<i64> = chunk.iter().map(|row| row.id).collect();
            self.lanes.settler.settle_delivered(config, lease, chunk).await?;
            let mut board = self.board();
            ids.into_iter().for_each(|id| board.settled(id));
        }
    }

    async fn settle_others(
        &self,
        others: Vec<(Event, Settlement, Standing)>,
        took: Duration,
    ) -> Result<(), StoreError> {
        let (config, lease) = (&self.lanes.config, &self.held.lease);
        let mut standings = HashMap::new();
        let (mut to_write, mut dead) = (Vec::new(), Vec::new());
        for (event, settlement, standing) in others {
            let delay = match &settlement {
                Settlement::Failed { delay, .. } | Settlement::Deferred { delay, .. } => *delay,
                Settlement::Delivered { .. } | Settlement::Dead { .. } => Duration::ZERO,
            };
            standings.insert(event.id, (standing, delay));
            match &settlement {
                // Not attempted: the row has not changed, so nothing is written.
                Settlement::Deferred { error: None, .. } => {}
                Settlement::Dead { .. } => {
                    dead.push(event.clone());
                    to_write.push((event, settlement));
                }
                _ => to_write.push((event, settlement)),
            }
        }
        if config.failing_key == FailingKey::Park && !dead.is_empty() {
            // Before the dead letter: if the process dies in between, the key is stopped with its
            // head still there. The key never continues past its dead head.
            let whole = dead.iter().filter(|event| event.defect.is_none());
            let keys: Vec<Key> = whole.map(Key::from).collect();
            self.lanes.settler.park_keys(config, lease, &keys).await?;
            let mut board = self.board();
            keys.iter().for_each(|key| board.note_parked(key));
        }
        self.lanes.settler.settle(config, lease, to_write, took).await?;
        let now = Instant::now();
        let mut board = self.board();
        for event in &dead {
            board.dead(event);
            board.settled(event.id);
            standings.remove(&event.id);
        }
        for (id, (standing, delay)) in standings {
            match standing {
                Standing::Waits => board.waits(id, delay, now),
                Standing::PassedOver => board.settled(id),
            }
        }
        Ok(())
    }
}
