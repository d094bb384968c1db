//! The lease: this relay sends heartbeats and watches those of the other relays.
//!
//! A relay is dead when its heartbeat counter has not moved for the lease time on *this* process's
//! monotonic clock, counted only while the database could be read. The first relay to notice fences
//! it; the relays that serve its outboxes recover its rows. A fenced relay registers again under a
//! new id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_store::{
    Database, DownDestination, Lease, RelayIdentity, RelayPulse, Serving, StoreError,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Membership;
use crate::alerts::reachability::Reachability;
use crate::config::RelayConfig;
use crate::observations::Observations;
use crate::telemetry;

/// Destinations that are down, shown per outbox in the list of relays.
const DOWN_SHOWN_MAX: usize = 20;

/// The lease as it is currently held.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// No delivery starts after this time: another relay may have taken over by then.
    pub(crate) valid_until: Instant,
}

#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    held: watch::Sender<Option<Held>>,
    membership: watch::Sender<Membership>,
    lost: Notify,
    /// The outboxes that this relay works on, sent with each heartbeat.
    serving: Mutex<Vec<Serving>>,
    /// This relay's observations of each outbox, sent along with `serving`.
    observed: HashMap<String, Arc<Observations>>,
}

impl LeaseKeeper {
    pub(crate) fn new(
        serving: Vec<Serving>,
        observed: HashMap<String, Arc<Observations>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            held: watch::Sender::new(None),
            membership: watch::Sender::new(Membership::default()),
            lost: Notify::new(),
            serving: Mutex::new(serving),
            observed,
        })
    }

    /// Waits until there is a valid lease and returns it. Waits through database outages.
    pub(crate) async fn held(&self) -> Held {
        let mut changes = self.held.subscribe();
        loop {
            let held = changes.borrow_and_update().clone();
            match held {
                Some(held) if held.valid_until > Instant::now() => return held,
                // Nothing is sent while the database is unreachable; the sender lives as long as
                // `self`.
                _ => drop(changes.changed().await),
            }
        }
    }

    /// Returns whether this lease is still the one held, with time left.
    pub(crate) fn holds(&self, lease: &Lease) -> bool {
        self.held
            .borrow()
            .as_ref()
            .is_some_and(|held| held.lease == *lease && held.valid_until > Instant::now())
    }

    /// Returns whether this lease has not been replaced, whether it is still valid or not.
    pub(crate) fn is_current(&self, lease: &Lease) -> bool {
        self.held.borrow().as_ref().is_some_and(|held| held.lease == *lease)
    }

    /// Waits until this lease is replaced or lost.
    pub(crate) async fn replaced(&self, lease: &Lease) {
        let mut changes = self.held.subscribe();
        // The sender lives as long as `self`.
        drop(changes.wait_for(|held| held.as_ref().is_none_or(|held| held.lease != *lease)).await);
    }

    /// Announces to the other relays, with an immediate heartbeat, that this relay works on an
    /// outbox in that mode and holds nothing from an older one; `None` announces that it does not
    /// work on the outbox.
    pub(crate) fn announce(&self, outbox: &str, serving: Option<Serving>) {
        let mut all = self.lock_serving();
        all.retain(|entry| entry.outbox != outbox);
        all.extend(serving);
        drop(all);
        self.lost.notify_one();
    }

    /// Records that a destination of an outbox went down, for the list of relays.
    pub(crate) fn note_down(&self, outbox: &str, down: DownDestination) {
        self.change_down(outbox, |known| {
            known.retain(|other| other.destination != down.destination);
            if known.len() < DOWN_SHOWN_MAX {
                known.push(down);
            }
        });
    }

    /// Records that a destination of an outbox is back.
    pub(crate) fn note_back(&self, outbox: &str, destination: &str) {
        self.change_down(outbox, |known| known.retain(|other| other.destination != destination));
    }

    /// Records why work on an outbox makes no progress; `None` when it does again.
    pub(crate) fn note_trouble(&self, outbox: &str, trouble: Option<String>) {
        self.change(outbox, |serving| serving.trouble = trouble);
    }

    fn change_down(&self, outbox: &str, change: impl FnOnce(&mut Vec<DownDestination>)) {
        self.change(outbox, |serving| change(&mut serving.down));
    }

    fn change(&self, outbox: &str, change: impl FnOnce(&mut Serving)) {
        let mut all = self.lock_serving();
        if let Some(serving) = all.iter_mut().find(|serving| serving.outbox == outbox) {
            change(serving);
        }
    }

    fn lock_serving(&self) -> std::sync::MutexGuard<'_, Vec<Serving>> {
        // Entries are replaced as a whole, so a panic cannot leave one half written.
        self.serving.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Builds the content of a heartbeat: what this relay works on, with its current traffic.
    fn serving(&self) -> Vec<Serving> {
        let mut serving = self.lock_serving().clone();
        for entry in &mut serving {
            if let Some(observed) = self.observed.get(&entry.outbox) {
                entry.traffic = observed.traffic();
            }
        }
        serving
    }

    pub(crate) fn memberships(&self) -> watch::Receiver<Membership> {
        self.membership.subscribe()
    }

    /// Triggers a heartbeat at once, after a call failed with `LeaseLost`.
    pub(crate) fn lost(&self) {
        self.lost.notify_one();
    }

    /// Sends heartbeats until stopped, starting with the lease from `register`. Returns the lease
    /// that is held at the end, so that it can be retired.
    pub(crate) async fn run(
        &self,
        store: &dyn Database,
        config: &RelayConfig,
        mut lease: Option<Lease>,
        mut store_answers: Reachability,
        stop: &CancellationToken,
    ) -> Option<Lease> {
        let mut observer = Observer::default();
        while !stop.is_cancelled() {
            let started = Instant::now();
            let beat = self.beat(store, config, &mut lease, &mut observer);
            // A dead connection may stay silent for a quarter of an hour; the next attempt uses
            // another connection.
            let beat = tokio::time::timeout(config.lease, beat);
            let Some(beat) = stop.run_until_cancelled(beat).await else { break };
            match beat {
                Ok(Ok(())) => store_answers.answered(),
                Ok(Err(StoreError::LeaseLost)) => {
                    store_answers.answered();
                    tracing::warn!(
                        "lease lost: another relay declared this one dead; registering anew"
                    );
                    metrics::gauge!(telemetry::LEASE_HELD).set(0.0);
                    self.held.send_replace(None);
                    lease = None;
                    continue;
                }
                // Without a successful read, nothing can be said about the other relays.
                Ok(Err(error)) => {
                    tracing::warn!(%error, "heartbeat failed; trying again");
                    store_answers.failed(started, &error.to_string());
                    observer = Observer::default();
                }
                Err(_) => {
                    tracing::warn!(waited = ?config.lease, "heartbeat not answered; trying again");
                    let error = format!("no answer within {:?}", config.lease);
                    store_answers.failed(started, &error);
                    observer = Observer::default();
                }
            }
            let rest = config.heartbeat_every.saturating_sub(started.elapsed());
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.lost.notified() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
        lease
    }

    async fn beat(
        &self,
        store: &dyn Database,
        config: &RelayConfig,
        lease: &mut Option<Lease>,
        observer: &mut Observer,
    ) -> Result<(), StoreError> {
        // Taken before the call: the lease counts from when the heartbeat was sent, not from when
        // its answer arrived.
        let started = Instant::now();
        let serving = self.serving();
        let current = match lease {
            Some(lease) => lease.clone(),
            None => lease.insert(register(store, config, serving.clone()).await?).clone(),
        };
        let pulses = store.heartbeat(&current, &serving).await?;
        let margin = config.lease / 4;
        self.held.send_replace(Some(Held {
            lease: current.clone(),
            valid_until: started + config.lease.saturating_sub(margin),
        }));
        metrics::gauge!(telemetry::LEASE_HELD).set(1.0);

        observer.look(&pulses, config);
        let (mut membership, mut tried) = (Membership::default(), false);
        for pulse in pulses {
            // A fence may wait for a lock. Several such waits in a row could delay this relay's own
            // next heartbeat too long; one fence is always tried, however slow the database is.
            let may_fence = !tried || started.elapsed() < config.heartbeat_every;
            let mut dead = pulse.fenced;
            if !dead
                && pulse.relay_id != current.relay_id
                && observer.is_still(&pulse, config.lease)
                && may_fence
            {
                tried = true;
                dead = fence(store, &pulse).await?;
            }
            match dead {
                true => membership.dead.push(pulse.relay_id),
                false => {
                    membership.live.push(pulse.relay_id.clone());
                    membership.serving.push((pulse.relay_id, pulse.serving));
                }
            }
        }
        // Read after the pulses: a relay that is missing from them joined after the mode's epoch
        // was set.
        membership.modes = store.modes().await?.into_iter().collect();
        let pauses = store.pauses().await?.into_iter();
        membership.pauses = pauses.map(|pause| (pause.kind, pause.name)).collect();
        membership.leader = membership.live.iter().min() == Some(&current.relay_id);
        membership.me = current.relay_id;
        self.membership.send_replace(membership);
        Ok(())
    }
}

