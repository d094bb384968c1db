//! The parts of a running relay: how they start, and in which order they stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_store::{Database, Lease};
use tokio::sync::RwLock;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Relay;
use super::start::{Alerting, Begun};
use crate::alerts::Alerts;
#[cfg(feature = "buffer")]
use crate::buffer::Worker;
use crate::config::OutboxConfig;
use crate::delivery::backup::Backup;
use crate::delivery::safety_net::SafetyNet;
use crate::delivery::settle::Settler;
use crate::delivery::trace::{self, Tracer};
use crate::delivery::trouble::Trouble;
use crate::engine::maintenance::Maintenance;
use crate::engine::supervisor::Supervisor;
use crate::engine::{auto_retry, jobs};
use crate::lease::LeaseKeeper;
use crate::monitor::Monitor;
use crate::observations::Observations;
use crate::preset::Thresholds;
use crate::sink::Sink;
use crate::telemetry;
use crate::waker::Waker;

/// Time that each part gets beyond the stop deadline: a database or channel that does not answer
/// must not keep the process from ending.
const GRACE: Duration = Duration::from_secs(5);

/// The signals that stop the parts. Each part stops only after the parts that depend on it.
pub(super) struct Signals {
    abort: CancellationToken,
    maintenance: CancellationToken,
    lease: CancellationToken,
    pub(super) alerts: CancellationToken,
}

impl Signals {
    /// Creates signals that are also given when `ended` is.
    pub(super) fn below(ended: &CancellationToken) -> Self {
        let [abort, maintenance, lease, alerts] = std::array::from_fn(|_| ended.child_token());
        Self { abort, maintenance, lease, alerts }
    }
}

/// The tasks of a running relay.
pub(super) struct Parts {
    signals: Signals,
    /// One per outbox and buffer. Each returns whether it ended without holding a row.
    supervisors: JoinSet<bool>,
    /// Hints, jobs and automatic retries: aborted as soon as the relay stops. What they do is
    /// continued by the next one.
    background: Vec<AbortOnDropHandle<()>>,
    /// Can be aborted: the monitor only reads.
    monitor: AbortOnDropHandle<()>,
    maintenance: JoinHandle<()>,
    lease: JoinHandle<Option<Lease>>,
    dispatcher: JoinHandle<()>,
    exporter: Option<JoinHandle<()>>,
}

/// What the parts share.
struct Shared<'a> {
    relay: &'a Relay,
    alerts: Alerts,
    lease_keeper: Arc<LeaseKeeper>,
    safety_net: Arc<SafetyNet>,
    tracer: Option<Tracer>,
    signals: &'a Signals,
}

impl Parts {
    /// Starts everything, for the outboxes and the lease with which the relay began.
    pub(super) fn start(
        relay: &mut Relay,
        begun: Begun,
        alerting: Alerting,
        signals: Signals,
        stop: &CancellationToken,
    ) -> Self {
        let Alerting { alerts, dispatcher, store_answers } = alerting;
        let traces = relay.traces.take();
        let started = traces.map(|settings| trace::start(settings, &relay.config.host));
        let (tracer, exporter) = started.unzip();
        let exporter = exporter.map(|exporter| tokio::spawn(exporter.run(signals.alerts.clone())));
        #[cfg(feature = "buffer")]
        let buffers = std::mem::take(&mut relay.buffers);
        let relay = &*relay;
        let observed: Observed = (relay.outboxes.iter())
            .map(|config| (config.clone(), Arc::<Observations>::default()))
            .collect();
        let by_name = observed.iter().map(|(config, observations)| {
            (config.outbox.name().to_owned(), Arc::clone(observations))
        });
        let (serving, registered) = begun;
        let lease_keeper = LeaseKeeper::new(serving, by_name.collect());
        let lease = {
            let (keeper, store) = (Arc::clone(&lease_keeper), Arc::clone(&relay.store));
            let (config, stop) = (relay.config.clone(), signals.lease.clone());
            tokio::spawn(async move {
                keeper.run(store.as_ref(), &config, registered, store_answers, &stop).await
            })
        };
        let backup =
            Arc::new(Backup::new(&relay.config.backup_folder, relay.config.backup_bytes_max));
        let safety_net = Arc::new(SafetyNet {
            store: Arc::clone(&relay.store),
            backup: Arc::clone(&backup),
            alerts: alerts.clone(),
            thresholds: thresholds(&relay.outboxes),
            memberships: lease_keeper.memberships(),
            backup_after: relay.config.backup_after,
        });
        let shared = Shared { relay, alerts, lease_keeper, safety_net, tracer, signals: &signals };
        let mut supervisors = JoinSet::new();
        for supervisor in shared.supervisors(&observed) {
            supervisors.spawn(supervisor.run(stop.clone()));
        }
        #[cfg(feature = "buffer")]
        for config in buffers {
            let (store, backup) = (Arc::clone(&relay.store), Arc::clone(&backup));
            let silent_max = relay.config.unreachable_after;
            let worker = Worker::new(config, store, backup, shared.alerts.clone(), silent_max);
            let (lease_keeper, stop) = (Arc::clone(&shared.lease_keeper), stop.clone());
            // Can be aborted anywhere: unfinished work is on the list in Redis.
            supervisors.spawn(async move {
                worker.run(lease_keeper, stop).await;
                true
            });
        }
        let (background, maintenance) = (shared.background(), shared.maintenance());
        let monitor = shared.monitor(observed);
        Self { signals, supervisors, background, monitor, maintenance, lease, dispatcher, exporter }
    }

