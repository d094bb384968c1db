//! The lease: this relay's heartbeat, and the watch over the others'.
//!
//! A relay is dead when its heartbeat counter has not moved for the lease time on *this* process's
//! monotonic clock, counted only while the database could be read. Whoever notices fences it; the
//! leader recovers its rows. A relay that was fenced comes back under a new id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::StoreError;
use postrider::store::{
    Database, DownDestination, Lease, Mode, PauseKind, RelayIdentity, RelayPulse, Serving,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::RelayConfig;
use crate::monitor::Observations;
use crate::reachability::Reachability;
use crate::telemetry;

/// Destinations that are down, shown per outbox in the list of relays.
const DOWN_SHOWN_MAX: usize = 20;

/// The lease as it is held now.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) lease: Lease,
    /// No delivery starts after this: by then another relay may have taken over.
    pub(crate) valid_until: Instant,
}

/// Who is alive, as the last heartbeat showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Roll {
    /// Relays that live, or that are not known to be dead yet.
    pub(crate) live: Vec<String>,
    /// Relays that are fenced, with rows that may not be recovered yet.
    pub(crate) dead: Vec<String>,
    /// This relay does the house-keeping that is not about one outbox.
    pub(crate) leader: bool,
    /// This relay.
    me: String,
    /// What each of the live relays works on, in the order of their ids.
    serving: Vec<(String, Vec<Serving>)>,
    /// The claim mode of each outbox, by name.
    modes: HashMap<String, Mode>,
    /// What operators paused.
    pauses: Vec<(PauseKind, String)>,
}

impl Roll {
    /// The claim mode of an outbox; `None` before the first heartbeat, and without its tables.
    pub(crate) fn mode(&self, outbox: &str) -> Option<Mode> {
        self.modes.get(outbox).copied()
    }

    /// Whether an operator paused the outbox, or the sink that it leads to.
    pub(crate) fn is_paused(&self, outbox: &str, sink: &str) -> bool {
        self.pauses.iter().any(|(kind, name)| match kind {
            PauseKind::Outbox => name == outbox,
            PauseKind::Sink => name == sink,
        })
    }

    /// The live relays that work on an outbox, in the order of their ids.
    pub(crate) fn serving<'a>(&'a self, outbox: &'a str) -> Vec<&'a str> {
        self.entries(outbox).map(|(relay, _)| relay).collect()
    }

    /// Whether this relay keeps house for an outbox and watches its tables: the first of those that
    /// serve it, because the leader of all may not know it. Nobody's outbox is the leader's.
    pub(crate) fn leads(&self, outbox: &str) -> bool {
        self.leads_both(outbox, outbox)
    }

    /// The same for what needs two outboxes: the first relay that serves them both, which need not
    /// be the first of either.
    pub(crate) fn leads_both(&self, outbox: &str, other: &str) -> bool {
        let serves = |relay: &&str| self.entries(other).any(|(serving, _)| serving == *relay);
        match self.entries(outbox).map(|(relay, _)| relay).filter(serves).min() {
            Some(first) => first == self.me,
            None => self.leader,
        }
    }

    /// Whether no live relay holds anything of an older mode of the outbox.
    pub(crate) fn all_in_epoch(&self, outbox: &str, epoch: i64) -> bool {
        self.entries(outbox).all(|(_, serving)| serving.epoch >= epoch)
    }

    /// The entries of live relays for an outbox.
    pub(crate) fn entries<'a>(
        &'a self,
        outbox: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Serving)> {
        self.serving.iter().flat_map(move |(relay, serving)| {
            let of_outbox = serving.iter().filter(move |serving| serving.outbox == outbox);
            of_outbox.map(move |serving| (relay.as_str(), serving))
        })
    }
}

#[derive(Debug)]
pub(crate) struct Heart {
    held: watch::Sender<Option<Held>>,
    roll: watch::Sender<Roll>,
    lost: Notify,
    /// What this relay works on: goes out with each heartbeat.
    serving: Mutex<Vec<Serving>>,
    /// What goes out beside it: what this relay sees of each outbox.
    observed: HashMap<String, Arc<Observations>>,
}

