//! The relays of a run, which are watched until everything is delivered and settled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider_command::Failure;
use postrider_relay::{Backoff, OutboxConfig, Preset, Relay, RelayConfig, RelayError};
use postrider_store::{ClaimMode, LedgerWindow, OnSuccess};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::checker::Checker;
use super::machine::resident_bytes;
use super::numbers::thinned;
use super::schedule::{Times, Writers};
use super::sinks::{Sinks, Watched};
use super::stage::{Stage, bar};

/// A run without progress for this long has failed, unless it expects an outage.
pub(super) const STALL: Duration = Duration::from_secs(60);
/// Interval between checks of progress and memory.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval between points of the plots.
const POINT_EVERY: Duration = Duration::from_millis(100);
const IDLE_POLL: Duration = Duration::from_millis(100);
/// Time for which the memory of idle relays is observed.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum number of points per plot.
pub(super) const POINTS_MAX: usize = 300;

/// The settings of the relays of a run.
pub(super) struct Plan<'a> {
    pub(super) outbox: &'a Outbox,
    pub(super) sinks: &'a Sinks,
    pub(super) claim: ClaimMode,
    pub(super) batch: u32,
    pub(super) relays: u32,
    pub(super) checker: Arc<Checker>,
    pub(super) times: Option<Arc<Times>>,
    pub(super) failing: Option<&'static str>,
    pub(super) on_success: OnSuccess,
    /// Whether to claim, deliver and settle one batch after the other.
    pub(super) one_at_a_time: bool,
    /// Interval between polls of an idle relay, and between probes of a destination that is down.
    pub(super) idle_poll: Duration,
    /// A run without a delivery for this long has failed.
    pub(super) stall: Duration,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        outbox: &'a Outbox,
        sinks: &'a Sinks,
        claim: ClaimMode,
        batch: u32,
        relays: u32,
    ) -> Self {
        Self {
            outbox,
            sinks,
            claim,
            batch,
            relays,
            checker: Arc::default(),
            times: None,
            failing: None,
            on_success: OnSuccess::Delete,
            one_at_a_time: false,
            idle_poll: IDLE_POLL,
            stall: STALL,
        }
    }

    fn outbox_config(&self) -> Result<OutboxConfig, Failure> {
        let sink = Watched {
            inner: self.sinks.open()?,
            checker: Arc::clone(&self.checker),
            times: self.times.clone(),
            failing: self.failing,
        };
        let preset = Preset {
            batch: self.batch,
            on_success: self.on_success,
            idle_poll: self.idle_poll,
            // A failing event neither becomes a dead letter nor is tried again during the run.
            max_retries: 1_000,
            backoff: Backoff { first: Duration::from_secs(300), ..Preset::broker().backoff },
            ..Preset::broker()
        };
        let config = OutboxConfig::new(self.outbox.clone(), preset, Arc::new(sink));
        let batches_max = if self.one_at_a_time { 1 } else { config.batches_max };
        Ok(OutboxConfig { batches_max, claim: Some(self.claim), ..config })
    }
}

/// Running relays, each with its own store, sink and lease.
pub(super) struct Relays {
    stop: CancellationToken,
    running: Vec<JoinHandle<Result<(), RelayError>>>,
    /// When their stores were connected and they started.
    pub(super) started: Instant,
}

impl Relays {
    pub(super) async fn start(stage: &Stage, plan: &Plan<'_>) -> Result<Self, Failure> {
        let stop = stage.stop.child_token();
        let mut relays = Vec::new();
        for _ in 0..plan.relays {
            let store = stage.another_store().await?;
            let relay = Relay::new(store, RelayConfig::default()).outbox(plan.outbox_config()?);
            relays.push(relay);
        }
        stage.claims.restart();
        let started = Instant::now();
        // Tracked by the stage, so that they end before their tables are dropped, whatever happens
        // to this run.
        let run = |relay: Relay| stage.running.spawn(relay.run(stop.clone()));
        Ok(Self { running: relays.into_iter().map(run).collect(), stop, started })
    }

    fn check(&self) -> Result<(), Failure> {
        match self.running.iter().any(JoinHandle::is_finished) {
            true => Err(Failure::Partly("a relay ended before its work was done".to_owned())),
            false => Ok(()),
        }
    }

    pub(super) async fn stop(self) -> Result<(), Failure> {
        self.stop.cancel();
        for relay in self.running {
            match relay.await {
                Ok(outcome) => outcome?,
                Err(error) => return Err(Failure::Partly(format!("a relay ended with {error}"))),
            }
        }
        Ok(())
    }
}

