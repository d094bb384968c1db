//! The structure of the configuration file. `default.toml` describes meaning, unit and default of
//! each key.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postrider_relay::FailingKey;
use postrider_store::{ClaimMode, Share};
use serde::Deserialize;

use super::ConfigError;
use super::adopt::AdoptSection;
use super::alerts::{AlertSection, ThresholdsSection};
use super::auto_retry::AutoRetrySection;
use super::brokers::{KafkaSection, NatsSection, RabbitSection, RedisSection};
use super::buffer::BufferSection;
use super::gateway::GatewaySection;
use super::sink::{ChatSection, FanOutSection, HttpSection, RateSection};
use super::value::{Secret, Time};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) store: StoreSection,
    #[serde(default)]
    pub(crate) server: ServerSection,
    #[serde(default)]
    pub(crate) api: ApiSection,
    #[serde(default)]
    pub(crate) relay: RelaySection,
    #[serde(default)]
    pub(crate) telemetry: TelemetrySection,
    #[serde(default)]
    pub(crate) outbox: Vec<OutboxSection>,
    #[serde(default)]
    pub(crate) sink: Vec<SinkSection>,
    #[serde(default)]
    pub(crate) buffer: Vec<BufferSection>,
    #[serde(default)]
    pub(crate) gateway: Vec<GatewaySection>,
    #[serde(default)]
    pub(crate) alert: Vec<AlertSection>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) url: Secret,
    pub(crate) connections_max: u32,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self { url: "sqlite:./postrider-data/postrider.db".to_owned().into(), connections_max: 8 }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Option<Secret>,
    pub(crate) body_bytes_max: usize,
    pub(crate) write_timeout: Time,
    pub(crate) connections_per_address_max: usize,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            token: None,
            body_bytes_max: 5 * 1024 * 1024,
            write_timeout: Time(Duration::from_secs(30)),
            connections_per_address_max: 256,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApiSection {
    pub(crate) tokens_file: Option<PathBuf>,
    pub(crate) tokens: Option<Secret>,
    pub(crate) requests_per_s: u32,
    pub(crate) sign_in_failures_per_min: u32,
    pub(crate) request_timeout: Time,
    pub(crate) list_budget: Time,
    pub(crate) import_bytes_max: usize,
    pub(crate) session_idle: Time,
    pub(crate) session_max: Time,
    pub(crate) sessions_max: usize,
    pub(crate) stream_every: Time,
    pub(crate) stream_clients_max: usize,
}

