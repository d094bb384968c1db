//! How the destinations of a sink are doing, as this relay sees it: a breaker for each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider::Event;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::breaker::{Asker, Breaker};
use crate::destinations::KnownDestination;
#[cfg(feature = "gateway")]
use crate::live_calls::LiveCall;
use crate::live_calls::LiveCalls;
use crate::preset::Preset;
use crate::sink::{Outcome, Sink};

/// Destinations remembered. One more forgets the one that was heard of longest ago.
const DESTINATIONS_MAX: usize = 1_000;

/// What the policy may know about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthView {
    /// It counts as down: nothing but probes is sent.
    pub open: bool,
    /// `Down` answers since the last other one, of different events.
    pub down_streak: u32,
    /// Since when it has answered nothing but `Down`.
    pub down_for: Option<Duration>,
    /// When the last event was sent that it took, on the database's clock.
    pub last_success_at: Option<DateTime<Utc>>,
    /// While it is open: time until the next probe.
    pub probe_in: Duration,
}

/// Stands for a destination. Two that share one are probed in turn, which delays a probe at worst.
pub(crate) type DestinationHash = u32;

/// How an event of a destination that is down waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) destination: DestinationHash,
    /// Until the next probe. One that is due already is another event's.
    pub(crate) delay: Duration,
    /// A probe is due, and it may be the one.
    pub(crate) probe_due: bool,
    /// Time until the event expires, if it does; zero if it has.
    pub(crate) expires_in: Option<Duration>,
}

/// A change that people want to know about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It counts as down from now on.
    WentDown,
    /// It takes events again.
    CameBack {
        /// How long it was down.
        after: Duration,
    },
}

/// Whether an event may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Go,
    /// When one that is under way is back.
    Full,
    /// Not before the next probe.
    Open,
}

/// The destinations of one sink.
#[derive(Debug)]
pub struct Health {
    probe_every: Duration,
    /// Whether places are counted before each event, so that an overload can take some away.
    adaptive: bool,
    /// Where all events go to, if that is one destination.
    only: Option<String>,
    /// What all destinations are reached through.
    server: Option<String>,
    /// With plain counting of attempts, an outage is seen and told, and holds nothing back.
    plain_counting: bool,
    /// Where callers share the destinations: which call an event repeats.
    call_of: Option<fn(&Event) -> Option<i64>>,
    breakers: Mutex<HashMap<String, Breaker>>,
    /// Breakers that are open, and those with a window: without any, nothing needs to be asked.
    open: AtomicUsize,
    limited: AtomicUsize,
    /// A place became free, or a breaker changed.
    moved: Notify,
    /// What others than the relay heard of the destinations.
    pub(crate) live_calls: LiveCalls,
}

impl Health {
    /// Nothing is known yet. A destination that is down is probed so often.
    pub fn new(probe_every: Duration) -> Self {
        Self {
            probe_every,
            adaptive: false,
            only: None,
            server: None,
            plain_counting: false,
            call_of: None,
            breakers: Mutex::default(),
            open: AtomicUsize::new(0),
            limited: AtomicUsize::new(0),
            moved: Notify::new(),
            live_calls: LiveCalls::default(),
        }
    }

    /// For destinations that callers share with the relay, each call by itself; `only`, where that is
    /// one. `call_of` tells which call an event repeats, by the number that its callers have.
    #[cfg(feature = "gateway")]
    pub(crate) fn of_calls(
        only: Option<&str>,
        preset: &Preset,
        call_of: fn(&Event) -> Option<i64>,
    ) -> Self {
        Self {
            adaptive: true,
            only: only.map(str::to_owned),
            plain_counting: preset.outage_spends_attempts,
            call_of: Some(call_of),
            ..Self::new(preset.idle_poll)
        }
    }

    /// For the destinations of this sink.
    pub fn of(sink: &dyn Sink, preset: &Preset) -> Self {
        Self {
            adaptive: sink.enters_each(),
            only: sink.only_destination().map(str::to_owned),
            server: sink.server().map(str::to_owned),
            plain_counting: preset.outage_spends_attempts,
            ..Self::new(preset.idle_poll)
        }
    }

    /// Takes an answer into account that took `took` from the claim on, of an event that was sent at
    /// `sent_at`. Answers whether the destination went down or came back.
    pub fn record(
        &self,
        destination: &str,
        event: &Event,
        outcome: &Outcome,
        took: Duration,
        sent_at: Instant,
        now: Instant,
    ) -> Option<Turn> {
        let call = self.call_of.and_then(|call_of| call_of(event)).unwrap_or(event.id);
        let asker = Asker { id: event.id, call, last_failed_at: event.last_failed_at };
        self.record_for(
            destination,
            asker,
            outcome,
            answered_at(event.claimed_at, took),
            (sent_at, now),
        )
    }

