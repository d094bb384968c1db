//! The circuit breaker of one destination. It has no clock: times are passed in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::destination::failed_calls::FailedCalls;
use crate::destination::health::{HealthView, Turn};
use crate::destination::list::{BreakerState, KnownDestination};
use crate::destination::window::Window;
use crate::outcome::Outcome;
use crate::outcome::RETRY_AFTER_MAX;

/// Consecutive `Down` outcomes of different events that open the breaker.
const OPEN_AFTER: usize = 5;
/// The breaker also opens at this share of failed calls within [`RECENT_SECONDS`], given at least
/// [`OPEN_AT_CALLS`] calls.
const OPEN_AT_SHARE: f64 = 0.5;
const OPEN_AT_CALLS: u64 = 20;
const RECENT_SECONDS: u64 = 10;
/// Minimum spacing between two deferred events of a destination. Without it, a backlog of a million
/// events would be claimed and deferred again as fast as the store can do it, at the expense of the
/// destinations that are up.
const DEFERRAL_SPACING: Duration = Duration::from_millis(1);
/// Wait before the first probe by a caller. It doubles with each failed probe, up to half of the
/// interval between probes, so that callers, if there are any, probe before events do.
const CALLER_PROBE_AFTER: Duration = Duration::from_secs(1);

/// Counts the calls of the last seconds, in one bucket per second.
#[derive(Debug)]
struct Recent {
    since: Instant,
    /// Per bucket: the second that it counts, the number of calls, and how many of them were
    /// `Down`.
    buckets: [(u64, u32, u32); RECENT_SECONDS as usize],
}

impl Recent {
    fn new(now: Instant) -> Self {
        Self { since: now, buckets: [(0, 0, 0); RECENT_SECONDS as usize] }
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs()
    }

    fn count(&mut self, calls: u32, down: u32, now: Instant) {
        let second = self.second(now);
        let bucket = &mut self.buckets[(second % RECENT_SECONDS) as usize];
        if bucket.0 != second {
            *bucket = (second, 0, 0);
        }
        bucket.1 = bucket.1.saturating_add(calls);
        bucket.2 = bucket.2.saturating_add(down);
    }

    /// Returns whether the share of failed calls opens the breaker.
    fn mostly_down(&self, now: Instant) -> bool {
        let oldest = (self.second(now) + 1).saturating_sub(RECENT_SECONDS);
        let recent = self.buckets.iter().filter(|(second, ..)| *second >= oldest);
        let (calls, downs) = recent
            .fold((0_u64, 0_u64), |sum, (_, c, d)| (sum.0 + u64::from(*c), sum.1 + u64::from(*d)));
        calls >= OPEN_AT_CALLS && downs as f64 >= calls as f64 * OPEN_AT_SHARE
    }
}

/// The state of an open breaker.
#[derive(Debug)]
struct Open {
    /// Opened by the share of failed calls. In that case successes continue between the failures,
    /// and only a successful probe closes the breaker.
    by_share: bool,
    next_probe_at: Instant,
    /// The same for callers whose call has not failed before.
    next_caller_probe_at: Instant,
    caller_wait: Duration,
    probe: Option<i64>,
    last_probe: Option<i64>,
    /// Whether events other than the last probe are known to be waiting.
    others_wait: bool,
    last_deferred_until: Instant,
}

/// The origin of a call: an event, or a caller of the gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    /// Row id of the event. Callers have negative numbers.
    pub(crate) id: i64,
    /// Identifies the call: a caller and the event that repeats its call have the same number.
    pub(crate) call: i64,
    /// When the event's previous attempt ended without delivery, on the database's clock.
    pub(crate) last_failed_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    probe_every: Duration,
    adaptive: bool,
    open: Option<Open>,
    down_streak: u32,
    /// The different calls of the streak, at most as many as it takes to open the breaker.
    down_ids: Vec<i64>,
    down_since: Option<Instant>,
    /// When the last delivered event was sent, on the database's clock. The outcome may arrive much
    /// later, because it waits for the rest of its batch, and says nothing about the time in
    /// between.
    last_success_at: Option<DateTime<Utc>>,
    /// The same moment on the database's clock and on the local one, taken from the last outcome.
    clock: Option<(DateTime<Utc>, Instant)>,
    recent: Recent,
    window: Window,
    in_flight: u32,
    /// Set where callers of a gateway share the destination with the relay.
    failed_calls: Option<FailedCalls>,
    pub(crate) heard_at: Instant,
}

