//! The health of a sink's destinations, as this relay sees it: one breaker per destination.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider_store::Event;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::destination::breaker::{Asker, Breaker};
use crate::destination::list::KnownDestination;
#[cfg(feature = "gateway")]
use crate::destination::live_calls::LiveCall;
use crate::destination::live_calls::LiveCalls;
use crate::outcome::Outcome;
use crate::preset::Preset;

/// Destinations remembered. One more evicts the one whose last outcome is the oldest.
const DESTINATIONS_MAX: usize = 1_000;

/// The policy's view of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthView {
    /// The breaker is open: only probes are sent.
    pub open: bool,
    /// `Down` outcomes of different events since the last other outcome.
    pub down_streak: u32,
    /// For how long the only outcome has been `Down`.
    pub down_for: Option<Duration>,
    /// When the last delivered event was sent, on the database's clock.
    pub last_success_at: Option<DateTime<Utc>>,
    /// Time until the next probe, while the breaker is open.
    pub probe_in: Duration,
}

/// Hash of a destination's name. On a collision, two destinations are probed in turn, which at
/// worst delays a probe.
pub(crate) type DestinationHash = u32;

/// How an event waits whose destination is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) destination: DestinationHash,
    /// Time until the next probe. If a probe is already due, another event is sent as that probe.
    pub(crate) delay: Duration,
    /// Whether a probe is due; this event may become the probe.
    pub(crate) probe_due: bool,
    /// Time until the event expires, if it does; zero if it has expired.
    pub(crate) expires_in: Option<Duration>,
}

/// A change of a destination's state that operators want to know about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The destination went down.
    WentDown,
    /// The destination accepts events again.
    CameBack {
        /// How long it was down.
        after: Duration,
    },
}

/// Whether an event may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Go,
    /// Not until an event in flight is done.
    Full,
    /// Not before the next probe.
    Open,
}

/// The destinations of one sink.
#[derive(Debug)]
pub struct Health {
    probe_every: Duration,
    /// Whether permits are counted for each event, so that an overload can shrink the window.
    adaptive: bool,
    /// The destination of all events, if there is only one.
    only: Option<String>,
    /// The server through which all destinations are reached.
    server: Option<String>,
    /// With plain counting of attempts, outages are detected and reported, but no events are held
    /// back.
    plain_counting: bool,
    /// Maps an event to the call that it repeats, where callers share the destinations.
    call_of: Option<fn(&Event) -> Option<i64>>,
    breakers: Mutex<HashMap<String, Breaker>>,
    /// Number of open breakers, and of breakers with a window. If both are zero, no breaker has to
    /// be checked.
    open: AtomicUsize,
    limited: AtomicUsize,
    /// Notifies waiters that a permit may be free or a breaker has changed.
    moved: Notify,
    /// Outcomes of calls that the relay did not make.
    pub(crate) live_calls: LiveCalls,
}

impl Health {
    /// Creates an empty state. A destination that is down is probed once per `probe_every`.
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

    /// Creates the state for destinations that callers of a gateway share with the relay, one
    /// request per call; `only` is the destination, if there is just one. `call_of` maps an event
    /// to the number of the call that it repeats.
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

    /// Creates the state for the destinations of a sink.
    pub(crate) fn with(
        only: Option<&str>,
        server: Option<&str>,
        adaptive: bool,
        preset: &Preset,
    ) -> Self {
        Self {
            adaptive,
            only: only.map(str::to_owned),
            server: server.map(str::to_owned),
            plain_counting: preset.outage_spends_attempts,
            ..Self::new(preset.idle_poll)
        }
    }

    /// Records an outcome that arrived `took` after the claim, for an event that was sent at
    /// `sent_at`. Returns whether the destination went down or came back.
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

    /// Records the outcome of a call that was not made for an event. The relay of the same process,
    /// if there is one, reports it to operators.
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
        // An outcome that says nothing about a destination does not add it.
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

    /// Records a batch that a healthy destination delivered as a whole, with the time of the claim
    /// as the time of sending. Returns `false` if the destination is not known to be healthy; each
    /// event must then be recorded separately.
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

    /// Returns the breaker of a destination, and adds it if necessary; `None` if there are too
    /// many.
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

    /// Returns what is known about a destination.
    pub fn view(&self, destination: &str, now: Instant) -> HealthView {
        let view = self.lock().get(destination).map(|breaker| breaker.view(now));
        view.unwrap_or_default()
    }