    /// Takes the answer to a call into account that no event of the relay made. People are told of it
    /// by the relay of the same process, if there is one.
    #[cfg(feature = "gateway")]
    pub(crate) fn record_call(
        &self,
        destination: &str,
        id: i64,
        outcome: &Outcome,
        sent_at: Instant,
        now: Instant,
    ) {
        let asker = Asker { id, call: id, last_failed_at: None };
        let turn = self.record_for(destination, asker, outcome, None, (sent_at, now));
        let (destination, outcome) = (destination.to_owned(), outcome.clone());
        self.live_calls.add(LiveCall { destination, outcome, turn });
    }

    fn record_for(
        &self,
        destination: &str,
        asker: Asker,
        outcome: &Outcome,
        answered_at: Option<DateTime<Utc>>,
        (sent_at, now): (Instant, Instant),
    ) -> Option<Turn> {
        let mut breakers = self.lock();
        // What says nothing about a destination makes none known.
        if outcome.is_silent() && !breakers.contains_key(destination) {
            return None;
        }
        let breaker = self.breaker(&mut breakers, destination, now)?;
        let was_limited = breaker.window().is_some();
        let turn = breaker.record(asker, outcome, answered_at, sent_at, now);
        let is_limited = breaker.window().is_some();
        if turn.is_some() || was_limited != is_limited {
            self.count(&breakers);
        }
        drop(breakers);
        if turn.is_some() || is_limited {
            self.moved.notify_waiters();
        }
        turn
    }

    /// Takes a batch into account that a healthy destination took as a whole. `false`: it is not
    /// known to be healthy, and each event is to be recorded by itself.
    pub(crate) fn all_delivered(
        &self,
        destination: &str,
        events: &[&Event],
        took: Duration,
        now: Instant,
    ) -> bool {
        let Some(last) = events.iter().map(|event| event.claimed_at).max() else { return true };
        let mut breakers = self.lock();
        let Some(breaker) = breakers.get_mut(destination).filter(|known| known.is_healthy()) else {
            return false;
        };
        breaker.took(events.len(), last, answered_at(last, took), now);
        true
    }

