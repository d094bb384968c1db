//! Supervises one outbox of a relay: runs it in the claim mode set in the database, and follows
//! changes.
//!
//! A change takes effect in two steps. Each relay finishes what it holds in the old mode and then
//! announces the new epoch with its heartbeat; it starts in the new mode only when no live relay
//! announces an older one. So no event is processed in two modes at once, and a relay that never
//! announces is declared dead like any other.
//!
//! A pause works the same way, without a new mode: what is in flight is finished, claimed rows and
//! lanes are released, and nothing starts until the pause is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_store::{ClaimMode, Mode, Serving, Traffic};
use tokio::sync::{Notify, RwLock, watch};
use tokio_util::sync::CancellationToken;

use crate::alerts::{Alert, Alerts, Severity};
use crate::config::OutboxConfig;
use crate::delivery::pipeline::Pipeline;
use crate::delivery::settle::Settler;
use crate::delivery::trace::Tracer;
use crate::destination::DestinationRegistry;
use crate::destination::health::Health;
use crate::engine::lanes::Lanes;
use crate::engine::rows::Rows;
use crate::lease::{LeaseKeeper, Membership};
use crate::observations::Observations;
use crate::telemetry;
use crate::waker::Waker;

/// Maximum deferral of an event whose destination is down, in probe intervals.
const DEFERRAL_INTERVALS_MAX: u32 = 10;

pub(crate) struct Supervisor {
    pub(crate) config: OutboxConfig,
    pub(crate) settler: Settler,
    pub(crate) lease_keeper: Arc<LeaseKeeper>,
    pub(crate) alerts: Alerts,
    pub(crate) observations: Arc<Observations>,
    pub(crate) destinations: Arc<DestinationRegistry>,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) waker: Waker,
    pub(crate) alone: Arc<RwLock<()>>,
    pub(crate) suspects_every: Duration,
}

/// Builds what this relay announces about an outbox.
pub(crate) fn serving(config: &OutboxConfig, mode: Mode) -> Serving {
    let outbox = config.outbox.name().to_owned();
    let traffic = Traffic::default();
    Serving {
        outbox,
        epoch: mode.epoch,
        share: config.share,
        down: Vec::new(),
        traffic,
        trouble: None,
    }
}

impl Supervisor {
    /// Runs until stopped. Returns whether nothing of the outbox is held any longer.
    pub(crate) async fn run(self, stop: CancellationToken) -> bool {
        let mut memberships = self.lease_keeper.memberships();
        let name = self.config.outbox.name();
        let (mut clean, mut panicked) = (true, false);
        while let Some(mode) = self.next_mode(&mut memberships, &stop).await {
            let ended = stop.child_token();
            let pipeline = self.pipeline(mode.claim, panicked, ended.clone());
            let pipeline = tokio::spawn(pipeline);
            let mut pipeline = tokio_util::task::AbortOnDropHandle::new(pipeline);
            tracing::info!(outbox = self.config.outbox.name(), claim = %mode.claim, "working");
            let ended = loop {
                tokio::select! {
                    biased;
                    ended = &mut pipeline => break ended,
                    _ = memberships.changed() => {
                        let membership = memberships.borrow_and_update();
                        let now = membership.mode(self.config.outbox.name());
                        if now.is_some_and(|now| now != mode) || self.is_paused(&membership) {
                            ended.cancel();
                        }
                    }
                }
            };
            (clean, panicked) = (*ended.as_ref().unwrap_or(&false), ended.is_err());
            if panicked {
                let wait = self.settler.trouble.panicked();
                tracing::error!(outbox = name, ?wait, "the pipeline panicked; starting it again");
                stop.run_until_cancelled(tokio::time::sleep(wait)).await;
            }
        }
        clean
    }

    /// Waits for a mode that this relay may work in; `None` when stopped.
    async fn next_mode(
        &self,
        memberships: &mut watch::Receiver<Membership>,
        stop: &CancellationToken,
    ) -> Option<Mode> {
        let name = self.config.outbox.name();
        let (mut announced, mut was_paused) = (None, false);
        while !stop.is_cancelled() {
            let (mode, may_begin) = {
                let membership = memberships.borrow_and_update();
                let mode = membership.mode(name);
                let all_there = mode.is_some_and(|mode| membership.all_in_epoch(name, mode.epoch));
                let paused = self.is_paused(&membership);
                if paused != was_paused {
                    was_paused = paused;
                    self.report_paused(paused);
                }
                (mode, all_there && !paused)
            };
            match mode {
                // The announcements of the other relays count only from the next membership list
                // on.
                Some(mode) if announced != Some(mode) => {
                    announced = Some(mode);
                    self.announce(mode);
                }
                Some(mode) if may_begin && self.fits(mode) => return Some(mode),
                _ => {}
            }
            stop.run_until_cancelled(memberships.changed()).await?.ok()?;
        }
        None
    }

