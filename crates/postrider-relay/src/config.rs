//! What a relay is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider::adopt::Adoption;
use postrider::store::{ClaimMode, Delivery, OnSuccess, Share};
use postrider::{Dedupe, Event, Outbox};
use serde::{Deserialize, Serialize};

use crate::auto_retry::AutoRetry;
use crate::fan_out::FanOut;
use crate::lanes::LaneLimits;
use crate::preset::Preset;
use crate::rate::RateLimit;
use crate::sink::Sink;

/// An outbox and where its events go.
#[derive(Clone)]
pub struct OutboxConfig {
    /// Name and table.
    pub outbox: Outbox,
    /// How it is worked through.
    pub preset: Preset,
    /// How long a `request_id` is remembered.
    pub dedupe: Dedupe,
    /// Whether the store sends wake-up hints for it.
    pub notify: bool,
    /// How relays share the work; `None` follows the database, `Some` refuses to work in another
    /// mode than this.
    pub claim: Option<ClaimMode>,
    /// Mode `rows`: the share of the rows that this relay takes.
    pub share: Share,
    /// Mode `lanes`: what becomes of a key whose event fails.
    pub failing_key: FailingKey,
    /// Mode `lanes`: what the relay keeps in memory.
    pub lane_limits: LaneLimits,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// The same, where it is other outboxes: see [`OutboxConfig::fanned_out`].
    pub fan_out: Option<Arc<FanOut>>,
    /// A table of another program that this outbox serves; the relay only cleans it up.
    pub adoption: Option<Adoption>,
    /// Dead letters that are sent again without an operator.
    pub auto_retry: Vec<AutoRetry>,
    /// Events per second that the sink gets; outboxes with the same sink share it.
    pub rate: Option<Arc<RateLimit>>,
    /// Batches in flight at the same time: one is settled while the next is delivered and a third
    /// is claimed.
    pub batches_max: usize,
    /// Bytes of payload and headers per batch.
    pub batch_bytes_max: u64,
    /// Time for one delivery call; far below the stall time.
    pub deliver_timeout: Duration,
}

impl OutboxConfig {
    /// An outbox with the defaults of its preset.
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

    /// An outbox whose events are copied into other outboxes.
    pub fn fanned_out(outbox: Outbox, preset: Preset, fan_out: Arc<FanOut>) -> Self {
        let sink: Arc<dyn Sink> = Arc::clone(&fan_out) as _;
        Self { fan_out: Some(fan_out), ..Self::new(outbox, preset, sink) }
    }

    /// Whether there is a place for what the destination of an event answers.
    pub(crate) fn keeps_answers(&self) -> bool {
        self.preset.on_success == OnSuccess::Archive
    }

    /// What the store is told of a delivered event.
    pub(crate) fn delivery(&self, event: Event, response: Option<String>) -> Delivery {
        // Delivered means that its branches were found before, by the same rule.
        let fan_out = self.fan_out.as_ref();
        let branches = fan_out.and_then(|fan_out| fan_out.branches(&event).ok()).unwrap_or(0);
        Delivery { branches, response, ..Delivery::from(event) }
    }

    /// Rows per claim: no more than the rate lets through in half of a call's time.
    pub(crate) fn rows_max(&self) -> u32 {
        let batch = self.preset.batch;
        let in_time = self.rate.as_ref().map(|rate| rate.events_in(self.deliver_timeout / 2));
        in_time.map_or(batch, |rows| rows.clamp(1, batch.max(1)))
    }
}

/// What becomes of a key in mode `lanes` while its front event fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailingKey {
    /// Its events wait; when the front one is a dead letter, the key goes on.
    #[default]
    Block,
    /// Its events wait; when the front one is a dead letter, the key stops until an operator
    /// releases it.
    Park,
    /// The others go on, and the order of the key is lost.
    Skip,
}

/// Settings of the whole relay.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// Where it runs, for people.
    pub host: String,
    /// A relay whose heartbeat has not moved for this long is declared dead.
    pub lease: Duration,
    /// Between heartbeats; a few fit into the lease.
    pub heartbeat_every: Duration,
    /// Time that a graceful stop may take.
    pub stop_timeout: Duration,
    /// Between looks for stalled rows of relays that are on no list.
    pub recover_every: Duration,
    /// How long such a row may be held.
    pub stalled_after: Duration,
    /// Between folds of the books, and refreshes of the gauges.
    pub fold_every: Duration,
    /// Between looks of the monitor.
    pub monitor_every: Duration,
    /// Between reports; zero is never.
    pub report_every: Duration,
    /// Between tries to move marked rows to the dead letters.
    pub move_marked_every: Duration,
    /// Hour and minute of the nightly clean-up.
    pub clean_up_at: (u32, u32),
    /// Time zone of the nightly clean-up.
    pub time_zone: jiff::tz::TimeZone,
    /// How long inboxes of the same database remember an event.
    pub inbox_retention: Duration,
    /// Rows per statement of house-keeping.
    pub chunk: u32,
    /// A store, or the Redis of a buffer, that has not answered for this long raises an alert.
    pub unreachable_after: Duration,
    /// Dead letters that have waited this long for the store go to the backup file.
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