impl Breaker {
    /// Creates a closed breaker. `adaptive`: an overload shrinks the window.
    pub(crate) fn new(probe_every: Duration, adaptive: bool, now: Instant) -> Self {
        Self {
            probe_every,
            adaptive,
            open: None,
            down_streak: 0,
            down_ids: Vec::new(),
            down_since: None,
            last_success_at: None,
            clock: None,
            recent: Recent::new(now),
            window: Window::unlimited(),
            in_flight: 0,
            failed_calls: None,
            heard_at: now,
        }
    }

    /// Tracks failed calls, for a destination that callers share with the relay.
    #[must_use]
    pub(crate) fn with_callers(self) -> Self {
        Self { failed_calls: Some(FailedCalls::default()), ..self }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Describes the destination for operators.
    pub(crate) fn known(&self, destination: &str) -> KnownDestination {
        KnownDestination {
            destination: destination.to_owned(),
            state: match &self.open {
                None => BreakerState::Closed,
                Some(open) if open.probe.is_some() => BreakerState::Probing,
                Some(_) => BreakerState::Open,
            },
            window: self.window(),
            last_success_at: self.last_success_at,
        }
    }

    pub(crate) fn view(&self, now: Instant) -> HealthView {
        HealthView {
            open: self.is_open(),
            down_streak: self.down_streak,
            down_for: self.down_since.map(|since| now.saturating_duration_since(since)),
            last_success_at: self.last_success_at,
            probe_in: self.probe_in(now),
        }
    }

    /// Records an outcome. `sent_at` is when the event was sent; `answered_at` is `now` on the
    /// database's clock, which a caller that is not an event does not know.
    pub(crate) fn record(
        &mut self,
        asker: Asker,
        outcome: &Outcome,
        answered_at: Option<DateTime<Utc>>,
        sent_at: Instant,
        now: Instant,
    ) -> Option<Turn> {
        self.heard_at = now;
        let answered_at = answered_at.or_else(|| self.database_time(now));
        self.clock = answered_at.map(|at| (at, now));
        let probed = self.end_probe(asker.id);
        match outcome {
            Outcome::Down { retry_after, .. } => {
                self.postpone_caller_probe(asker, probed, *retry_after, now);
                self.went_down(asker, *retry_after, sent_at, now)
            }
            Outcome::Delivered | Outcome::Rejected { .. } | Outcome::Retry { .. } => {
                if *outcome == Outcome::Delivered {
                    let under_way = now.saturating_duration_since(sent_at);
                    let sent_at = answered_at.and_then(|at| earlier(at, under_way));
                    self.last_success_at = self.last_success_at.max(sent_at);
                }
                if let Some(calls) = &mut self.failed_calls {
                    calls.answered(asker.call, now);
                }
                self.answered(probed, now)
            }
            Outcome::Untried
            | Outcome::AlreadyDone
            | Outcome::NoRoute { .. }
            | Outcome::CannotEncode { .. } => None,
        }
    }

    /// Returns whether it is closed, with no failures pending and no window that could grow.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.is_open() && self.down_since.is_none() && self.window().is_none()
    }

    /// Records many delivered events of a healthy destination, with the same effect on the breaker
    /// as recording each of them.
    pub(crate) fn took(
        &mut self,
        events: usize,
        sent_at: DateTime<Utc>,
        answered_at: Option<DateTime<Utc>>,
        now: Instant,
    ) {
        self.heard_at = now;
        self.clock = answered_at.map(|at| (at, now)).or(self.clock);
        self.last_success_at = self.last_success_at.max(Some(sent_at));
        self.recent.count(u32::try_from(events).unwrap_or(u32::MAX), 0, now);
    }

    fn database_time(&self, now: Instant) -> Option<DateTime<Utc>> {
        let (at, heard_at) = self.clock?;
        let since = chrono::Duration::from_std(now.saturating_duration_since(heard_at)).ok()?;
        at.checked_add_signed(since)
    }