/// Registers this relay under a new id.
pub(crate) async fn register(
    store: &dyn Database,
    config: &RelayConfig,
    serving: Vec<Serving>,
) -> Result<Lease, StoreError> {
    let registered = store.register(&identity(config, serving)).await?;
    tracing::info!(relay = registered.relay_id, "relay registered");
    Ok(registered)
}

async fn fence(store: &dyn Database, pulse: &RelayPulse) -> Result<bool, StoreError> {
    let fenced = match store.fence(pulse).await {
        // Another relay is fencing it, or a settle takes long: the next heartbeat tries again.
        Err(StoreError::Busy(_)) => false,
        answer => answer?,
    };
    if fenced {
        tracing::warn!(relay = pulse.relay_id, host = pulse.host, "relay is dead; taking over");
    }
    Ok(fenced)
}

fn identity(config: &RelayConfig, serving: Vec<Serving>) -> RelayIdentity {
    let unique = uuid::Uuid::now_v7().simple().to_string();
    let host: String = config.host.chars().take(60).collect();
    RelayIdentity {
        // The time-ordered part comes first, so that the oldest relay is the leader.
        id: format!("{unique}@{host}"),
        host: config.host.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serving,
    }
}

/// Tracks for how long each heartbeat counter has not moved.
#[derive(Debug, Default)]
struct Observer {
    seen: HashMap<String, (i64, Duration)>,
    looked_at: Option<Instant>,
    /// Time that counts between the last two looks.
    passed: Duration,
}

