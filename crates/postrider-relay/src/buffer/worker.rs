//! The worker of one buffer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::{
    Adopted, BatchEnd, Buffer, BufferError, BufferLook, ListedBatch, MovedBatch,
};
use postrider_store::{Application, Batch, BatchState, Database, Lease, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::BufferConfig;
use super::entries::entries;
use crate::alerts::reachability::Reachability;
use crate::alerts::{Alert, Alerts, Severity};
use crate::delivery::backup::Backup;
use crate::lease::LeaseKeeper;
use crate::telemetry::{self, label};
use crate::timer::Every;

/// Full batches in a row before the list is read again.
const MOVES_MAX: usize = 100;
/// Interval between checks of the server's settings and replicas.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Interval between clean-ups of batches that were decided 30 days ago, and rows per statement.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);
const CLEAN_CHUNK: u32 = 1_000;

/// Why a round ended early. The next round finds the same work again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Redis(#[from] BufferError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "too few replicas, or not the disk of Redis, have the batch yet; to save without replicas, \
         set wait_replicas = 0"
    )]
    Unconfirmed,
    #[error("{0}")]
    Unsafe(String),
    #[error("the backup file cannot be written: {0}")]
    Backup(std::io::Error),
}

impl Trouble {
    /// Returns whether it ends by itself once a server is back.
    fn is_transient(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_transient(),
            Self::Store(StoreError::LeaseLost) | Self::Unconfirmed => true,
            Self::Store(error) => error.is_transient(),
            Self::Unsafe(_) | Self::Backup(_) => false,
        }
    }
}

/// Moves, saves and recovers the batches of one buffer.
pub(crate) struct Worker {
    pub(super) config: BufferConfig,
    pub(super) store: Arc<dyn Database>,
    pub(super) backup: Arc<Backup>,
    pub(super) alerts: Alerts,
    /// Batches that are in the backup file but not yet recorded as dead in the database.
    pub(super) backed_up: HashSet<Uuid>,
    /// When the server's settings were last checked, and why nothing may be moved out of it.
    checked_at: Option<Instant>,
    refused: Option<String>,
    clean: Every,
    redis: Reachability,
    /// Since when nothing has been saved.
    troubled: Option<Instant>,
    /// How long that may last before an alert is raised, if it can end by itself.
    silent_max: Duration,
}

impl Worker {
    pub(crate) fn new(
        config: BufferConfig,
        store: Arc<dyn Database>,
        backup: Arc<Backup>,
        alerts: Alerts,
        silent_max: Duration,
    ) -> Self {
        let name = config.buffer.name();
        telemetry::start_buffer(name);
        let (kind, server) =
            (format!("redis-unreachable/{name}"), format!("The Redis of buffer {name}"));
        let redis = Reachability::new(kind, server, silent_max, alerts.clone());
        Self {
            config,
            store,
            backup,
            alerts,
            backed_up: HashSet::new(),
            checked_at: None,
            refused: None,
            clean: Every::new(CLEAN_EVERY),
            redis,
            troubled: None,
            silent_max,
        }
    }