    fn went_down(
        &mut self,
        asker: Asker,
        retry_after: Option<Duration>,
        sent_at: Instant,
        now: Instant,
    ) -> Option<Turn> {
        self.down_since.get_or_insert(now);
        // A `Retry-After` applies to all calls, so it does not mark this call as broken.
        let calls = self.failed_calls.as_mut().filter(|_| retry_after.is_none());
        let is_broken = calls.map(|calls| calls.failed(asker.call, now));
        // The destination accepted other events since this one last failed. The event is the likely
        // cause, so it is not a reason to slow down the others.
        let poison = matches!((asker.last_failed_at, self.last_success_at),
            (Some(failed), Some(success)) if success > failed);
        let is_broken = is_broken.is_some_and(|is_broken| is_broken || poison);
        if self.adaptive && !poison && !is_broken {
            self.window.shrink(self.in_flight, sent_at, now);
        }
        // A few events that always time out are not an outage of their destination.
        let new = !is_broken && !self.down_ids.contains(&asker.call);
        if self.is_open() || new {
            self.down_streak = self.down_streak.saturating_add(1);
        }
        let asked = asked_wait(retry_after);
        let next_probe_at = now + self.probe_every.max(asked);
        if let Some(open) = &mut self.open {
            open.next_probe_at = open.next_probe_at.max(next_probe_at);
            open.others_wait |= open.last_probe != Some(asker.id);
            return None;
        }
        // Calls that fail whenever they are made are not an outage either, however many there are.
        if is_broken {
            return None;
        }
        self.recent.count(1, 1, now);
        if new {
            self.down_ids.push(asker.call);
        }
        let in_a_row = self.down_ids.len() >= OPEN_AFTER;
        if !in_a_row && !self.recent.mostly_down(now) {
            return None;
        }
        let caller_wait = CALLER_PROBE_AFTER.min(self.probe_every);
        self.open = Some(Open {
            by_share: !in_a_row,
            next_probe_at,
            next_caller_probe_at: now + caller_wait.max(asked),
            caller_wait,
            probe: None,
            last_probe: None,
            others_wait: true,
            last_deferred_until: now,
        });
        Some(Turn::WentDown)
    }

    /// Postpones the next probe by a caller after a failed call, if the breaker is open. The failed
    /// call may have been such a probe.
    fn postpone_caller_probe(
        &mut self,
        asker: Asker,
        probed: bool,
        retry_after: Option<Duration>,
        now: Instant,
    ) {
        let Some(open) = &mut self.open else { return };
        let mut wait = asked_wait(retry_after);
        if probed && asker.id < 0 {
            let longer = (open.caller_wait * 2).min(self.probe_every / 2);
            open.caller_wait = open.caller_wait.max(longer);
            wait = wait.max(open.caller_wait);
        }
        open.next_caller_probe_at = open.next_caller_probe_at.max(now + wait);
    }

    fn answered(&mut self, probed: bool, now: Instant) -> Option<Turn> {
        if self.open.as_ref().is_some_and(|open| open.by_share && !probed) {
            return None;
        }
        let down_for = self.down_since.map(|since| now.saturating_duration_since(since));
        self.down_streak = 0;
        self.down_ids.clear();
        self.down_since = None;
        if self.open.take().is_some() {
            self.recent = Recent::new(now);
            self.window.restart();
            return Some(Turn::CameBack { after: down_for.unwrap_or_default() });
        }
        self.recent.count(1, 0, now);
        self.window.grow(self.in_flight);
        None
    }

    /// Chooses the next probe among these events while the breaker is open. Only one probe is in
    /// flight at a time, and the last one is not repeated while other events wait.
    pub(crate) fn appoint(&mut self, ids: &[i64], now: Instant) -> Option<i64> {
        let open = self.open.as_mut()?;
        if ids.is_empty() || open.probe.is_some() || now < open.next_probe_at {
            return None;
        }
        // Takes ids in turn: if the lowest id always came first, two events that never succeed
        // would starve the rest.
        let next = ids.iter().filter(|id| open.last_probe.is_none_or(|last| **id > last)).min();
        let other = next.or(ids.iter().filter(|id| Some(**id) != open.last_probe).min());
        if other.is_none() && open.others_wait {
            // The last probe is deferred behind the others. If it comes alone again, they were
            // delivered by another relay.
            open.others_wait = false;
            return None;
        }
        let chosen = *other.or(ids.first())?;
        open.others_wait |= open.last_probe.is_some_and(|last| last != chosen);
        open.probe = Some(chosen);
        open.last_probe = Some(chosen);
        Some(chosen)
    }