    /// The breaker of a destination; `None` where there are too many to add another.
    fn breaker<'a>(
        &self,
        breakers: &'a mut HashMap<String, Breaker>,
        destination: &str,
        now: Instant,
    ) -> Option<&'a mut Breaker> {
        if !breakers.contains_key(destination) {
            make_room(breakers)?;
            let new = Breaker::new(self.probe_every, self.adaptive, now);
            let new = if self.call_of.is_some() { new.with_callers() } else { new };
            breakers.insert(destination.to_owned(), new);
        }
        breakers.get_mut(destination)
    }

    /// What is known about a destination.
    pub fn view(&self, destination: &str, now: Instant) -> HealthView {
        let view = self.lock().get(destination).map(|breaker| breaker.view(now));
        view.unwrap_or_default()
    }

    /// All that are known, in no order.
    pub(crate) fn destinations(&self) -> Vec<KnownDestination> {
        let known = |(name, breaker): (&String, &Breaker)| breaker.known(name);
        self.lock().iter().map(known).collect()
    }

    /// While everything that the sink has is down: how long a claim would find nothing to send.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        let all = [&self.server, &self.only].into_iter().flatten().filter(|_| self.holds_back());
        let mut down = all.map(|name| self.view(name, now)).filter(|view| view.open);
        down.next().map(|view| view.probe_in)
    }

    /// What all destinations are reached through, while it is down.
    pub(crate) fn down_server(&self) -> Option<&str> {
        let server = self.server.as_deref().filter(|_| self.holds_back())?;
        self.lock().get(server).is_some_and(Breaker::is_open).then_some(server)
    }

    /// What all destinations are reached through, if it was down and is not known to be well again.
    pub(crate) fn ailing_server(&self) -> Option<&str> {
        let server = self.server.as_deref()?;
        let ailing = self.lock().get(server).is_some_and(|breaker| !breaker.is_healthy());
        ailing.then_some(server)
    }

    /// How many destinations are down.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether events of some destination wait.
    pub(crate) fn holds_back(&self) -> bool {
        self.open_count() > 0 && !self.plain_counting
    }

    /// Whether any destination gets less than the sink would send it.
    pub(crate) fn any_limited(&self) -> bool {
        self.holds_back() || self.has_window()
    }

    /// Whether any destination takes no more than so many events at the same time.
    pub(crate) fn has_window(&self) -> bool {
        self.limited.load(Ordering::Relaxed) > 0
    }

    /// The smallest window of a destination; `None` is no limit.
    pub(crate) fn window_min(&self) -> Option<u32> {
        self.lock().values().filter_map(Breaker::window).min()
    }

    /// Which of these events is sent to a destination that is down, as a probe.
    pub fn appoint(&self, destination: &str, ids: &[i64], now: Instant) -> Option<i64> {
        self.lock().get_mut(destination)?.appoint(ids, now)
    }

    /// Whether the call of a caller is sent to a destination that is down, as a probe.
    #[cfg(feature = "gateway")]
    pub(crate) fn appoint_caller(&self, destination: &str, call: i64, now: Instant) -> bool {
        let mut breakers = self.lock();
        breakers.get_mut(destination).is_some_and(|breaker| breaker.appoint_caller(call, now))
    }

    /// The probe is back, or was never sent.
    pub(crate) fn end_probe(&self, destination: &str, id: i64) {
        if let Some(breaker) = self.lock().get_mut(destination) {
            breaker.end_probe(id);
        }
    }

    /// How long an event of a destination that is down waits: to the next probe, or longer where
    /// very many wait.
    pub fn defer(
        &self,
        destination: &str,
        id: i64,
        now: Instant,
        max: Option<Duration>,
    ) -> Duration {
        let mut breakers = self.lock();
        breakers.get_mut(destination).map_or(Duration::ZERO, |breaker| breaker.defer(id, now, max))
    }

    /// While a destination is down: how long an event waits, and whether a probe is due.
    pub(crate) fn wait(
        &self,
        destination: &str,
        id: i64,
        now: Instant,
    ) -> Option<(Duration, bool)> {
        self.lock().get_mut(destination)?.wait(id, now)
    }

    /// Takes a place for one event, where there is one.
    pub(crate) fn enter(&self, destination: &str, id: i64, now: Instant) -> Entry {
        let mut breakers = self.lock();
        let breaker = self.breaker(&mut breakers, destination, now);
        let Some(breaker) = breaker else { return Entry::Go };
        let entry = match breaker.room() {
            None => Entry::Go,
            Some(_) if breaker.is_probe(id) => Entry::Go,
            Some(_) if breaker.is_open() && self.plain_counting => Entry::Go,
            Some(_) if breaker.is_open() => Entry::Open,
            Some(0) => Entry::Full,
            Some(_) => Entry::Go,
        };
        if entry == Entry::Go {
            breaker.enter(1);
        }
        entry
    }

    /// Gives back the places of events that were sent.
    pub(crate) fn leave(&self, destination: &str, events: u32) {
        let mut breakers = self.lock();
        let Some(breaker) = breakers.get_mut(destination) else { return };
        breaker.leave(events);
        let limited = breaker.window().is_some();
        drop(breakers);
        if limited {
            self.moved.notify_waiters();
        }
    }

    /// Resolves when a place may have become free; ask for it before looking.
    pub(crate) fn moved(&self) -> tokio::sync::futures::Notified<'_> {
        self.moved.notified()
    }

    fn count(&self, breakers: &HashMap<String, Breaker>) {
        let open = breakers.values().filter(|breaker| breaker.is_open()).count();
        let limited = breakers.values().filter(|breaker| breaker.window().is_some()).count();
        self.open.store(open, Ordering::Relaxed);
        self.limited.store(limited, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Breaker>> {
        // A panic while it was held left at worst one counter behind.
        self.breakers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The database's clock, as far as this process can know it: the claim's answer plus the time that
/// has passed here since.
fn answered_at(claimed_at: DateTime<Utc>, took: Duration) -> Option<DateTime<Utc>> {
    claimed_at.checked_add_signed(chrono::Duration::from_std(took).unwrap_or_default())
}

/// Forgets the destination that was heard of longest ago, where there are too many. `None` if all of
/// them are down or have events under way: those that wait would never be told that it is back, and
/// places are counted.
fn make_room(breakers: &mut HashMap<String, Breaker>) -> Option<()> {
    if breakers.len() < DESTINATIONS_MAX {
        return Some(());
    }
    let idle = breakers.iter().filter(|(_, breaker)| breaker.is_idle() && !breaker.is_open());
    let name = idle.min_by_key(|(_, breaker)| breaker.heard_at)?.0.clone();
    breakers.remove(&name);
    Some(())
}
