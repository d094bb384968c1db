//! The breaker of one destination. It has no clock: times are handed in.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use crate::destinations::{BreakerState, KnownDestination};
use crate::failed_calls::FailedCalls;
use crate::health::{HealthView, Turn};
use crate::policy::RETRY_AFTER_MAX;
use crate::sink::Outcome;
use crate::window::Window;

/// Consecutive `Down` answers of different events after which a destination counts as down.
const OPEN_AFTER: usize = 5;
/// Or this share of the calls of [`RECENT_SECONDS`], of at least so many.
const OPEN_AT_SHARE: f64 = 0.5;
const OPEN_AT_CALLS: u64 = 20;
const RECENT_SECONDS: u64 = 10;
/// Between two deferred events of a destination: a million of them are not claimed and deferred
/// again as fast as the store can do it, at the expense of the destinations that are up.
const DEFERRAL_SPACING: Duration = Duration::from_millis(1);
/// Wait before the first probe by a caller. It doubles with each that fails, up to half of the time
/// between two probes, so that a caller who asks at all goes before the events.
const CALLER_PROBE_AFTER: Duration = Duration::from_secs(1);

/// Calls of the last seconds, in a bucket per second.
#[derive(Debug)]
struct Recent {
    since: Instant,
    /// The second that it counts, calls, and the `Down` among them.
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

    /// Whether so many calls failed that the destination counts as down.
    fn mostly_down(&self, now: Instant) -> bool {
        let oldest = (self.second(now) + 1).saturating_sub(RECENT_SECONDS);
        let recent = self.buckets.iter().filter(|(second, ..)| *second >= oldest);
        let (calls, downs) = recent
            .fold((0_u64, 0_u64), |sum, (_, c, d)| (sum.0 + u64::from(*c), sum.1 + u64::from(*d)));
        calls >= OPEN_AT_CALLS && downs as f64 >= calls as f64 * OPEN_AT_SHARE
    }
}

/// What an open breaker remembers.
#[derive(Debug)]
struct Open {
    /// By the share of failed calls: then successes go on beside the failures, and only the answer
    /// to a probe closes it.
    by_share: bool,
    next_probe_at: Instant,
    /// For callers whose call has not failed yet.
    next_caller_probe_at: Instant,
    caller_wait: Duration,
    probe: Option<i64>,
    last_probe: Option<i64>,
    /// Other events than the last probe are known to wait.
    others_wait: bool,
    last_deferred_until: Instant,
}

/// Who asked a destination: an event, or a caller that is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    /// Row id of an event. Callers that are no events have numbers below zero.
    pub(crate) id: i64,
    /// What is asked: a caller and the event that repeats the call ask the same.
    pub(crate) call: i64,
    /// When its previous try ended without delivery, on the database's clock.
    pub(crate) last_failed_at: Option<DateTime<Utc>>,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    probe_every: Duration,
    adaptive: bool,
    open: Option<Open>,
    down_streak: u32,
    /// The different events of the streak, as many as it takes to open.
    down_ids: Vec<i64>,
    down_since: Option<Instant>,
    /// When an event was sent that it took. The answer may be much later than that, because it waits
    /// for those of its batch, and says nothing of the time between.
    last_success_at: Option<DateTime<Utc>>,
    /// The same moment on the database's clock and on ours, as the last event showed it.
    clock: Option<(DateTime<Utc>, Instant)>,
    recent: Recent,
    window: Window,
    in_flight: u32,
    /// Where callers share the destination with the relay.
    failed_calls: Option<FailedCalls>,
    pub(crate) heard_at: Instant,
}

impl Breaker {
    /// `adaptive`: an overload makes the window smaller.
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