/// Observations while relays worked.
pub(super) struct Watch {
    pub(super) seconds: f64,
    /// Seconds until the first delivery.
    pub(super) first_s: f64,
    pub(super) rss_max_bytes: u64,
    /// Seconds, events delivered so far, and events appended but not delivered.
    points: Vec<(f64, u64, u64)>,
}

impl Watch {
    /// Returns the seconds since the first delivery.
    pub(super) fn running_s(&self) -> f64 {
        self.seconds - self.first_s
    }

    /// Returns the events per second over time.
    pub(super) fn rate_over_time(&self) -> Vec<(f64, f64)> {
        let rates = self.points.windows(2).map(|pair| {
            let ((from, before, _), (to, after, _)) = (pair[0], pair[1]);
            (to, (after - before) as f64 / (to - from).max(1e-9))
        });
        thinned(&rates.collect::<Vec<_>>(), POINTS_MAX)
    }

    /// Returns the waiting events over time.
    pub(super) fn backlog_over_time(&self) -> Vec<(f64, f64)> {
        let backlog: Vec<_> =
            self.points.iter().map(|(at, _, backlog)| (*at, *backlog as f64)).collect();
        thinned(&backlog, POINTS_MAX)
    }
}

/// The condition that ends a run.
pub(super) struct Goal<'a> {
    pub(super) title: &'static str,
    /// Number of events to be delivered.
    pub(super) deliver: u64,
    /// Number of events that stay in the outbox.
    pub(super) leave: u64,
    /// Number of events appended so far; it grows if events are appended during the run.
    pub(super) appended: &'a (dyn Fn() -> u64 + Sync),
}

/// Watches until everything is settled, not only delivered.
pub(super) async fn watch(
    stage: &Stage,
    (plan, relays): (&Plan<'_>, &Relays),
    mut writers: Option<&mut Writers>,
    goal: Goal<'_>,
) -> Result<Watch, Failure> {
    let bar = bar(goal.title, goal.deliver);
    let (mut rss_max_bytes, mut moved_at, mut points) = (0, Instant::now(), Vec::new());
    let mut pointed_at = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        rss_max_bytes = rss_max_bytes.max(resident_bytes());
        let (delivered, at) = (plan.checker.delivered(), relays.started.elapsed());
        if delivered > bar.position() {
            bar.set_position(delivered);
            moved_at = Instant::now();
        }
        if pointed_at.is_none_or(|pointed| at >= pointed + POINT_EVERY) {
            pointed_at = Some(at);
            let backlog = (goal.appended)().saturating_sub(delivered);
            points.push((at.as_secs_f64(), delivered, backlog));
        }
        // The relays' own counts come first: if many events stay, counting them takes long.
        if delivered >= goal.deliver && stage.claims.settled() >= goal.deliver {
            let seconds = relays.started.elapsed().as_secs_f64();
            let pending = stage.store.statistics(plan.outbox).await?.pending;
            if pending <= i64::try_from(goal.leave).unwrap_or(i64::MAX) {
                points.push((seconds, delivered, 0));
                bar.finish_and_clear();
                let first_at = plan.checker.first_at().unwrap_or(relays.started);
                let first_s = first_at.saturating_duration_since(relays.started).as_secs_f64();
                return Ok(Watch { seconds, first_s, rss_max_bytes, points });
            }
        }
        relays.check()?;
        if let Some(writers) = writers.as_deref_mut() {
            writers.check()?;
        }
        if moved_at.elapsed() > plan.stall {
            let (of, outbox) = (goal.deliver, plan.outbox.name());
            return Err(Failure::Partly(format!(
                "outbox {outbox}: nothing was delivered for {:?}; {delivered} of {of} were before",
                plan.stall
            )));
        }
    }
}

/// Drains `deliver` events that are already in the outbox.
pub(super) async fn drain(
    stage: &Stage,
    plan: &Plan<'_>,
    deliver: u64,
    leave: u64,
) -> Result<Watch, Failure> {
    let relays = Relays::start(stage, plan).await?;
    let goal = Goal { title: "draining", deliver, leave, appended: &|| deliver };
    let watched = watch(stage, (plan, &relays), None, goal).await?;
    relays.stop().await?;
    Ok(watched)
}

/// Returns the memory of relays that have not worked yet.
pub(super) async fn idle_bytes(stage: &Stage, plan: &Plan<'_>) -> Result<u64, Failure> {
    let relays = Relays::start(stage, plan).await?;
    tokio::time::sleep(IDLE).await;
    let bytes = resident_bytes();
    relays.stop().await?;
    Ok(bytes)
}

/// Returns whether the ledger of an outbox balances.
pub(super) async fn balanced(stage: &Stage, outbox: &Outbox) -> Result<bool, Failure> {
    Ok(stage.store.ledger(outbox).await?.iter().all(LedgerWindow::balanced))
}
