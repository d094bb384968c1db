//! Recovery by an operator while no relay runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_store::Database;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::BufferConfig;
use super::worker::{Trouble, Worker};
use crate::alerts::reachability::Reachability;
use crate::alerts::{AlertSettings, Dispatcher, LogChannel, Subscription};
use crate::config::RelayConfig;
use crate::delivery::backup::Backup;
use crate::error::RelayError;
use crate::lease::{LeaseKeeper, keeper};

/// Number of batches of a buffer, before and after the recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoveredBuffer {
    /// Name of the buffer.
    pub buffer: String,
    /// Batches that were found.
    pub found: usize,
    /// Batches that are left because their workers are alive.
    pub left: usize,
}

/// Finishes the batches of workers that are gone, without moving new ones. A worker that has just
/// died is known to be dead only after a lease, so this waits up to two leases for the rest.
///
/// # Errors
/// If a buffer or the database cannot be used. Batches recovered until then stay recovered.
pub async fn recover_buffers(
    store: Arc<dyn Database>,
    config: &RelayConfig,
    buffers: Vec<BufferConfig>,
) -> Result<Vec<RecoveredBuffer>, RelayError> {
    let registered = keeper::register(store.as_ref(), config, Vec::new()).await?;
    let lease_keeper = LeaseKeeper::new(Vec::new(), HashMap::new());
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let (alerts, dispatcher) =
        Dispatcher::new(vec![Subscription::new(LogChannel)], AlertSettings::default());
    let dispatcher = tokio::spawn(dispatcher.run(stop.clone()));
    let beating = {
        let (lease_keeper, store) = (Arc::clone(&lease_keeper), Arc::clone(&store));
        let (config, stop) = (config.clone(), stop.clone());
        let answers = Reachability::of_store(config.unreachable_after, alerts.clone());
        tokio::spawn(async move {
            lease_keeper.run(store.as_ref(), &config, Some(registered), answers, &stop).await
        })
    };
    let backup = Arc::new(Backup::new(&config.backup_folder, config.backup_bytes_max));
    let mut workers: Vec<Worker> = buffers
        .into_iter()
        .map(|buffer| {
            let (store, backup) = (Arc::clone(&store), Arc::clone(&backup));
            // No alert is needed: the caller sees at once what fails.
            Worker::new(buffer, store, backup, alerts.clone(), Duration::MAX)
        })
        .collect();
    let outcome = recover_all(&mut workers, &lease_keeper, config).await;
    stop.cancel();
    if let Ok(Some(lease)) = beating.await {
        store.retire(&lease).await?;
    }
    drop(dispatcher.await);
    outcome
}

async fn recover_all(
    workers: &mut [Worker],
    lease_keeper: &LeaseKeeper,
    config: &RelayConfig,
) -> Result<Vec<RecoveredBuffer>, RelayError> {
    let until = Instant::now() + config.lease * 2;
    let mut found: Vec<Option<usize>> = vec![None; workers.len()];
    loop {
        let lease = lease_keeper.held().await.lease;
        let mut recovered = Vec::new();
        for (worker, found) in workers.iter_mut().zip(&mut found) {
            let name = worker.config.buffer.name().to_owned();
            let failed = |error: Trouble| RelayError::Buffer(format!("buffer `{name}`: {error}"));
            // This also reads which replicas exist: a replica that takes over must not bring back
            // what is saved.
            worker.look_at_server().await.map_err(failed)?;
            let before = worker.recover(&lease).await.map_err(failed)?;
            let found = *found.get_or_insert(before.batches.len());
            let after = worker.config.buffer.look().await;
            let left = after.map_err(|error| failed(error.into()))?.batches.len();
            recovered.push(RecoveredBuffer { buffer: name, found, left });
        }
        if recovered.iter().all(|buffer| buffer.left == 0) || Instant::now() >= until {
            return Ok(recovered);
        }
        tokio::time::sleep(config.heartbeat_every).await;
    }
}
