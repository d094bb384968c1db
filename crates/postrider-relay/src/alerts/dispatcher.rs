//! Decides which alerts are sent, and how often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::{Queue, Sending, queue};
use super::{Alert, AlertRegistry, Message, MessageState, Subscription};
use crate::preset::Backoff;
use crate::telemetry;

/// Notices queued between the relay and the dispatcher. The dispatcher never waits, so only a burst
/// can fill the queue. Notices that carry an event have a queue of their own, of the same length.
const NOTICES_MAX: usize = 1_000;
/// Kinds remembered for the cool-down; the same limit applies to conditions.
const KINDS_MAX: usize = 10_000;

/// How alerts are sent.
#[derive(Debug, Clone, Copy)]
pub struct AlertSettings {
    /// Alerts of one kind within this time are combined into one message.
    pub cool_down: Duration,
    /// Waits between attempts to send a message that a channel did not accept.
    pub retry: Backoff,
}

impl Default for AlertSettings {
    fn default() -> Self {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(300));
        Self {
            cool_down: Duration::from_secs(300),
            retry: Backoff { first, factor: 2.0, max, jitter: 0.2 },
        }
    }
}

enum Notice {
    /// Something happened, this many times.
    Happened(Alert, u64),
    Holds(Alert),
    Over {
        kind: String,
        title: String,
    },
    Handed {
        kind: String,
    },
    Report(Alert),
}

/// Accepts alerts from anywhere in the relay. Never waits; an overflow is counted and logged.
#[derive(Clone)]
pub struct Alerts {
    sender: mpsc::Sender<Notice>,
    /// For alerts that may be the only copy of an event, so that a flood of others cannot displace
    /// them.
    last_copies: mpsc::Sender<Notice>,
    /// When the count behind the last report of a kind was read, for kinds that several tasks
    /// report. One kind per outbox and threshold.
    newest: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Alerts {
    /// Reports that something happened.
    pub fn raise(&self, alert: Alert) {
        self.raise_many(alert, 1);
    }

    /// Reports that the same thing happened `count` times; the alert shows one of them.
    pub fn raise_many(&self, alert: Alert, count: u64) {
        self.put(Notice::Happened(alert, count));
    }

    /// Reports that a condition holds. Call it at every check: only the beginning is sent.
    pub fn begin(&self, alert: Alert) {
        self.put(Notice::Holds(alert));
    }

    /// Reports that a condition does not hold. Call it at every check: it is sent only if the
    /// condition held.
    pub fn end(&self, kind: impl Into<String>, title: impl Into<String>) {
        self.put(Notice::Over { kind: kind.into(), title: title.into() });
    }

    /// Same as [`begin`](Self::begin), from what was read at `read_at` or later. Of two tasks that
    /// read the same at once, the one with the older state may report last; it is ignored then.
    pub(crate) fn begin_as_of(&self, read_at: Instant, alert: Alert) {
        self.put_as_of(read_at, alert.kind.clone(), Notice::Holds(alert));
    }

    /// Same as [`end`](Self::end), from what was read at `read_at` or later.
    pub(crate) fn end_as_of(&self, read_at: Instant, kind: String, title: String) {
        self.put_as_of(read_at, kind.clone(), Notice::Over { kind, title });
    }

    fn put_as_of(&self, read_at: Instant, kind: String, notice: Notice) {
        // Held while the notice is queued, which never waits, so that the order is the same there.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = newest.entry(kind).or_insert(read_at);
        if read_at >= *known {
            *known = read_at;
            self.put(notice);
        }
    }

    /// Hands a condition over to another relay; whether it holds is no longer known here.
    pub fn hand_over(&self, kind: impl Into<String>) {
        self.put(Notice::Handed { kind: kind.into() });
    }

    /// Sends the report to channels that are configured for it.
    pub fn report(&self, report: Alert) {
        self.put(Notice::Report(report));
    }

    fn put(&self, notice: Notice) {
        let lane = match &notice {
            Notice::Happened(alert, _) if alert.event.is_some() => &self.last_copies,
            _ => &self.sender,
        };
        if let Err(error) = lane.try_send(notice) {
            metrics::counter!(telemetry::ALERTS_DROPPED, telemetry::label::CHANNEL => "all")
                .increment(1);
            tracing::error!(%error, "alert dropped: too many at once");
        }
    }
}

/// Decides which alerts become messages, and passes these to the channels' queues.
pub struct Dispatcher {
    receiver: mpsc::Receiver<Notice>,
    last_copies: mpsc::Receiver<Notice>,
    queues: Vec<Queue>,
    sendings: Vec<Sending>,
    registry: Arc<AlertRegistry>,
    cool_down: Duration,
    kinds: HashMap<String, Kind>,
    conditions: HashMap<String, Condition>,
}

/// Occurrences of one kind.
struct Kind {
    reported_at: Instant,
    /// The last occurrence that was held back, and how many there were.
    held_back: Option<(Alert, u64)>,
}

/// A condition that holds, or held recently.
struct Condition {
    /// The alert as last seen.
    alert: Alert,
    holds: bool,
    /// Whether its beginning was sent and its end was not yet.
    reported: bool,
    reported_at: Instant,
    /// How often it began again within the cool-down without being sent.
    unreported: u64,
}

impl Dispatcher {
    /// Creates a dispatcher, and the handle that feeds it.
    pub fn new(channels: Vec<Subscription>, settings: AlertSettings) -> (Alerts, Self) {
        let (sender, receiver) = mpsc::channel(NOTICES_MAX);
        let (copies_sender, last_copies) = mpsc::channel(NOTICES_MAX);
        let (queues, sendings) =
            channels.into_iter().map(|channel| queue(channel, settings.retry)).unzip();
        let dispatcher = Self {
            receiver,
            last_copies,
            queues,
            sendings,
            registry: Arc::default(),
            cool_down: settings.cool_down,
            kinds: HashMap::new(),
            conditions: HashMap::new(),
        };
        (Alerts { sender, last_copies: copies_sender, newest: Arc::default() }, dispatcher)
    }