    fn is_paused(&self, membership: &Membership) -> bool {
        membership.is_paused(self.config.outbox.name(), self.config.sink.name())
    }

    fn report_paused(&self, paused: bool) {
        let outbox = self.config.outbox.name();
        metrics::gauge!(telemetry::PAUSED, telemetry::label::OUTBOX => outbox.to_owned())
            .set(f64::from(u8::from(paused)));
        match paused {
            true => tracing::info!(outbox, "paused by an operator"),
            false => tracing::info!(outbox, "resumed"),
        }
    }

    fn fits(&self, mode: Mode) -> bool {
        self.config.claim.is_none_or(|claim| claim == mode.claim)
    }

    fn announce(&self, mode: Mode) {
        let name = self.config.outbox.name();
        let kind = format!("claim-mode/{name}");
        if self.fits(mode) {
            self.lease_keeper.announce(name, Some(serving(&self.config, mode)));
            self.alerts.end(kind, format!("Outbox {name} is served by this relay"));
            return;
        }
        self.lease_keeper.announce(name, None);
        self.alerts.begin(Alert {
            severity: Severity::Critical,
            kind,
            title: format!("Outbox {name} is not served by this relay"),
            fields: vec![(
                "error",
                format!(
                    "its claim mode was changed to `{}`; this relay is configured for another: \
                     change `claim` and restart it",
                    mode.claim
                ),
            )],
            event: None,
        });
    }

    /// Builds the pipeline. `panicked`: the previous pipeline panicked, and may have left rows that
    /// it claimed.
    fn pipeline(
        &self,
        claim: ClaimMode,
        panicked: bool,
        stop: CancellationToken,
    ) -> impl Future<Output = bool> + Send + 'static {
        // The health of destinations ends with each pipeline, unless the sink keeps it.
        let sink = self.config.sink.as_ref();
        let health =
            sink.health().unwrap_or_else(|| Arc::new(Health::of(sink, &self.config.preset)));
        self.observations.open.store(health.open_count(), Ordering::Relaxed);
        self.destinations.enter(self.config.outbox.name(), &health);
        let pipeline = Pipeline {
            config: self.config.clone(),
            lease_keeper: Arc::clone(&self.lease_keeper),
            health,
            alerts: self.alerts.clone(),
            observations: Arc::clone(&self.observations),
            tracer: self.tracer.clone(),
            refusing: Mutex::default(),
            came_back: Notify::new(),
            deferral_max: self.config.preset.idle_poll * DEFERRAL_INTERVALS_MAX,
            abort: self.settler.abort.clone(),
        };
        let (config, settler) = (self.config.clone(), self.settler.clone());
        let (lease_keeper, waker) = (Arc::clone(&self.lease_keeper), self.waker.clone());
        let (alone, suspects_every) = (Arc::clone(&self.alone), self.suspects_every);
        async move {
            match claim {
                ClaimMode::Rows => {
                    let abandoned = AtomicBool::new(panicked);
                    let rows = Rows {
                        config,
                        pipeline,
                        settler,
                        lease_keeper,
                        waker,
                        alone,
                        suspects_every,
                        abandoned,
                    };
                    let rows = Arc::new(rows);
                    tokio::select! {
                        biased;
                        clean = Arc::clone(&rows).run(stop) => clean,
                        never = rows.pipeline.follow_live_calls() => match never {},
                    }
                }
                ClaimMode::Lanes => {
                    let lanes = Lanes { config, pipeline, settler, lease_keeper, waker, alone };
                    let lanes = Arc::new(lanes);
                    tokio::select! {
                        biased;
                        clean = Arc::clone(&lanes).run(stop) => clean,
                        never = lanes.pipeline.follow_live_calls() => match never {},
                    }
                }
            }
        }
    }
}