    /// Remembers which calls failed: for a destination that callers share with the relay.
    #[must_use]
    pub(crate) fn with_callers(self) -> Self {
        Self { failed_calls: Some(FailedCalls::default()), ..self }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// For people.
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

    /// Takes an answer into account. `sent_at` is when the event was sent, `answered_at` is the same
    /// moment as `now` on the database's clock; a caller that is no event does not know it.
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
            | Outcome::Needless
            | Outcome::NoRoute { .. }
            | Outcome::Unfit { .. } => None,
        }
    }

    /// Closed, with nothing to be forgiven and no window that could grow.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.is_open() && self.down_since.is_none() && self.window().is_none()
    }

    /// Many events delivered while it is healthy: the same as recording each.
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
        // Who asks to be left alone speaks of all calls.
        let calls = self.failed_calls.as_mut().filter(|_| retry_after.is_none());
        let is_broken = calls.map(|calls| calls.failed(asker.call, now));
        // It took others since: this is about the event, and no reason to slow the others down.
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
        // Nor are calls that fail whenever they are made, however many.
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

    /// While it is open: a call failed, which may have been the probe of a caller.
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

    /// While it is open: which of these events is the next probe. One at a time, and not the one of
    /// last time while others wait.
    pub(crate) fn appoint(&mut self, ids: &[i64], now: Instant) -> Option<i64> {
        let open = self.open.as_mut()?;
        if ids.is_empty() || open.probe.is_some() || now < open.next_probe_at {
            return None;
        }
        // In turn: with the lowest ids first, two events that never succeed would keep out all others.
        let next = ids.iter().filter(|id| open.last_probe.is_none_or(|last| **id > last)).min();
        let other = next.or(ids.iter().filter(|id| Some(**id) != open.last_probe).min());
        if other.is_none() && open.others_wait {
            // It is deferred behind them. If it comes alone again, they were delivered elsewhere.
            open.others_wait = false;
            return None;
        }
        let chosen = *other.or(ids.first())?;
        open.others_wait |= open.last_probe.is_some_and(|last| last != chosen);
        open.probe = Some(chosen);
        open.last_probe = Some(chosen);
        Some(chosen)
    }

    /// While it is open: makes the call of a caller the probe, if it is time for one. Callers go before
    /// events, which may be the very calls that fail. A call that failed itself waits as events do.
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

    /// The probe is back, or never left. Answers whether this was it.
    pub(crate) fn end_probe(&mut self, id: i64) -> bool {
        match &mut self.open {
            Some(open) if open.probe == Some(id) => {
                open.probe = None;
                true
            }
            _ => false,
        }
    }

    /// Time until the next probe; with one under way, the time until there could be another.
    fn probe_in(&self, now: Instant) -> Duration {
        match &self.open {
            None => Duration::ZERO,
            Some(Open { probe: Some(_), .. }) => self.probe_every,
            Some(open) => open.next_probe_at.saturating_duration_since(now),
        }
    }

    /// While it is open: how long an event waits, and whether a probe is due.
    pub(crate) fn wait(&mut self, id: i64, now: Instant) -> Option<(Duration, bool)> {
        let delay = self.wait_for_probe(now);
        let open = self.open.as_mut()?;
        open.others_wait |= open.last_probe != Some(id);
        Some((delay, open.probe.is_none() && open.next_probe_at <= now))
    }

    /// A probe that is due is another event's turn.
    fn wait_for_probe(&self, now: Instant) -> Duration {
        match self.probe_in(now) {
            Duration::ZERO => self.probe_every,
            wait => wait,
        }
    }

    /// How long an event waits that is not sent because the breaker is open.
    pub(crate) fn defer(&mut self, id: i64, now: Instant, max: Option<Duration>) -> Duration {
        let wait = self.wait_for_probe(now);
        let Some(open) = &mut self.open else { return Duration::ZERO };
        open.others_wait |= open.last_probe != Some(id);
        let spaced = (now + wait).max(open.last_deferred_until + DEFERRAL_SPACING);
        // Also where the destination asked for a longer wait: it may be back sooner.
        let until = max.map_or(spaced, |max| spaced.min(now + max));
        open.last_deferred_until = until;
        until.saturating_duration_since(now)
    }

    /// Places that are free; `None` is no limit. An open breaker has none.
    pub(crate) fn room(&self) -> Option<u32> {
        match self.is_open() {
            true => Some(0),
            false => self.window.size().map(|size| size.saturating_sub(self.in_flight)),
        }
    }

    /// Whether this event is the probe under way.
    pub(crate) fn is_probe(&self, id: i64) -> bool {
        self.open.as_ref().is_some_and(|open| open.probe == Some(id))
    }

    /// Events at the same time; `None` is no limit.
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

/// The wait that a destination asked for, as far as it is honoured.
fn asked_wait(retry_after: Option<Duration>) -> Duration {
    retry_after.map_or(Duration::ZERO, |wait| wait.min(RETRY_AFTER_MAX))
}