    /// Makes a caller's call the probe if one is due while the breaker is open. Callers go before
    /// events, which may be exactly the calls that fail. A call that has failed before waits as
    /// long as events do.
    #[cfg(feature = "gateway")]
    pub(crate) fn appoint_caller(&mut self, call: i64, now: Instant) -> bool {
        let failed = self.failed_calls.as_ref().is_some_and(|calls| calls.contains(call));
        let Some(open) = &mut self.open else { return false };
        let due_at = if failed { open.next_probe_at } else { open.next_caller_probe_at };
        let is_due = open.probe.is_none() && now >= due_at;
        if is_due {
            open.probe = Some(call);
        }
        is_due
    }

    /// Ends the probe, whether it was sent or not. Returns whether this event was the probe.
    pub(crate) fn end_probe(&mut self, id: i64) -> bool {
        match &mut self.open {
            Some(open) if open.probe == Some(id) => {
                open.probe = None;
                true
            }
            _ => false,
        }
    }

    /// Returns the time until the next probe; while one is in flight, the time until there could be
    /// another.
    fn probe_in(&self, now: Instant) -> Duration {
        match &self.open {
            None => Duration::ZERO,
            Some(Open { probe: Some(_), .. }) => self.probe_every,
            Some(open) => open.next_probe_at.saturating_duration_since(now),
        }
    }

    /// Returns how long an event waits and whether a probe is due, if the breaker is open.
    pub(crate) fn wait(&mut self, id: i64, now: Instant) -> Option<(Duration, bool)> {
        let delay = self.wait_for_probe(now);
        let open = self.open.as_mut()?;
        open.others_wait |= open.last_probe != Some(id);
        Some((delay, open.probe.is_none() && open.next_probe_at <= now))
    }

    /// Returns the wait of an event that is not the probe: if a probe is due, another event is sent
    /// as the probe.
    fn wait_for_probe(&self, now: Instant) -> Duration {
        match self.probe_in(now) {
            Duration::ZERO => self.probe_every,
            wait => wait,
        }
    }

    /// Returns how long to defer an event that is not sent because the breaker is open.
    pub(crate) fn defer(&mut self, id: i64, now: Instant, max: Option<Duration>) -> Duration {
        let wait = self.wait_for_probe(now);
        let Some(open) = &mut self.open else { return Duration::ZERO };
        open.others_wait |= open.last_probe != Some(id);
        let spaced = (now + wait).max(open.last_deferred_until + DEFERRAL_SPACING);
        // The maximum applies even if the destination asked for a longer wait: it may be back
        // sooner.
        let until = max.map_or(spaced, |max| spaced.min(now + max));
        open.last_deferred_until = until;
        until.saturating_duration_since(now)
    }

    /// Returns the number of free permits; `None` means no limit. An open breaker has none.
    pub(crate) fn room(&self) -> Option<u32> {
        match self.is_open() {
            true => Some(0),
            false => self.window.size().map(|size| size.saturating_sub(self.in_flight)),
        }
    }

    /// Returns whether this event is the probe in flight.
    pub(crate) fn is_probe(&self, id: i64) -> bool {
        self.open.as_ref().is_some_and(|open| open.probe == Some(id))
    }

    /// Returns how many events may be in flight at the same time; `None` means no limit.
    pub(crate) fn window(&self) -> Option<u32> {
        self.window.size()
    }

    pub(crate) fn enter(&mut self, events: u32) {
        self.in_flight = self.in_flight.saturating_add(events);
    }

    pub(crate) fn leave(&mut self, events: u32) {
        self.in_flight = self.in_flight.saturating_sub(events);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}

fn earlier(at: DateTime<Utc>, by: Duration) -> Option<DateTime<Utc>> {
    at.checked_sub_signed(chrono::Duration::from_std(by).ok()?)
}

/// Returns the wait that a destination asked for, capped at the maximum that is honoured.
fn asked_wait(retry_after: Option<Duration>) -> Duration {
    retry_after.map_or(Duration::ZERO, |wait| wait.min(RETRY_AFTER_MAX))
}