    /// Records alerts in this list.
    #[must_use]
    pub fn into_registry(self, registry: Arc<AlertRegistry>) -> Self {
        Self { registry, ..self }
    }

    /// Runs until stopped, then tries to send the remaining messages once more.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut sending = JoinSet::new();
        for channel in std::mem::take(&mut self.sendings) {
            sending.spawn(channel.run(stop.clone()));
        }
        let tick = self.cool_down.clamp(Duration::from_millis(1), Duration::from_secs(1));
        let mut tick = tokio::time::interval(tick);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => self.sum_up(false),
                Some(notice) = self.last_copies.recv() => self.take(notice),
                notice = self.receiver.recv() => match notice {
                    Some(notice) => self.take(notice),
                    None => break,
                },
            }
        }
        while let Ok(notice) = self.last_copies.try_recv().or_else(|_| self.receiver.try_recv()) {
            self.take(notice);
        }
        self.sum_up(true);
        // The queues end when all senders are dropped.
        self.queues.clear();
        while sending.join_next().await.is_some() {}
    }

    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Happened(alert, count) => self.happened(alert, count),
            Notice::Holds(alert) => self.holds(alert),
            Notice::Over { kind, title } => self.over(&kind, title),
            Notice::Handed { kind } => {
                self.conditions.remove(&kind);
                self.registry.release(&kind);
            }
            Notice::Report(report) => self.send(MessageState::Report, report, 1),
        }
    }

    /// Sends the first alert of a kind at once; further ones within the cool-down are counted.
    fn happened(&mut self, alert: Alert, count: u64) {
        self.registry.note(&alert, count, self.cool_down);
        let cool_down = self.cool_down;
        match self.kinds.get_mut(&alert.kind) {
            // This also covers a cool-down that has just ended: the next tick sends all of them
            // together.
            Some(kind) if kind.reported_at.elapsed() < cool_down || kind.held_back.is_some() => {
                let before = kind.held_back.as_ref().map_or(0, |(_, count)| *count);
                kind.held_back = Some((alert, before + count));
            }
            _ => {
                self.remember(&alert.kind);
                self.send(MessageState::Raised, summed_up(alert, count), count);
            }
        }
    }

    fn remember(&mut self, kind: &str) {
        if self.kinds.len() < KINDS_MAX {
            let reported = Kind { reported_at: Instant::now(), held_back: None };
            self.kinds.insert(kind.to_owned(), reported);
        }
    }

    /// Sends a beginning at once, unless it follows the last one within the cool-down.
    fn holds(&mut self, alert: Alert) {
        self.registry.hold(&alert);
        let now = Instant::now();
        match self.conditions.get_mut(&alert.kind) {
            Some(condition) if condition.holds => condition.alert = alert,
            Some(condition) if now - condition.reported_at < self.cool_down => {
                condition.unreported += 1;
                (condition.alert, condition.holds) = (alert, true);
            }
            _ => {
                if self.conditions.len() < KINDS_MAX {
                    let alert = alert.clone();
                    let condition = Condition {
                        alert,
                        holds: true,
                        reported: true,
                        reported_at: now,
                        unreported: 0,
                    };
                    self.conditions.insert(condition.alert.kind.clone(), condition);
                }
                self.send(MessageState::Raised, alert, 1);
            }
        }
    }

    /// Sends the end of a condition, if its beginning was sent.
    fn over(&mut self, kind: &str, title: String) {
        self.registry.release(kind);
        let Some(condition) = self.conditions.get_mut(kind) else { return };
        condition.holds = false;
        if std::mem::take(&mut condition.reported) {
            let alert = Alert { title, ..condition.alert.clone() };
            self.send(MessageState::Resolved, alert, 1);
        }
    }

    /// Sends one message for everything that was held back, once the cool-down is over.
    fn sum_up(&mut self, all: bool) {
        let cool_down = self.cool_down;
        let mut due = Vec::new();
        self.kinds.retain(|_, kind| {
            if !all && kind.reported_at.elapsed() < cool_down {
                return true;
            }
            due.extend(kind.held_back.take());
            false
        });
        for (alert, count) in due {
            self.remember(&alert.kind);
            self.send(MessageState::Raised, summed_up(alert, count), count);
        }
        self.sum_up_conditions(all);
    }

    fn sum_up_conditions(&mut self, all: bool) {
        let cool_down = self.cool_down;
        let mut due = Vec::new();
        self.conditions.retain(|_, condition| {
            if condition.reported || (!all && condition.reported_at.elapsed() < cool_down) {
                return true;
            }
            let (count, mut alert) = (condition.unreported, condition.alert.clone());
            match (condition.holds, count) {
                (true, _) => {
                    alert.title = format!("{} (began {} again)", alert.title, times(count));
                    due.push((MessageState::Raised, alert, count));
                    (condition.reported, condition.unreported) = (true, 0);
                    condition.reported_at = Instant::now();
                    return true;
                }
                (false, 0) => {}
                (false, _) => {
                    let more = format!("came back {} and is over", times(count));
                    alert.title = format!("{} ({more})", alert.title);
                    due.push((MessageState::Resolved, alert, count));
                }
            }
            false
        });
        for (state, alert, count) in due {
            self.send(state, alert, count);
        }
    }

    fn send(&self, state: MessageState, alert: Alert, count: u64) {
        let message = Message::new(state, alert, count);
        self.queues.iter().for_each(|queue| queue.put(&message));
    }
}