    /// Works until stopped; finishes the current round.
    pub(crate) async fn run(mut self, lease_keeper: Arc<LeaseKeeper>, stop: CancellationToken) {
        while let Some(held) = stop.run_until_cancelled(lease_keeper.held()).await {
            let started = Instant::now();
            let outcome = self.round(&held.lease, &stop).await;
            if let Err(Trouble::Store(StoreError::LeaseLost)) = &outcome {
                // Its batches now belong to a dead relay; under the new lease they are recovered.
                lease_keeper.lost();
            }
            self.report(started, outcome);
            let rest = self.config.flush_every.saturating_sub(started.elapsed());
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return;
            }
        }
    }

    /// Continues unfinished batches, then moves and saves batches until the buffer is empty.
    async fn round(&mut self, lease: &Lease, stop: &CancellationToken) -> Result<(), Trouble> {
        self.look_at_server().await?;
        // Counts that have already left the buffer are safer in the database, whatever the settings
        // of Redis are.
        self.recover(lease).await?;
        if let Some(why) = &self.refused {
            return Err(Trouble::Unsafe(why.clone()));
        }
        let (buffer, owner) = (Arc::clone(&self.config.buffer), lease.relay_id.clone());
        let fields_max = self.config.fields_max(self.store.kind());
        let move_next = || buffer.move_batch(Uuid::new_v4(), &owner, fields_max);
        let mut batch = move_next().await?;
        self.count(telemetry::BUFFER_MOVED, batch.fields.len() as u64);
        for number in 1.. {
            let fields = batch.fields.len();
            if fields == 0 {
                break;
            }
            if fields < fields_max as usize || number >= MOVES_MAX || stop.is_cancelled() {
                self.settle(batch, lease).await?;
                break;
            }
            // The next batch is moved while this one is saved. If saving fails, the next round
            // finds both on the list.
            let (settled, next) = tokio::join!(self.settle(batch, lease), move_next());
            // It has left the buffer, whether the previous batch was saved or not.
            let moved = next.as_ref().map_or(0, |next| next.fields.len());
            self.count(telemetry::BUFFER_MOVED, moved as u64);
            settled?;
            batch = next?;
        }
        if self.clean.due() {
            self.store.clean_batches(self.config.buffer.name(), CLEAN_CHUNK).await?;
        }
        Ok(())
    }

    /// Checks the server from time to time: settings change, and replicas come and go.
    pub(super) async fn look_at_server(&mut self) -> Result<(), Trouble> {
        if self.checked_at.is_none_or(|at| at.elapsed() >= CHECK_EVERY) {
            self.refused = self.config.unsafe_because().await?;
            self.checked_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Continues unfinished batches of this worker and of workers that are gone.
    pub(super) async fn recover(&mut self, lease: &Lease) -> Result<BufferLook, Trouble> {
        let look = self.config.buffer.look().await?;
        let gauge = |name, value: u64| {
            let buffer = self.config.buffer.name().to_owned();
            metrics::gauge!(name, label::BUFFER => buffer).set(value as f64);
        };
        gauge(telemetry::BUFFER_FIELDS, look.fields);
        gauge(telemetry::BUFFER_WAITING, look.waiting());
        for listed in self.left(&look, lease).await? {
            let adopted =
                self.config.buffer.adopt(listed.id, &listed.owner, &lease.relay_id).await?;
            if listed.owner != lease.relay_id && !matches!(adopted, Adopted::Taken) {
                self.count(telemetry::BUFFER_RECOVERED, 1);
                tracing::warn!(buffer = self.config.buffer.name(), batch = %listed.id,
                    entries = listed.entries, owner = listed.owner,
                    "batch taken over from a worker that is gone");
            }
            match adopted {
                Adopted::Batch(batch) => self.settle(batch, lease).await?,
                Adopted::Lost => self.end_lost(&listed).await?,
                Adopted::Taken | Adopted::Done => {}
            }
        }
        Ok(look)
    }

    /// Returns the batches to continue: this worker's, and those whose owner is not a live relay.
    /// The relays are read *after* the batches: an owner is registered before it moves anything.
    async fn left(&self, look: &BufferLook, lease: &Lease) -> Result<Vec<ListedBatch>, Trouble> {
        let others = look.batches.iter().any(|batch| batch.owner != lease.relay_id);
        let relays = if others { self.store.relays().await? } else { Vec::new() };
        let lives = |owner: &str| relays.iter().any(|r| !r.fenced && r.relay_id == owner);
        let left = |batch: &&ListedBatch| batch.owner == lease.relay_id || !lives(&batch.owner);
        Ok(look.batches.iter().filter(left).cloned().collect())
    }

    /// Finishes a batch, in parts if some of its entries cannot be saved.
    async fn settle(&mut self, batch: MovedBatch, lease: &Lease) -> Result<(), Trouble> {
        let started = Instant::now();
        let mut todo = vec![batch];
        while let Some(batch) = todo.pop() {
            if !batch.confirmed {
                return Err(Trouble::Unconfirmed);
            }
            todo.extend(self.settle_one(batch, lease).await?);
        }
        let buffer = self.config.buffer.name().to_owned();
        metrics::histogram!(telemetry::BUFFER_FLUSH_SECONDS, label::BUFFER => buffer)
            .record(started.elapsed());
        Ok(())
    }

    /// Saves a batch, or cancels it and returns its parts.
    async fn settle_one(
        &mut self,
        batch: MovedBatch,
        lease: &Lease,
    ) -> Result<Vec<MovedBatch>, Trouble> {
        let name = self.config.buffer.name();
        let (entries, refused) = entries(&batch);
        let reason = match refused.first() {
            Some((_, reason)) => reason.clone(),
            None => {
                let saving = Batch::new(name, batch.id, entries);
                match self.store.apply_batch(lease, &saving, &self.config.target).await? {
                    Application::Applied => {
                        // Set only now: a time to live must never be the reason that a batch is
                        // lost.
                        self.config.buffer.expire(batch.id).await?;
                        let ended = self.config.buffer.finish(batch.id, BatchEnd::Applied).await?;
                        self.count(telemetry::BUFFER_APPLIED, ended);
                        return Ok(Vec::new());
                    }
                    Application::Known(state) => {
                        self.close(&batch, lease, state).await?;
                        return Ok(Vec::new());
                    }
                    Application::Refused(reason) => reason,
                }
            }
        };
        let count = batch.fields.len() as u64;
        match self.store.cancel_batch(name, batch.id, count).await? {
            BatchState::Cancelled => {}
            state => {
                self.close(&batch, lease, state).await?;
                return Ok(Vec::new());
            }
        }
        if batch.fields.len() == 1 {
            self.move_to_dlq(&batch, lease, &reason).await?;
            return Ok(Vec::new());
        }
        // The entries that are known to be invalid, or one half.
        let all = refused.len() == batch.fields.len();
        let first: HashSet<&[u8]> = match refused.is_empty() || all {
            true => batch.fields.iter().take(batch.fields.len() / 2).map(|f| &f.0[..]).collect(),
            false => refused.iter().map(|(field, _)| *field).collect(),
        };
        let first: HashSet<Vec<u8>> = first.into_iter().map(<[u8]>::to_vec).collect();
        self.split(batch, &first, lease).await
    }

    async fn split(
        &mut self,
        batch: MovedBatch,
        first: &HashSet<Vec<u8>>,
        lease: &Lease,
    ) -> Result<Vec<MovedBatch>, Trouble> {
        let into = [Uuid::new_v4(), Uuid::new_v4()];
        let named: Vec<&[u8]> = first.iter().map(Vec::as_slice).collect();
        let count = batch.fields.len() as u64;
        let confirmed =
            match self.config.buffer.split(batch.id, into, &lease.relay_id, &named).await {
                Ok(Some(known)) => known,
                Ok(None) => return Ok(Vec::new()),
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => {
                    self.move_to_dlq(&batch, lease, &format!("compensation failed: {error}"))
                        .await?;
                    return Ok(Vec::new());
                }
            };
        self.count(telemetry::BUFFER_GIVEN_BACK, count);
        self.count(telemetry::BUFFER_MOVED, count);
        let (a, b) = batch.fields.into_iter().partition(|(field, _)| first.contains(field));
        let part = |(id, fields)| MovedBatch { id, fields, confirmed };
        Ok(into.into_iter().zip([a, b]).map(part).collect())
    }

    /// Ends a batch that the database had already decided.
    async fn close(
        &mut self,
        batch: &MovedBatch,
        lease: &Lease,
        state: BatchState,
    ) -> Result<(), Trouble> {
        let buffer: &Buffer = &self.config.buffer;
        match state {
            BatchState::Applied => {
                buffer.expire(batch.id).await?;
                let ended = buffer.finish(batch.id, BatchEnd::Ignored).await?;
                self.count(telemetry::BUFFER_IGNORED, ended);
            }
            BatchState::Cancelled if self.backed_up.contains(&batch.id) => {
                self.move_to_dlq(batch, lease, "").await?;
            }
            BatchState::Cancelled => match buffer.give_back(batch.id, &lease.relay_id).await {
                Ok(ended) => self.count(telemetry::BUFFER_GIVEN_BACK, ended),
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => {
                    let error = format!("compensation failed: {error}");
                    self.move_to_dlq(batch, lease, &error).await?;
                }
            },
            BatchState::Dead | BatchState::Imported => {
                buffer.finish(batch.id, BatchEnd::Dead).await?;
            }
        }
        Ok(())
    }

    /// Alerts once about what prevents saving, and once when it is over. A failure that can end by
    /// itself raises an alert only if it lasts.
    fn report(&mut self, started: Instant, outcome: Result<(), Trouble>) {
        let name = self.config.buffer.name();
        let kind = format!("buffer/{name}");
        let trouble = match outcome {
            Ok(()) => {
                self.redis.answered();
                if self.troubled.take().is_some() {
                    tracing::info!(buffer = name, "the buffer is saved again");
                    self.alerts.end(kind, format!("Buffer {name} is saved again"));
                }
                return;
            }
            Err(trouble) => trouble,
        };
        match self.troubled {
            Some(_) => tracing::debug!(buffer = name, %trouble, "still not saved"),
            None => tracing::warn!(buffer = name, %trouble, "not saved; trying again"),
        }
        let since = *self.troubled.get_or_insert(started);
        match &trouble {
            Trouble::Redis(error) if error.is_transient() => {
                self.redis.failed(started, &error.to_string());
                return;
            }
            // Each round asks Redis first, so Redis has answered.
            _ => self.redis.answered(),
        }
        if !trouble.is_transient() || since.elapsed() >= self.silent_max {
            self.alerts.begin(Alert {
                severity: Severity::Critical,
                kind,
                title: format!("Buffer {name} cannot be saved"),
                fields: vec![("error", trouble.to_string())],
                event: None,
            });
        }
    }

    pub(super) fn count(&self, name: &'static str, by: u64) {
        let buffer = self.config.buffer.name().to_owned();
        metrics::counter!(name, label::BUFFER => buffer).increment(by);
    }
}
