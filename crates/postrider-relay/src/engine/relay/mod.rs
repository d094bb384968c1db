//! The relay: all outboxes of one process.

mod start;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use postrider::Outbox;
use postrider::store::{ClaimMode, Database, Serving, Share};
use tokio::sync::RwLock;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::alerts::{AlertBook, AlertSettings, LogChannel, Subscription};
#[cfg(feature = "buffer")]
use crate::buffer::{BufferConfig, Worker};
use crate::config::{OutboxConfig, RelayConfig};
use crate::delivery::backup::Backup;
use crate::delivery::safety_net::SafetyNet;
use crate::delivery::settle::Settler;
use crate::delivery::trace::{self, TraceSettings};
use crate::delivery::trouble::Trouble;
use crate::destination::DestinationBook;
use crate::engine::auto_retry;
use crate::engine::jobs;
use crate::engine::maintenance::Maintenance;
use crate::engine::supervisor::{self, Supervisor};
use crate::error::RelayError;
use crate::lease::LeaseKeeper;
use crate::monitor::Monitor;
use crate::observations::Observations;
use crate::preset::Thresholds;
use crate::sink::Sink;
use crate::telemetry;
use crate::waker::Waker;
use start::Alerting;

/// Time that each part gets beyond the stop deadline: a database or channel that does not answer
/// must not keep the process from ending.
const GRACE: Duration = Duration::from_secs(5);

/// Delivers the events of some outboxes. Build it, then [`run`](Relay::run) it.
pub struct Relay {
    store: Arc<dyn Database>,
    config: RelayConfig,
    outboxes: Vec<OutboxConfig>,
    #[cfg(feature = "buffer")]
    buffers: Vec<BufferConfig>,
    channels: Vec<Subscription>,
    alert_settings: AlertSettings,
    book: Arc<AlertBook>,
    destinations: Arc<DestinationBook>,
    heartbeat_fails: Arc<AtomicBool>,
    traces: Option<TraceSettings>,
    waker: Waker,
}

impl Relay {
    /// Creates a relay on this store, without outboxes.
    pub fn new(store: Arc<dyn Database>, config: RelayConfig) -> Self {
        Self {
            store,
            config,
            outboxes: Vec::new(),
            #[cfg(feature = "buffer")]
            buffers: Vec::new(),
            channels: vec![Subscription { reports: true, ..Subscription::new(LogChannel) }],
            alert_settings: AlertSettings::default(),
            book: Arc::default(),
            destinations: Arc::default(),
            heartbeat_fails: Arc::default(),
            traces: None,
            waker: Waker::default(),
        }
    }

    /// Adds an outbox.
    #[must_use]
    pub fn outbox(mut self, outbox: OutboxConfig) -> Self {
        self.outboxes.push(outbox);
        self
    }

    /// Adds a buffer.
    #[cfg(feature = "buffer")]
    #[must_use]
    pub fn buffer(mut self, buffer: BufferConfig) -> Self {
        self.buffers.push(buffer);
        self
    }

    /// Adds a channel for alerts. The log is always a channel.
    #[must_use]
    pub fn alert_channel(mut self, channel: Subscription) -> Self {
        self.channels.push(channel);
        self
    }

    /// Sets how alerts are sent.
    #[must_use]
    pub fn alert_settings(mut self, settings: AlertSettings) -> Self {
        self.alert_settings = settings;
        self
    }

    /// Sends a span per delivery attempt to an OpenTelemetry collector.
    #[must_use]
    pub fn traces(mut self, settings: TraceSettings) -> Self {
        self.traces = Some(settings);
        self
    }

    /// Returns the list of active and past alerts.
    pub fn alert_book(&self) -> Arc<AlertBook> {
        Arc::clone(&self.book)
    }

    /// Returns the state of the destinations of its sinks.
    pub fn destination_book(&self) -> Arc<DestinationBook> {
        Arc::clone(&self.destinations)
    }