    /// Returns all known destinations, unordered.
    pub(crate) fn destinations(&self) -> Vec<KnownDestination> {
        let known = |(name, breaker): (&String, &Breaker)| breaker.known(name);
        self.lock().iter().map(known).collect()
    }

    /// Returns how long a claim would find nothing to send, if all destinations of the sink are
    /// down.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        let all = [&self.server, &self.only].into_iter().flatten().filter(|_| self.holds_back());
        let mut down = all.map(|name| self.view(name, now)).filter(|view| view.open);
        down.next().map(|view| view.probe_in)
    }

    /// Returns the server through which all destinations are reached, if it is down.
    pub(crate) fn down_server(&self) -> Option<&str> {
        let server = self.server.as_deref().filter(|_| self.holds_back())?;
        self.lock().get(server).is_some_and(Breaker::is_open).then_some(server)
    }

    /// Returns the server through which all destinations are reached, if it has failed and is not
    /// known to be healthy again.
    pub(crate) fn ailing_server(&self) -> Option<&str> {
        let server = self.server.as_deref()?;
        let ailing = self.lock().get(server).is_some_and(|breaker| !breaker.is_healthy());
        ailing.then_some(server)
    }

    /// Returns the number of destinations that are down.
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns whether events of any destination have to wait.
    pub(crate) fn holds_back(&self) -> bool {
        self.open_count() > 0 && !self.plain_counting
    }

    /// Returns whether any destination gets less than the sink would send.
    pub(crate) fn any_limited(&self) -> bool {
        self.holds_back() || self.has_window()
    }

    /// Returns whether any destination has a limit of events in flight.
    pub(crate) fn has_window(&self) -> bool {
        self.limited.load(Ordering::Relaxed) > 0
    }

    /// Returns the smallest window of all destinations; `None` means no limit.
    pub(crate) fn window_min(&self) -> Option<u32> {
        self.lock().values().filter_map(Breaker::window).min()
    }

    /// Chooses which of these events is sent as a probe to a destination that is down.
    pub fn appoint(&self, destination: &str, ids: &[i64], now: Instant) -> Option<i64> {
        self.lock().get_mut(destination)?.appoint(ids, now)
    }

    /// Returns whether a caller's call is sent as a probe to a destination that is down.
    #[cfg(feature = "gateway")]
    pub(crate) fn appoint_caller(&self, destination: &str, call: i64, now: Instant) -> bool {
        let mut breakers = self.lock();
        breakers.get_mut(destination).is_some_and(|breaker| breaker.appoint_caller(call, now))
    }

    /// Ends a probe, whether it was sent or not.
    pub(crate) fn end_probe(&self, destination: &str, id: i64) {
        if let Some(breaker) = self.lock().get_mut(destination) {
            breaker.end_probe(id);
        }
    }

    /// Returns how long to defer an event of a destination that is down: until the next probe, or
    /// longer if very many events wait.
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

    /// Returns how long an event waits and whether a probe is due, if its destination is down.
    pub(crate) fn wait(
        &self,
        destination: &str,
        id: i64,
        now: Instant,
    ) -> Option<(Duration, bool)> {
        self.lock().get_mut(destination)?.wait(id, now)
    }

    /// Acquires a permit for one event, if one is free.
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

    /// Releases the permits of events that were sent.
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

    /// Resolves when a permit may have been released. Subscribe before checking.
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
        // A panic while the lock was held leaves at most one counter out of date.
        self.breakers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Returns the time of the outcome on the database's clock, as far as this process can know it: the
/// time of the claim plus the time that has passed here since.
fn answered_at(claimed_at: DateTime<Utc>, took: Duration) -> Option<DateTime<Utc>> {
    claimed_at.checked_add_signed(chrono::Duration::from_std(took).unwrap_or_default())
}

/// Evicts the destination whose last outcome is the oldest, if there are too many. Returns `None`
/// if all of them are down or have events in flight: evicting one that is down would strand the
/// events that wait for it, and permits in flight are counted.
fn make_room(breakers: &mut HashMap<String, Breaker>) -> Option<()> {
    if breakers.len() < DESTINATIONS_MAX {
        return Some(());
    }
    let idle = breakers.iter().filter(|(_, breaker)| breaker.is_idle() && !breaker.is_open());
    let name = idle.min_by_key(|(_, breaker)| breaker.heard_at)?.0.clone();
    breakers.remove(&name);
    Some(())
}