impl Default for ApiSection {
    fn default() -> Self {
        let seconds = |seconds| Time(Duration::from_secs(seconds));
        Self {
            tokens_file: None,
            tokens: None,
            requests_per_s: 100,
            sign_in_failures_per_min: 10,
            request_timeout: seconds(10),
            list_budget: Time(Duration::from_millis(25)),
            import_bytes_max: 64 * 1024 * 1024,
            session_idle: seconds(30 * 60),
            session_max: seconds(12 * 3_600),
            sessions_max: 200,
            stream_every: seconds(2),
            stream_clients_max: 64,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RelaySection {
    pub(crate) lease: Option<Time>,
    pub(crate) heartbeat_every: Option<Time>,
    pub(crate) stop_timeout: Option<Time>,
    pub(crate) recover_every: Option<Time>,
    pub(crate) stalled_after: Option<Time>,
    pub(crate) fold_every: Option<Time>,
    pub(crate) move_marked_every: Option<Time>,
    pub(crate) monitor_every: Option<Time>,
    pub(crate) report_every: Option<Time>,
    pub(crate) clean_up_at: Option<String>,
    pub(crate) time_zone: Option<String>,
    pub(crate) inbox_retention: Option<Time>,
    pub(crate) unreachable_after: Option<Time>,
    pub(crate) backup_after: Option<Time>,
    pub(crate) backup_folder: Option<PathBuf>,
    pub(crate) backup_bytes_max: Option<u64>,
    pub(crate) alert_cool_down: Option<Time>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetrySection {
    pub(crate) otlp_endpoint: Option<Secret>,
    pub(crate) otlp_headers: BTreeMap<String, Secret>,
    pub(crate) trace_ratio: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutboxSection {
    pub(crate) name: String,
    pub(crate) table: Option<String>,
    pub(crate) preset: String,
    pub(crate) sink: String,
    pub(crate) idle_poll: Option<Time>,
    pub(crate) batch: Option<u32>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) backoff_first: Option<Time>,
    pub(crate) backoff_factor: Option<f64>,
    pub(crate) backoff_max: Option<Time>,
    pub(crate) jitter: Option<f64>,
    pub(crate) on_success: Option<OnSuccessWord>,
    pub(crate) retention: Option<Time>,
    pub(crate) require_hash: Option<bool>,
    pub(crate) max_age: Option<Time>,
    pub(crate) outage_spends_attempts: Option<bool>,
    pub(crate) outage_max: Option<Time>,
    pub(crate) dedupe: Option<String>,
    pub(crate) notify: Option<bool>,
    pub(crate) batches_max: Option<usize>,
    pub(crate) batch_bytes_max: Option<u64>,
    pub(crate) deliver_timeout: Option<Time>,
    pub(crate) claim: Option<ClaimMode>,
    pub(crate) failing_key: Option<FailingKey>,
    pub(crate) share: Option<Share>,
    pub(crate) adopt: Option<AdoptSection>,
    #[serde(default)]
    pub(crate) auto_retry: Vec<AutoRetrySection>,
    #[serde(default)]
    pub(crate) alerts: ThresholdsSection,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnSuccessWord {
    Delete,
    Archive,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum SinkSection {
    Log { name: String, rate: Option<RateSection> },
    Null { name: String, rate: Option<RateSection> },
    Http(Box<HttpSection>),
    Discord(Box<ChatSection>),
    Slack(Box<ChatSection>),
    Redis(Box<RedisSection>),
    Kafka(Box<KafkaSection>),
    Rabbitmq(Box<RabbitSection>),
    Nats(Box<NatsSection>),
    Outbox(Box<FanOutSection>),
}

impl SinkSection {
    pub(crate) fn rate(&self) -> Option<RateSection> {
        match self {
            Self::Log { rate, .. } | Self::Null { rate, .. } => *rate,
            Self::Http(section) => section.rate,
            Self::Discord(section) | Self::Slack(section) => section.rate,
            Self::Redis(section) => section.rate,
            Self::Kafka(section) => section.rate,
            Self::Rabbitmq(section) => section.rate,
            Self::Nats(section) => section.rate,
            Self::Outbox(_) => None,
        }
    }
}

impl Config {
    /// Checks what deserialization alone does not.
    pub(crate) fn validated(self) -> Result<Self, ConfigError> {
        let invalid = |message: String| Err(ConfigError::Invalid(message));
        let no_token = self.server.token.is_none()
            && self.api.tokens.is_none()
            && self.api.tokens_file.is_none();
        if !self.server.listen.ip().is_loopback() && no_token {
            return invalid(format!(
                "[server] listen = \"{}\" can be reached from other machines: set `tokens_file` in \
                 [api] (`postrider token new` makes a token), or listen on 127.0.0.1",
                self.server.listen
            ));
        }
        self.api.validated()?;
        if self.store.connections_max < 2 {
            return invalid(format!(
                "[store] connections_max = {}: at least 2 are needed, so that a heartbeat does not \
                 wait for a batch",
                self.store.connections_max
            ));
        }
        if self.server.token.as_ref().is_some_and(|token| token.expose().len() < 16) {
            return invalid("[server] token: use at least 16 characters".to_owned());
        }
        if self.server.connections_per_address_max == 0 {
            return invalid("[server] connections_per_address_max = 0: at least 1".to_owned());
        }
        if self.server.write_timeout.0 < Duration::from_millis(100) {
            let timeout = self.server.write_timeout.0;
            return invalid(format!("[server] write_timeout = {timeout:?}: at least 100ms"));
        }
        Ok(self)
    }
}

/// Half of the time after which the dashboard considers a silent stream dead (`SILENT_MS`).
const STREAM_EVERY_MAX: Duration = Duration::from_secs(20);

impl ApiSection {
    fn validated(&self) -> Result<(), ConfigError> {
        let at_least = |key: &str, value: Duration, min: Duration| match value < min {
            true => Err(ConfigError::Invalid(format!("[api] {key} = {value:?}: at least {min:?}"))),
            false => Ok(()),
        };
        at_least("request_timeout", self.request_timeout.0, Duration::from_millis(100))?;
        at_least("list_budget", self.list_budget.0, Duration::from_millis(1))?;
        at_least("session_idle", self.session_idle.0, Duration::from_secs(1))?;
        if self.session_max.0 < self.session_idle.0 {
            let (max, idle) = (self.session_max.0, self.session_idle.0);
            return Err(ConfigError::Invalid(format!(
                "[api] session_max = {max:?}: at least session_idle = {idle:?}"
            )));
        }
        at_least("stream_every", self.stream_every.0, Duration::from_millis(100))?;
        if self.stream_every.0 > STREAM_EVERY_MAX {
            let (every, max) = (self.stream_every.0, STREAM_EVERY_MAX);
            return Err(ConfigError::Invalid(format!(
                "[api] stream_every = {every:?}: at most {max:?}"
            )));
        }
        for (key, value) in [
            ("requests_per_s", self.requests_per_s as usize),
            ("sign_in_failures_per_min", self.sign_in_failures_per_min as usize),
            ("sessions_max", self.sessions_max),
            ("stream_clients_max", self.stream_clients_max),
        ] {
            if value == 0 {
                return Err(ConfigError::Invalid(format!("[api] {key} = 0: at least 1")));
            }
        }
        Ok(())
    }
}
