//! The relay: all outboxes of one process.

mod parts;
mod start;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use postrider_store::{ClaimMode, Database, Serving, Share};
use tokio_util::sync::CancellationToken;

use crate::alerts::{AlertRegistry, AlertSettings, LogChannel, Subscription};
#[cfg(feature = "buffer")]
use crate::buffer::BufferConfig;
use crate::config::{OutboxConfig, RelayConfig};
use crate::delivery::trace::TraceSettings;
use crate::destination::DestinationRegistry;
use crate::engine::supervisor;
use crate::error::RelayError;
use crate::waker::Waker;
use parts::{Parts, Signals};

/// Delivers the events of some outboxes. Build it, then [`run`](Relay::run) it.
pub struct Relay {
    store: Arc<dyn Database>,
    config: RelayConfig,
    outboxes: Vec<OutboxConfig>,
    #[cfg(feature = "buffer")]
    buffers: Vec<BufferConfig>,
    channels: Vec<Subscription>,
    alert_settings: AlertSettings,
    registry: Arc<AlertRegistry>,
    destinations: Arc<DestinationRegistry>,
    heartbeat_fails: Arc<AtomicBool>,
    traces: Option<TraceSettings>,
    waker: Waker,
}

impl Relay {
    /// Creates a relay on this store, without outboxes.
    pub fn new(store: Arc<dyn Database>, config: RelayConfig) -> Self {
        Self {
            store,
            config,
            outboxes: Vec::new(),
            #[cfg(feature = "buffer")]
            buffers: Vec::new(),
            channels: vec![Subscription { reports: true, ..Subscription::new(LogChannel) }],
            alert_settings: AlertSettings::default(),
            registry: Arc::default(),
            destinations: Arc::default(),
            heartbeat_fails: Arc::default(),
            traces: None,
            waker: Waker::default(),
        }
    }

    /// Adds an outbox.
    #[must_use]
    pub fn outbox(mut self, outbox: OutboxConfig) -> Self {
        self.outboxes.push(outbox);
        self
    }

    /// Adds a buffer.
    #[cfg(feature = "buffer")]
    #[must_use]
    pub fn buffer(mut self, buffer: BufferConfig) -> Self {
        self.buffers.push(buffer);
        self
    }

    /// Adds a channel for alerts. The log is always a channel.
    #[must_use]
    pub fn alert_channel(mut self, channel: Subscription) -> Self {
        self.channels.push(channel);
        self
    }

    /// Sets how alerts are sent.
    #[must_use]
    pub fn alert_settings(mut self, settings: AlertSettings) -> Self {
        self.alert_settings = settings;
        self
    }

    /// Sends a span per delivery attempt to an OpenTelemetry collector.
    #[must_use]
    pub fn traces(mut self, settings: TraceSettings) -> Self {
        self.traces = Some(settings);
        self
    }

    /// Returns the list of active and past alerts.
    pub fn alert_registry(&self) -> Arc<AlertRegistry> {
        Arc::clone(&self.registry)
    }

    /// Returns the state of the destinations of its sinks.
    pub fn destination_registry(&self) -> Arc<DestinationRegistry> {
        Arc::clone(&self.destinations)
    }

    /// Returns a flag that is set while heartbeats cannot be written: a store that can be read may
    /// be full or read-only.
    pub fn heartbeat_fails(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heartbeat_fails)
    }

    /// Returns the handle that wakes the relay after an append in the same process.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs until `stop`. Then it finishes what is in flight, or releases it when the stop timeout
    /// ends first, so that nothing is left `PROCESSING`.
    ///
    /// # Errors
    /// If the tables are missing or of another version, or if they cannot be written for a
    /// permanent reason, such as missing privileges. The relay waits for a database that cannot be
    /// reached, at the start and later.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), RelayError> {
        // All parts stop when this future is dropped.
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        let stop = stop.child_token();
        let _stop = stop.clone().drop_guard();
        let signals = Signals::below(&ended);
        let mut alerting = None;
        let Some(begun) = self.begin(&mut alerting, &signals.alerts, &stop).await? else {
            return Ok(());
        };
        let alerting = alerting.unwrap_or_else(|| self.start_alerts(&signals.alerts));
        let parts = Parts::start(&mut self, begun, alerting, signals, &stop);
        stop.cancelled().await;
        tracing::info!("stopping: finishing what is in flight");
        parts.stop(&self).await;
        tracing::info!("stopped");
        Ok(())
    }
}

impl Relay {
    /// Returns what this relay will work on, in the claim modes that the database has.
    async fn serving(&self) -> Result<Vec<Serving>, RelayError> {
        let modes = self.store.modes().await?;
        let mut serving = Vec::new();
        for config in &self.outboxes {
            let name = config.outbox.name();
            let Some((_, mode)) = modes.iter().find(|(outbox, _)| outbox == name) else { continue };
            if let Some(claim) = config.claim.filter(|claim| *claim != mode.claim) {
                return Err(RelayError::Claim(format!(
                    "outbox `{name}` is in claim mode `{}`, but `{claim}` is configured; to change \
                     it for all relays: postrider outbox set-claim {name} {claim}",
                    mode.claim
                )));
            }
            if mode.claim == ClaimMode::Lanes && config.share != Share::WHOLE {
                return Err(RelayError::Claim(format!(
                    "outbox `{name}`: `share` is for claim mode `rows`; in `lanes` relays share \
                     the work by themselves: remove it"
                )));
            }
            serving.push(supervisor::serving(config, *mode));
        }
        Ok(serving)
    }
}