    /// Returns a flag that is set while heartbeats cannot be written: a store that can be read may
    /// be full or read-only.
    pub fn heartbeat_fails(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heartbeat_fails)
    }

    /// Returns the handle that wakes the relay after an append in the same process.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs until `stop`. Then it finishes what is in flight, or releases it when the stop timeout
    /// ends first, so that nothing is left `PROCESSING`.
    ///
    /// # Errors
    /// If the tables are missing or of another version, or if they cannot be written for a
    /// permanent reason, such as missing privileges. The relay waits for a database that cannot be
    /// reached, at the start and later.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), RelayError> {
        let names: Vec<Outbox> = self.outboxes.iter().map(|o| o.outbox.clone()).collect();
        // Each part stops only after the parts that depend on it. All of them stop when this future
        // is dropped.
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        let stop = stop.child_token();
        let _stop = stop.clone().drop_guard();
        let [abort, stop_maintenance, stop_heart, stop_alerts] =
            std::array::from_fn(|_| ended.child_token());
        let mut alerting = None;
        let begun = self.begin(&names, &mut alerting, &stop_alerts, &stop).await?;
        let Some((serving, registered)) = begun else { return Ok(()) };
        let alerting = alerting.unwrap_or_else(|| self.start_alerts(&stop_alerts));
        let Alerting { alerts, dispatcher, store_answers } = alerting;
        let (tracer, exporting) = match self.traces {
            Some(settings) => {
                let (tracer, exporter) = trace::start(settings, &self.config.host);
                (Some(tracer), Some(tokio::spawn(exporter.run(stop_alerts.clone()))))
            }
            None => (None, None),
        };
        let observed: Vec<_> = self
            .outboxes
            .iter()
            .map(|config| (config.clone(), Arc::<Observations>::default()))
            .collect();
        let by_name = observed.iter().map(|(config, observations)| {
            (config.outbox.name().to_owned(), Arc::clone(observations))
        });
        let lease_keeper = LeaseKeeper::new(serving, by_name.collect());
        let beating = {
            let (lease_keeper, store) = (Arc::clone(&lease_keeper), Arc::clone(&self.store));
            let (config, stop) = (self.config.clone(), stop_heart.clone());
            tokio::spawn(async move {
                lease_keeper.run(store.as_ref(), &config, registered, store_answers, &stop).await
            })
        };
        let backup =
            Arc::new(Backup::new(&self.config.backup_folder, self.config.backup_bytes_max));
        let safety_net = Arc::new(SafetyNet {
            store: Arc::clone(&self.store),
            backup: Arc::clone(&backup),
            alerts: alerts.clone(),
            thresholds: thresholds(&self.outboxes),
            memberships: lease_keeper.memberships(),
            backup_after: self.config.backup_after,
        });
        let maintenance = Maintenance {
            store: Arc::clone(&self.store),
            config: self.config.clone(),
            outboxes: self.outboxes.clone(),
            safety_net: Arc::clone(&safety_net),
        };
        let (memberships, stopping) = (lease_keeper.memberships(), stop_maintenance.clone());
        // Maintenance can be aborted anywhere: each of its steps is a transaction.
        let keeping = tokio::spawn(async move {
            stopping.run_until_cancelled(maintenance.run(memberships)).await;
        });

        let jobs = jobs::keep_running(
            Arc::clone(&self.store),
            names,
            self.config.host.clone(),
            lease_keeper.memberships(),
            self.waker.clone(),
        );
        // The next runner continues after the last finished step of an aborted job.
        let jobs = AbortOnDropHandle::new(tokio::spawn(jobs));
        let retrying = auto_retry::keep_retrying(
            Arc::clone(&self.store),
            self.outboxes.clone(),
            lease_keeper.memberships(),
            self.config.fold_every,
        );
        // Can be aborted: each retry is a transaction.
        let retrying = AbortOnDropHandle::new(tokio::spawn(retrying));
        let monitor = Monitor {
            store: Arc::clone(&self.store),
            config: self.config.clone(),
            outboxes: observed.clone(),
            alerts: alerts.clone(),
        };
        let (memberships, stopping) = (lease_keeper.memberships(), stop_maintenance.clone());
        // Can be aborted: the monitor only reads.
        let monitoring = AbortOnDropHandle::new(tokio::spawn(async move {
            stopping.run_until_cancelled(monitor.run(memberships)).await;
        }));

        let alone = Arc::new(RwLock::new(()));
        let mut pipelines = JoinSet::new();
        for (config, observations) in observed {
            telemetry::start(config.outbox.name());
            telemetry::start_sink(config.outbox.name(), config.sink.name());
            let trouble =
                Trouble::new(config.outbox.name(), alerts.clone(), Arc::clone(&lease_keeper));
            let supervisor = Supervisor {
                config,
                settler: Settler {
                    store: Arc::clone(&self.store),
                    lease_keeper: Arc::clone(&lease_keeper),
                    safety_net: Arc::clone(&safety_net),
                    observations: Arc::clone(&observations),
                    waker: self.waker.clone(),
                    trouble: Arc::new(trouble),
                    abort: abort.clone(),
                },
                lease_keeper: Arc::clone(&lease_keeper),
                alerts: alerts.clone(),
                observations,
                destinations: Arc::clone(&self.destinations),
                tracer: tracer.clone(),
                waker: self.waker.clone(),
                alone: Arc::clone(&alone),
                suspects_every: self.config.heartbeat_every,
            };
            pipelines.spawn(supervisor.run(stop.clone()));
        }
        #[cfg(feature = "buffer")]
        for config in self.buffers {
            let (store, backup) = (Arc::clone(&self.store), Arc::clone(&backup));
            let silent_max = self.config.unreachable_after;
            let worker = Worker::new(config, store, backup, alerts.clone(), silent_max);
            let (lease_keeper, stop) = (Arc::clone(&lease_keeper), stop.clone());
            // Can be aborted anywhere: unfinished work is on the list in Redis.
            pipelines.spawn(async move {
                worker.run(lease_keeper, stop).await;
                true
            });
        }
        let hints = AbortOnDropHandle::new(tokio::spawn(follow_hints(
            Arc::clone(&self.store),
            self.outboxes.iter().filter(|o| o.notify).map(|o| o.outbox.clone()).collect(),
            self.waker.clone(),
        )));

        stop.cancelled().await;
        drop((hints, jobs, retrying));
        tracing::info!("stopping: finishing what is in flight");
        let deadline = self.config.stop_timeout;
        // Whether every pipeline ended without holding a row.
        let mut clean = true;
        if timeout(deadline, settle_all(&mut pipelines, &mut clean)).await.is_err() {
            tracing::warn!(?deadline, "stop deadline reached: giving back what is left");
            abort.cancel();
            let ended = timeout(GRACE, settle_all(&mut pipelines, &mut clean)).await;
            clean &= ended.is_ok();
        }
        close_sinks(&self.outboxes).await;
        stop_maintenance.cancel();
        drop(monitoring);
        drop(timeout(GRACE, AbortOnDropHandle::new(keeping)).await);
        stop_heart.cancel();
        let lease = timeout(GRACE, AbortOnDropHandle::new(beating)).await;
        // If everything is settled, the relay removes its entry from the list. Otherwise the others
        // see it die and recover its rows.
        if let (Ok(Ok(Some(lease))), true) = (lease, clean) {
            match timeout(GRACE, self.store.retire(&lease)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "not taken off the list; another relay will notice");
                }
                Err(_) => tracing::warn!("not taken off the list; another relay will notice"),
            }
        }
        stop_alerts.cancel();
        if timeout(GRACE, AbortOnDropHandle::new(dispatcher)).await.is_err() {
            tracing::error!("alerts left unsent at the stop");
        }
        if let Some(exporting) = exporting {
            drop(timeout(GRACE, AbortOnDropHandle::new(exporting)).await);
        }
        tracing::info!("stopped");
        Ok(())
    }
}