fn summed_up(alert: Alert, count: u64) -> Alert {
    match count {
        0 | 1 => alert,
        count => {
            Alert { title: format!("{} (and {} more like it)", alert.title, count - 1), ..alert }
        }
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::Severity;

    fn piled_up() -> Alert {
        let (kind, title) = ("unresolved/orders".to_owned(), "11 unresolved".to_owned());
        Alert { severity: Severity::Critical, kind, title, fields: Vec::new(), event: None }
    }

    /// A task read 11 unresolved dead letters, an operator resolved some, another task read 9 and
    /// reported first.
    #[test]
    fn an_older_state_that_is_reported_later_is_ignored() {
        let (alerts, mut dispatcher) = Dispatcher::new(Vec::new(), AlertSettings::default());
        let earlier = Instant::now();
        let later = earlier + Duration::from_millis(1);
        let alert = piled_up();
        alerts.end_as_of(later, alert.kind.clone(), "9 unresolved".to_owned());
        alerts.begin_as_of(earlier, alert);
        assert!(matches!(dispatcher.receiver.try_recv(), Ok(Notice::Over { .. })));
        assert!(dispatcher.receiver.try_recv().is_err(), "the older count begins nothing");

        alerts.begin_as_of(later, piled_up());
        assert!(matches!(dispatcher.receiver.try_recv(), Ok(Notice::Holds(_))));
    }
}