impl Observer {
    /// Begins a look. At most half a lease of the time since the last look counts: whatever stopped
    /// this process (a paused machine, for example) may have stopped the others as well, and they
    /// get until the next look to show that they are alive. Slow looks still add up.
    fn look(&mut self, pulses: &[RelayPulse], config: &RelayConfig) {
        let passed = self.looked_at.map_or(Duration::ZERO, |at| at.elapsed());
        self.passed = passed.min(config.lease / 2);
        self.seen.retain(|id, _| pulses.iter().any(|pulse| pulse.relay_id == *id));
        self.looked_at = Some(Instant::now());
    }

    /// Returns whether the heartbeat has not moved for `lease`. Call it once per look and relay.
    fn is_still(&mut self, pulse: &RelayPulse, lease: Duration) -> bool {
        let first = (pulse.heartbeat, Duration::ZERO);
        match self.seen.get_mut(&pulse.relay_id) {
            Some((heartbeat, still)) if *heartbeat == pulse.heartbeat => {
                *still += self.passed;
                *still >= lease
            }
            _ => {
                self.seen.insert(pulse.relay_id.clone(), first);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(heartbeat: i64) -> RelayPulse {
        RelayPulse {
            relay_id: "other".to_owned(),
            epoch: 1,
            heartbeat,
            fenced: false,
            host: String::new(),
            serving: Vec::new(),
            age: Duration::ZERO,
        }
    }

    /// Looks up to `looks` times, `apart` from each other, and returns the first look at which the
    /// heartbeat counts as still.
    fn still_at_look(apart: Duration, looks: usize, moves: bool) -> Option<usize> {
        let config = RelayConfig::default();
        let mut observer = Observer::default();
        (1..=looks).find(|look| {
            observer.looked_at = observer.looked_at.map(|_| Instant::now() - apart);
            let heartbeat = if moves { i64::try_from(*look).unwrap() } else { 7 };
            observer.look(&[pulse(heartbeat)], &config);
            observer.is_still(&pulse(heartbeat), config.lease)
        })
    }

    #[test]
    fn a_heart_is_still_after_the_lease() {
        let every = RelayConfig::default().heartbeat_every;
        assert_eq!(still_at_look(every, 20, false), Some(7), "6 × 1 s are the lease of 6 s");
        assert_eq!(still_at_look(every, 20, true), None, "it moves");
    }

    #[test]
    fn a_pause_of_the_observer_is_not_the_others_death() {
        let hour = Duration::from_secs(3600);
        assert_eq!(still_at_look(hour, 2, false), None, "they get time to show that they live");
        assert_eq!(still_at_look(hour, 20, false), Some(3), "but slow looks add up");
    }

    #[test]
    fn relays_that_left_are_forgotten() {
        let (mut observer, config) = (Observer::default(), RelayConfig::default());
        observer.look(&[pulse(1)], &config);
        observer.is_still(&pulse(1), config.lease);
        observer.look(&[], &config);
        assert!(observer.seen.is_empty());
    }
}