impl Heart {
    pub(crate) fn new(
        serving: Vec<Serving>,
        observed: HashMap<String, Arc<Observations>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            held: watch::Sender::new(None),
            roll: watch::Sender::new(Roll::default()),
            lost: Notify::new(),
            serving: Mutex::new(serving),
            observed,
        })
    }

    /// The lease, once there is one that is valid. Waits through database outages.
    pub(crate) async fn held(&self) -> Held {
        let mut changes = self.held.subscribe();
        loop {
            let held = changes.borrow_and_update().clone();
            match held {
                Some(held) if held.valid_until > Instant::now() => return held,
                // Nobody sends while the database is away; the sender lives as long as `self`.
                _ => drop(changes.changed().await),
            }
        }
    }

    /// Whether that lease still is the one held, with time left.
    pub(crate) fn holds(&self, lease: &Lease) -> bool {
        self.held
            .borrow()
            .as_ref()
            .is_some_and(|held| held.lease == *lease && held.valid_until > Instant::now())
    }

    /// Whether that lease has not been replaced, valid or not.
    pub(crate) fn is_current(&self, lease: &Lease) -> bool {
        self.held.borrow().as_ref().is_some_and(|held| held.lease == *lease)
    }

    /// Waits until that lease is replaced or gone.
    pub(crate) async fn replaced(&self, lease: &Lease) {
        let mut changes = self.held.subscribe();
        // The sender lives as long as `self`.
        drop(changes.wait_for(|held| held.as_ref().is_none_or(|held| held.lease != *lease)).await);
    }

    /// Tells the others, with a heartbeat at once, that this relay works on an outbox in that mode
    /// and holds nothing of an older one; or, with `None`, that it does not work on it.
    pub(crate) fn announce(&self, outbox: &str, serving: Option<Serving>) {
        let mut all = self.lock_serving();
        all.retain(|entry| entry.outbox != outbox);
        all.extend(serving);
        drop(all);
        self.lost.notify_one();
    }

    /// Notes a destination of an outbox that went down, for the others to see.
    pub(crate) fn note_down(&self, outbox: &str, down: DownDestination) {
        self.change_down(outbox, |known| {
            known.retain(|other| other.destination != down.destination);
            if known.len() < DOWN_SHOWN_MAX {
                known.push(down);
            }
        });
    }

    /// It is back.
    pub(crate) fn note_back(&self, outbox: &str, destination: &str) {
        self.change_down(outbox, |known| known.retain(|other| other.destination != destination));
    }

    /// Notes why the work on an outbox does not get on, or that it does.
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
        // Whole entries are exchanged; a panic leaves none half written.
        self.serving.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What a heartbeat tells: what this relay works on, and how it goes.
    fn told(&self) -> Vec<Serving> {
        let mut serving = self.lock_serving().clone();
        for entry in &mut serving {
            if let Some(observed) = self.observed.get(&entry.outbox) {
                entry.traffic = observed.traffic();
            }
        }
        serving
    }

    pub(crate) fn rolls(&self) -> watch::Receiver<Roll> {
        self.roll.subscribe()
    }

    /// A call answered `LeaseLost`: find out at once.
    pub(crate) fn lost(&self) {
        self.lost.notify_one();
    }

    /// Beats until stopped, with the lease that `register` answered. Answers the one that is held
    /// then, for retiring.
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
            // A connection that went silent may stay so for a quarter of an hour; the next try
            // takes another one.
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
                // What cannot be read cannot be judged.
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
        // From before the call: a heartbeat counts from when it was sent, not when it was heard of.
        let started = Instant::now();
        let serving = self.told();
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
        let (mut roll, mut tried) = (Roll::default(), false);
        for pulse in pulses {
            // A fence may wait for a lock. Several such waits in a row would take longer than this
            // relay's own next heartbeat may; one is always tried, however slow the database is.
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
                true => roll.dead.push(pulse.relay_id),
                false => {
                    roll.live.push(pulse.relay_id.clone());
                    roll.serving.push((pulse.relay_id, pulse.serving));
                }
            }
        }
        // After the pulses: a relay that is not on the list of a mode's epoch joined later than it.
        roll.modes = store.modes().await?.into_iter().collect();
        let pauses = store.pauses().await?.into_iter();
        roll.pauses = pauses.map(|pause| (pause.kind, pause.name)).collect();
        roll.leader = roll.live.iter().min() == Some(&current.relay_id);
        roll.me = current.relay_id;
        self.roll.send_replace(roll);
        Ok(())
    }
}

/// Puts this relay on the list, under a new id.
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
        // Somebody else is at it, or a settle takes long: the next heartbeat tries again.
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

/// Remembers for how long each heartbeat has not moved.
#[derive(Debug, Default)]
struct Observer {
    seen: HashMap<String, (i64, Duration)>,
    looked_at: Option<Instant>,
    /// Time that counts between the last two looks.
    passed: Duration,
}

impl Observer {
    /// Begins a look. Of the time since the last one no more than half a lease counts: what stopped
    /// this process (a paused machine, say) may have stopped the others as well, and they get the
    /// time until the next look to show that they live. Slow looks still add up.
    fn look(&mut self, pulses: &[RelayPulse], config: &RelayConfig) {
        let passed = self.looked_at.map_or(Duration::ZERO, |at| at.elapsed());
        self.passed = passed.min(config.lease / 2);
        self.seen.retain(|id, _| pulses.iter().any(|pulse| pulse.relay_id == *id));
        self.looked_at = Some(Instant::now());
    }

    /// Whether the heartbeat has not moved for `lease`. Once per look and relay.
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

    /// Looks so often, each look `apart` from the last; answers at which one the heart was still.
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
