//! Statistics of all outboxes: queried once for all clients that want them, and remembered for a
//! while.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use postrider_store::{PauseKind, Statistics, StoreError, TypeStatistics};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::ServerState;
use super::api::{ClaimWord, DownBody, PauseBody, TrafficBody, down, traffic};
use super::history::{History, Reach, SAMPLE_EVERY, Sample};

/// Maximum number of event types per answer: those with the most events. If an application puts an
/// id into its types, answers and messages of the stream would otherwise grow without limit.
const TYPES_MAX: usize = 100;

/// Numbers of one event type.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TypeState {
    event_type: String,
    appended: i64,
    delivered: i64,
    dead: i64,
}

/// Numbers of the event types that are not named.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct OtherTypes {
    /// How many types these are.
    types: usize,
    appended: i64,
    delivered: i64,
    dead: i64,
}

/// Events per second since the snapshot before.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Rates {
    appended_per_s: f64,
    delivered_per_s: f64,
    dead_per_s: f64,
}

/// How an outbox is doing.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OutboxState {
    pub(crate) name: String,
    table: String,
    preset: String,
    sink: String,
    /// The outboxes that its events are copied into, if that is where they go.
    branches: Vec<String>,
    /// Whether delivered events are kept, so that they can be replayed.
    archives: bool,
    /// How relays share the work.
    claim: Option<ClaimWord>,
    /// Absent: it runs.
    paused: Option<PauseBody>,
    /// Events appended since the outbox exists.
    appended: i64,
    delivered: i64,
    dead: i64,
    /// `appended - delivered - dead`.
    pending: i64,
    /// Unresolved dead letters.
    unresolved: i64,
    /// Age of the oldest live event in seconds.
    oldest_age_s: Option<i64>,
    /// By event type, in the order of the names: the hundred types with most events.
    by_type: Vec<TypeState>,
    /// All other types together. Absent: there are none.
    other_types: Option<OtherTypes>,
    /// Absent in the first snapshot.
    rates: Option<Rates>,
    /// What all relays together tell of the last minute.
    traffic: TrafficBody,
    /// Destinations that are down, as the relays see them.
    down: Vec<DownBody>,
}

/// All outboxes at one moment.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Snapshot {
    /// Counts up.
    pub(crate) number: u64,
    at: DateTime<Utc>,
    pub(crate) outboxes: Vec<OutboxState>,
    #[serde(skip)]
    #[schema(ignore)]
    taken: Option<Instant>,
}

/// The only place that queries statistics.
pub(crate) struct Feed {
    every: Duration,
    latest: watch::Sender<Option<Arc<Snapshot>>>,
    /// Held during a query; those who wait for it use its result.
    asking: tokio::sync::Mutex<()>,
    watchers: Arc<Semaphore>,
    watchers_max: usize,
    history: History,
}

impl Feed {
    pub(crate) fn new(every: Duration, watchers_max: usize) -> Self {
        Self {
            every,
            latest: watch::Sender::new(None),
            asking: tokio::sync::Mutex::default(),
            watchers: Arc::new(Semaphore::new(watchers_max)),
            watchers_max,
            history: History::default(),
        }
    }

    /// Returns a snapshot that is not older than the interval.
    pub(crate) async fn recent(&self, state: &ServerState) -> Result<Arc<Snapshot>, StoreError> {
        if let Some(snapshot) = self.fresh() {
            return Ok(snapshot);
        }
        let _asking = self.asking.lock().await;
        match self.fresh() {
            Some(snapshot) => Ok(snapshot),
            None => self.ask(state).await,
        }
    }

    fn fresh(&self) -> Option<Arc<Snapshot>> {
        let latest = self.latest.borrow().clone()?;
        latest.taken.is_some_and(|taken| taken.elapsed() < self.every).then_some(latest)
    }

    async fn ask(&self, state: &ServerState) -> Result<Arc<Snapshot>, StoreError> {
        let before = self.latest.borrow().clone();
        let (modes, relays) = (state.store.modes().await?, state.store.relays().await?);
        let pauses = state.store.pauses().await?;
        let taken = Instant::now();
        let mut outboxes = Vec::new();
        for served in &state.outboxes {
            let name = served.outbox.name();
            let statistics = state.store.statistics(&served.outbox).await?;
            let (by_type, other_types) = by_type(&statistics);
            let mode = modes.iter().find(|(of, _)| of == name).map(|(_, mode)| mode.claim.into());
            let same = before.as_ref().and_then(|before| {
                let passed = taken.saturating_duration_since(before.taken?);
                let outbox = before.outboxes.iter().find(|outbox| outbox.name == name)?;
                Some((outbox, passed.as_secs_f64()))
            });
            outboxes.push(OutboxState {
                name: name.to_owned(),
                table: served.outbox.table().to_owned(),
                preset: served.preset.to_owned(),
                sink: served.sink.clone(),
                branches: served.branches.clone(),
                archives: served.archives,
                claim: mode,
                paused: PauseBody::find(&pauses, PauseKind::Outbox, name),
                rates: same.map(|(before, passed)| rates(before, &statistics, passed)),
                traffic: traffic(&relays, name),
                down: down(&relays, |serving| serving.outbox == name),
                appended: statistics.appended,
                delivered: statistics.delivered,
                dead: statistics.dead,
                pending: statistics.pending,
                unresolved: statistics.unresolved,
                oldest_age_s: statistics.oldest_age_s,
                by_type,
                other_types,
            });
        }
        let number = before.map_or(1, |before| before.number + 1);
        let snapshot = Snapshot { number, at: Utc::now(), outboxes, taken: Some(taken) };
        let snapshot = Arc::new(snapshot);
        self.latest.send_replace(Some(Arc::clone(&snapshot)));
        Ok(snapshot)
    }

