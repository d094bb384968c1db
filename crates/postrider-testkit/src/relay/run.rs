//! Relays in the test's own process, with short times.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider_relay::{Backoff, OutboxConfig, Preset, Relay, RelayConfig, RelayError, Waker};
use postrider_store::{Database, Event, OnSuccess};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ScriptedSink;
use crate::{PATIENCE, TempFolder, TestDb};

/// Returns short times for what a test waits for, and long ones for limits that a slow machine must
/// not exceed.
pub fn quick_config(folder: &TempFolder) -> RelayConfig {
    RelayConfig {
        host: "test-host".to_owned(),
        lease: Duration::from_secs(4),
        heartbeat_every: Duration::from_millis(100),
        stop_timeout: Duration::from_secs(10),
        recover_every: Duration::from_millis(200),
        fold_every: Duration::from_millis(100),
        move_marked_every: Duration::from_millis(100),
        monitor_every: Duration::from_millis(100),
        backup_folder: folder.path().join("dead-letters"),
        ..RelayConfig::default()
    }
}

/// Returns a preset that polls every 20 ms, makes three attempts 10 ms apart, uses batches of 10,
/// and deletes delivered events.
pub fn quick_preset() -> Preset {
    let wait = Duration::from_millis(10);
    Preset {
        idle_poll: Duration::from_millis(20),
        batch: 10,
        backoff: Backoff { first: wait, factor: 1.0, max: wait, jitter: 0.0 },
        max_retries: 3,
        on_success: OnSuccess::Delete,
        ..Preset::api_call()
    }
}

/// A relay that runs until it is stopped or dropped.
pub struct RunningRelay {
    /// Wakes the relay.
    pub waker: Waker,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), RelayError>>>,
}

impl RunningRelay {
    /// Starts a relay.
    pub fn start(relay: Relay) -> Self {
        let (waker, stop) = (relay.waker(), CancellationToken::new());
        let task = tokio::spawn(relay.run(stop.clone()));
        Self { waker, stop, task: Some(task) }
    }

    /// Starts a relay on the test's outbox, with short times.
    pub fn quick(db: &TestDb, folder: &TempFolder, sink: &Arc<ScriptedSink>) -> Self {
        Self::with_preset(db, folder, sink, quick_preset())
    }

    /// Like [`RunningRelay::quick`], with another preset.
    pub fn with_preset(
        db: &TestDb,
        folder: &TempFolder,
        sink: &Arc<ScriptedSink>,
        preset: Preset,
    ) -> Self {
        let outbox = OutboxConfig::new(db.outbox.clone(), preset, sink.clone());
        Self::on(&db.store, quick_config(folder), outbox)
    }

    /// Starts a relay with one outbox on its own store.
    pub fn on(store: &Arc<dyn Database>, config: RelayConfig, outbox: OutboxConfig) -> Self {
        Self::start(Relay::new(Arc::clone(store), config).outbox(outbox))
    }

    /// Asks it to stop, without waiting.
    pub fn ask_to_stop(&self) {
        self.stop.cancel();
    }

    /// Stops it and waits until it has stopped.
    ///
    /// # Panics
    /// If it does not stop in time, or ended with an error.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let task = self.task.take().unwrap();
        let ended = tokio::time::timeout(PATIENCE, task).await;
        ended.expect("the relay stops in time").expect("it does not panic").unwrap();
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns a claimed event, for tests without a store.
pub fn held_event(id: i64) -> Event {
    let at: DateTime<Utc> = DateTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000);
    Event {
        id,
        event_id: uuid::Uuid::from_u128(id.unsigned_abs().into()).to_string(),
        aggregate_type: "order".to_owned(),
        aggregate_id: format!("order-{id}"),
        event_type: "OrderPlaced".to_owned(),
        payload: format!(r#"{{"order":{id}}}"#),
        created_at: at,
        claimed_at: at + Duration::from_secs(60),
        version: 1,
        ..Event::default()
    }
}