    /// Stops each part after those that depend on it.
    pub(super) async fn stop(mut self, relay: &Relay) {
        drop(self.background);
        let deadline = relay.config.stop_timeout;
        // Whether every supervisor ended without holding a row.
        let mut clean = true;
        if timeout(deadline, join_all(&mut self.supervisors, &mut clean)).await.is_err() {
            tracing::warn!(?deadline, "stop deadline reached: giving back what is left");
            self.signals.abort.cancel();
            let ended = timeout(GRACE, join_all(&mut self.supervisors, &mut clean)).await;
            clean &= ended.is_ok();
        }
        close_sinks(&relay.outboxes).await;
        self.signals.maintenance.cancel();
        drop(self.monitor);
        drop(timeout(GRACE, AbortOnDropHandle::new(self.maintenance)).await);
        self.signals.lease.cancel();
        let lease = timeout(GRACE, AbortOnDropHandle::new(self.lease)).await;
        // If everything is settled, the relay removes its entry from the list. Otherwise the others
        // see it die and recover its rows.
        if let (Ok(Ok(Some(lease))), true) = (lease, clean) {
            match timeout(GRACE, relay.store.retire(&lease)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "not taken off the list; another relay will notice");
                }
                Err(_) => tracing::warn!("not taken off the list; another relay will notice"),
            }
        }
        self.signals.alerts.cancel();
        if timeout(GRACE, AbortOnDropHandle::new(self.dispatcher)).await.is_err() {
            tracing::error!("alerts left unsent at the stop");
        }
        if let Some(exporter) = self.exporter {
            drop(timeout(GRACE, AbortOnDropHandle::new(exporter)).await);
        }
    }
}

/// The outboxes, and what is observed of each.
type Observed = Vec<(OutboxConfig, Arc<Observations>)>;

impl Shared<'_> {
    fn supervisors(&self, observed: &Observed) -> Vec<Supervisor> {
        let alone = Arc::new(RwLock::new(()));
        let supervisor = |(config, observations): &(OutboxConfig, Arc<Observations>)| {
            let name = config.outbox.name();
            telemetry::start(name);
            telemetry::start_sink(name, config.sink.name());
            let keeper = Arc::clone(&self.lease_keeper);
            Supervisor {
                config: config.clone(),
                settler: Settler {
                    store: Arc::clone(&self.relay.store),
                    lease_keeper: Arc::clone(&self.lease_keeper),
                    safety_net: Arc::clone(&self.safety_net),
                    observations: Arc::clone(observations),
                    waker: self.relay.waker.clone(),
                    trouble: Arc::new(Trouble::new(name, self.alerts.clone(), keeper)),
                    abort: self.signals.abort.clone(),
                },
                lease_keeper: Arc::clone(&self.lease_keeper),
                alerts: self.alerts.clone(),
                observations: Arc::clone(observations),
                destinations: Arc::clone(&self.relay.destinations),
                tracer: self.tracer.clone(),
                waker: self.relay.waker.clone(),
                alone: Arc::clone(&alone),
                suspects_every: self.relay.config.heartbeat_every,
            }
        };
        observed.iter().map(supervisor).collect()
    }

    fn background(&self) -> Vec<AbortOnDropHandle<()>> {
        let relay = self.relay;
        // The next runner continues after the last finished step of an aborted job.
        let jobs = tokio::spawn(jobs::keep_running(
            Arc::clone(&relay.store),
            relay.outboxes.iter().map(|config| config.outbox.clone()).collect(),
            relay.config.host.clone(),
            self.lease_keeper.memberships(),
            relay.waker.clone(),
        ));
        // Can be aborted: each retry is a transaction.
        let retries = tokio::spawn(auto_retry::keep_retrying(
            Arc::clone(&relay.store),
            relay.outboxes.clone(),
            self.lease_keeper.memberships(),
            relay.config.fold_every,
        ));
        let hinted = relay.outboxes.iter().filter(|config| config.notify);
        let hints = tokio::spawn(follow_hints(
            Arc::clone(&relay.store),
            hinted.map(|config| config.outbox.clone()).collect(),
            relay.waker.clone(),
        ));
        [jobs, retries, hints].map(AbortOnDropHandle::new).into()
    }

    fn maintenance(&self) -> JoinHandle<()> {
        let maintenance = Maintenance {
            store: Arc::clone(&self.relay.store),
            config: self.relay.config.clone(),
            outboxes: self.relay.outboxes.clone(),
            safety_net: Arc::clone(&self.safety_net),
        };
        let memberships = self.lease_keeper.memberships();
        let stop = self.signals.maintenance.clone();
        // Maintenance can be aborted anywhere: each of its steps is a transaction.
        tokio::spawn(async move {
            stop.run_until_cancelled(maintenance.run(memberships)).await;
        })
    }

    fn monitor(&self, outboxes: Observed) -> AbortOnDropHandle<()> {
        let monitor = Monitor {
            store: Arc::clone(&self.relay.store),
            config: self.relay.config.clone(),
            outboxes,
            alerts: self.alerts.clone(),
        };
        let memberships = self.lease_keeper.memberships();
        let stop = self.signals.maintenance.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            stop.run_until_cancelled(monitor.run(memberships)).await;
        }))
    }
}

fn thresholds(outboxes: &[OutboxConfig]) -> HashMap<String, Thresholds> {
    let of = |config: &OutboxConfig| (config.outbox.name().to_owned(), config.preset.alerts);
    outboxes.iter().map(of).collect()
}

/// Waits for all supervisors, and removes those that ended from the set.
async fn join_all(supervisors: &mut JoinSet<bool>, clean: &mut bool) {
    while let Some(ended) = supervisors.join_next().await {
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