    /// Subscribes to snapshots. `None` if there are too many watchers.
    pub(crate) fn watch(&self) -> Option<Watcher> {
        let place = Arc::clone(&self.watchers).try_acquire_owned().ok()?;
        let mut latest = self.latest.subscribe();
        // The latest snapshot is new to a new watcher.
        latest.mark_changed();
        Some(Watcher { latest, _place: place })
    }

    fn watched(&self) -> bool {
        self.watchers.available_permits() < self.watchers_max
    }

    fn remember(&self, snapshot: &Snapshot) {
        for outbox in &snapshot.outboxes {
            let sample = Sample {
                at: snapshot.at,
                appended: outbox.appended,
                delivered: outbox.delivered,
                dead: outbox.dead,
                pending: outbox.pending,
                unresolved: outbox.unresolved,
                oldest_age_s: outbox.oldest_age_s,
                in_flight: outbox.traffic.in_flight,
                failed_per_s: outbox.traffic.failed_per_s,
                latency_p50_ms: outbox.traffic.latency_p50_ms,
                latency_p99_ms: outbox.traffic.latency_p99_ms,
            };
            self.history.remember(&outbox.name, &sample);
        }
    }

    /// Returns the samples of an outbox, oldest first.
    pub(crate) fn history(&self, outbox: &str, reach: Reach) -> Vec<Sample> {
        self.history.of(outbox, reach)
    }
}

/// Returns the types with the most events, and the sum of the others.
fn by_type(statistics: &Statistics) -> (Vec<TypeState>, Option<OtherTypes>) {
    let mut types: Vec<&TypeStatistics> = statistics.by_type.iter().collect();
    types.sort_by_key(|of| Reverse(of.appended));
    let others = types.split_off(types.len().min(TYPES_MAX));
    types.sort_by(|one, other| one.event_type.cmp(&other.event_type));
    let named = types.into_iter().map(|of| TypeState {
        event_type: of.event_type.clone(),
        appended: of.appended,
        delivered: of.delivered,
        dead: of.dead,
    });
    let sum = |of: fn(&TypeStatistics) -> i64| others.iter().map(|other| of(other)).sum::<i64>();
    let other_types = OtherTypes {
        types: others.len(),
        appended: sum(|of| of.appended),
        delivered: sum(|of| of.delivered),
        dead: sum(|of| of.dead),
    };
    (named.collect(), (!others.is_empty()).then_some(other_types))
}

fn rates(before: &OutboxState, now: &Statistics, seconds: f64) -> Rates {
    let rate = |before: i64, now: i64| match seconds > 0.0 {
        true => ((now - before) as f64 / seconds * 100.0).round() / 100.0,
        false => 0.0,
    };
    Rates {
        appended_per_s: rate(before.appended, now.appended),
        delivered_per_s: rate(before.delivered, now.delivered),
        dead_per_s: rate(before.dead, now.dead),
    }
}

/// A subscription to snapshots; dropping it makes room for another one.
pub(crate) struct Watcher {
    latest: watch::Receiver<Option<Arc<Snapshot>>>,
    _place: OwnedSemaphorePermit,
}

impl Watcher {
    /// Waits for the next snapshot; a slow watcher gets the latest one, never a queue of old ones.
    pub(crate) async fn next(&mut self) -> Option<Arc<Snapshot>> {
        loop {
            self.latest.changed().await.ok()?;
            if let Some(snapshot) = self.latest.borrow_and_update().clone() {
                return Some(snapshot);
            }
        }
    }
}

/// Queries statistics periodically: every interval while there are watchers, and otherwise only for
/// the history.
pub(crate) async fn run(state: ServerState, stop: CancellationToken) {
    let feed = &state.feed;
    let mut sampled: Option<Instant> = None;
    let asking = async {
        loop {
            let due = sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY);
            if due || feed.watched() {
                match feed.recent(&state).await {
                    Ok(snapshot) if due => {
                        feed.remember(&snapshot);
                        sampled = Some(Instant::now());
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "no statistics; they come later"),
                }
            }
            tokio::time::sleep(feed.every).await;
        }
    };
    stop.run_until_cancelled(asking).await;
}