impl Relay {
    /// Returns what this relay will work on, in the claim modes that the database has.
    async fn serving(&self) -> Result<Vec<Serving>, RelayError> {
        let modes = self.store.modes().await?;
        let mut serving = Vec::new();
        for config in &self.outboxes {
            let name = config.outbox.name();
            let Some((_, mode)) = modes.iter().find(|(outbox, _)| outbox == name) else { continue };
            if let Some(claim) = config.claim.filter(|claim| *claim != mode.claim) {
                return Err(RelayError::Claim(format!(
                    "outbox `{name}` is in claim mode `{}`, but `{claim}` is configured; to change \
                     it for all relays: postrider outbox set-claim {name} {claim}",
                    mode.claim
                )));
            }
            if mode.claim == ClaimMode::Lanes && config.share != Share::WHOLE {
                return Err(RelayError::Claim(format!(
                    "outbox `{name}`: `share` is for claim mode `rows`; in `lanes` relays share the \
                     work by themselves: remove it"
                )));
            }
            serving.push(supervisor::serving(config, *mode));
        }
        Ok(serving)
    }
}

fn thresholds(outboxes: &[OutboxConfig]) -> HashMap<String, Thresholds> {
    let of = |config: &OutboxConfig| (config.outbox.name().to_owned(), config.preset.alerts);
    outboxes.iter().map(of).collect()
}

/// Waits for all pipelines and removes those that ended from the set.
async fn settle_all(pipelines: &mut JoinSet<bool>, clean: &mut bool) {
    while let Some(ended) = pipelines.join_next().await {
        *clean &= ended.unwrap_or(false);
    }
}

/// Closes every sink once, even if several outboxes share it.
async fn close_sinks(outboxes: &[OutboxConfig]) {
    let mut closed: Vec<&Arc<dyn Sink>> = Vec::new();
    for sink in outboxes.iter().map(|outbox| &outbox.sink) {
        if closed.iter().any(|known| Arc::ptr_eq(known, sink)) {
            continue;
        }
        if timeout(GRACE, sink.close()).await.is_err() {
            tracing::warn!(sink = sink.name(), "sink not closed in time");
        }
        closed.push(sink);
    }
}

/// Turns the store's hints into wake-ups. Without hints, polling does the work.
async fn follow_hints(store: Arc<dyn Database>, outboxes: Vec<Outbox>, waker: Waker) {
    if outboxes.is_empty() {
        return;
    }
    loop {
        match store.hints(&outboxes).await {
            Ok(Some(mut hints)) => {
                while hints.recv().await.is_some() {
                    waker.wake();
                }
            }
            Ok(None) => return,
            Err(error) => tracing::debug!(%error, "no hints; polling goes on"),
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}
