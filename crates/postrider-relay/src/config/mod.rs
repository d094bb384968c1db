//! Configuration of a relay.

mod auto_retry;
mod lane_limits;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_store::{ClaimMode, Dedupe, Delivery, Event, OnSuccess, Share, adopt::Adoption};
use serde::{Deserialize, Serialize};

use crate::destination::RateLimit;
use crate::preset::Preset;
use crate::sink::Sink;
use crate::sinks::FanOut;

pub use auto_retry::{AutoRetry, ErrorPattern};
pub use lane_limits::LaneLimits;

/// An outbox and the sink of its events.
#[derive(Clone)]
pub struct OutboxConfig {
    /// Name and table.
    pub outbox: Outbox,
    /// Preset: intervals, retries, retention and alert thresholds.
    pub preset: Preset,
    /// How long a `request_id` is remembered.
    pub dedupe: Dedupe,
    /// Whether the store sends wake-up hints for it.
    pub notify: bool,
    /// How relays share the work. `None` follows the database; `Some` refuses to work in any other
    /// mode.
    pub claim: Option<ClaimMode>,
    /// Mode `rows`: the share of the rows that this relay claims.
    pub share: Share,
    /// Mode `lanes`: what happens to a key whose event fails.
    pub failing_key: FailingKey,
    /// Mode `lanes`: memory limits of the relay.
    pub lane_limits: LaneLimits,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// The same sink, if it consists of other outboxes: see [`OutboxConfig::fanned_out`].
    pub fan_out: Option<Arc<FanOut>>,
    /// A table of another program that this outbox serves. The relay only deletes its delivered
    /// rows.
    pub adoption: Option<Adoption>,
    /// Rules that retry dead letters without an operator.
    pub auto_retry: Vec<AutoRetry>,
    /// Rate limit of the sink; outboxes with the same sink share it.
    pub rate: Option<Arc<RateLimit>>,
    /// Maximum number of batches in flight. With three, one is settled while the next is delivered
    /// and a third is claimed.
    pub batches_max: usize,
    /// Maximum bytes of payload and headers per batch.
    pub batch_bytes_max: u64,
    /// Timeout of one delivery call; must be far below the stall time.
    pub deliver_timeout: Duration,
}

impl OutboxConfig {
    /// Creates the configuration of an outbox with the defaults of its preset.
    pub fn new(outbox: Outbox, preset: Preset, sink: Arc<dyn Sink>) -> Self {
        Self {
            outbox,
            preset,
            dedupe: Dedupe::default(),
            notify: false,
            claim: None,
            share: Share::WHOLE,
            failing_key: FailingKey::default(),
            lane_limits: LaneLimits::default(),
            sink,
            fan_out: None,
            adoption: None,
            auto_retry: Vec::new(),
            rate: None,
            batches_max: 3,
            batch_bytes_max: 8 * 1024 * 1024,
            deliver_timeout: Duration::from_secs(60),
        }
    }

    /// Creates the configuration of an outbox whose events are copied into other outboxes.
    pub fn fanned_out(outbox: Outbox, preset: Preset, fan_out: Arc<FanOut>) -> Self {
        let sink: Arc<dyn Sink> = Arc::clone(&fan_out) as _;
        Self { fan_out: Some(fan_out), ..Self::new(outbox, preset, sink) }
    }

    /// Returns whether the outbox keeps what destinations answered.
    pub(crate) fn keeps_answers(&self) -> bool {
        self.preset.on_success == OnSuccess::Archive
    }

    /// Builds the settlement of a delivered event for the store.
    pub(crate) fn delivery(&self, event: Event, response: Option<String>) -> Delivery {
        // The event was delivered, so its branches were already found, by the same rule.
        let fan_out = self.fan_out.as_ref();
        let branches = fan_out.and_then(|fan_out| fan_out.branches(&event).ok()).unwrap_or(0);
        Delivery { branches, response, ..Delivery::from(event) }
    }

    /// Returns the maximum number of rows per claim: no more than the rate limit lets through in
    /// half of a call's timeout.
    pub(crate) fn rows_max(&self) -> u32 {
        let batch = self.preset.batch;
        let in_time = self.rate.as_ref().map(|rate| rate.events_in(self.deliver_timeout / 2));
        in_time.map_or(batch, |rows| rows.clamp(1, batch.max(1)))
    }
}

/// How a key is treated in mode `lanes` while its front event fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailingKey {
    /// The key's events wait. When the front event becomes a dead letter, the key continues.
    #[default]
    Block,
    /// The key's events wait. When the front event becomes a dead letter, the key stops until an
    /// operator releases it.
    Park,
    /// The key's other events continue, and the order of the key is lost.
    Skip,
}

/// Settings of the whole relay.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Name of the host, shown to operators.
    pub host: String,
    /// A relay whose heartbeat has not moved for this long is declared dead.
    pub lease: Duration,
    /// Interval between heartbeats; several must fit into the lease.
    pub heartbeat_every: Duration,
    /// Maximum duration of a graceful stop.
    pub stop_timeout: Duration,
    /// Interval between checks for stalled rows of relays that are not in the list of relays.
    pub recover_every: Duration,
    /// How long such a row may be held.
    pub stalled_after: Duration,
    /// Interval between folds of the ledger and refreshes of the gauges.
    pub fold_every: Duration,
    /// Interval between checks of the monitor.
    pub monitor_every: Duration,
    /// Interval between reports; zero means never.
    pub report_every: Duration,
    /// Interval between attempts to move marked rows to the dead letters.
    pub move_marked_every: Duration,
    /// Hour and minute of the nightly clean-up.
    pub clean_up_at: (u32, u32),
    /// Time zone of the nightly clean-up.
    pub time_zone: jiff::tz::TimeZone,
    /// How long inboxes of the same database remember an event.
    pub inbox_retention: Duration,
    /// Rows per maintenance statement.
    pub chunk: u32,
    /// A store, or the Redis server of a buffer, that has not answered for this long raises an
    /// alert.
    pub unreachable_after: Duration,
    /// Dead letters that have waited this long for the store are written to the backup file.
    pub backup_after: Duration,
    /// Folder of the backup file.
    pub backup_folder: PathBuf,
    /// Size at which the backup file is rotated.
    pub backup_bytes_max: u64,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            lease: Duration::from_secs(6),
            heartbeat_every: Duration::from_secs(1),
            stop_timeout: Duration::from_secs(20),
            recover_every: Duration::from_secs(300),
            stalled_after: Duration::from_secs(300),
            fold_every: Duration::from_secs(5),
            monitor_every: Duration::from_secs(60),
            report_every: Duration::from_secs(600),
            move_marked_every: Duration::from_secs(30),
            clean_up_at: (2, 0),
            time_zone: jiff::tz::TimeZone::UTC,
            inbox_retention: postrider::INBOX_RETENTION,
            chunk: 5_000,
            unreachable_after: Duration::from_secs(30),
            backup_after: Duration::from_secs(30),
            backup_folder: PathBuf::from("postrider-data/dead-letters"),
            backup_bytes_max: 64 * 1024 * 1024,
        }
    }
}
