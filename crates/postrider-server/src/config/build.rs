//! From the configuration to what the relay is told.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::store::OnSuccess;
use postrider::{Dedupe, Outbox, OutboxSpec};
use postrider_relay::alert::{Channel, DiscordChannel};
use postrider_relay::sinks::{ChatSink, LogSink, NullSink};
use postrider_relay::{Backoff, OutboxConfig, Preset, RelayConfig, Sink};

use super::ConfigError;
use super::file::{AlertSection, Config, OnSuccessWord, OutboxSection, SinkSection};
use super::value::{Time, parse_time};

/// Everything that a relay needs.
pub(crate) struct Built {
    pub(crate) relay: RelayConfig,
    pub(crate) outboxes: Vec<OutboxConfig>,
    pub(crate) channels: Vec<Box<dyn Channel>>,
    pub(crate) alert_cool_down: Duration,
}

impl Built {
    /// What `migrate` sets up.
    pub(crate) fn specs(&self) -> Vec<OutboxSpec> {
        self.outboxes
            .iter()
            .map(|config| OutboxSpec {
                outbox: config.outbox.clone(),
                dedupe: config.dedupe,
                notify: config.notify,
            })
            .collect()
    }
}

impl Config {
    pub(crate) fn build(self) -> Result<Built, ConfigError> {
        let mut sinks: HashMap<String, Arc<dyn Sink>> = HashMap::new();
        for section in &self.sink {
            let (name, sink) = sink(section)?;
            if sinks.insert(name.clone(), sink).is_some() {
                return Err(ConfigError::Invalid(format!(
                    "[[sink]] `{name}`: another sink has this name"
                )));
            }
        }
        let mut seen = HashSet::new();
        let mut outboxes = Vec::new();
        for section in &self.outbox {
            let config = outbox(section, &sinks)?;
            if !seen.insert(config.outbox.name().to_owned())
                || !seen.insert(format!("table {}", config.outbox.table()))
            {
                return Err(ConfigError::Invalid(format!(
                    "[[outbox]] `{}`: another outbox has this name or table",
                    section.name
                )));
            }
            outboxes.push(config);
        }
        let channels = self.alert.iter().map(channel).collect::<Result<Vec<_>, ConfigError>>()?;
        let cool_down = self.relay.alert_cool_down.map_or(Duration::from_secs(300), |t| t.0);
        Ok(Built { relay: relay(&self)?, outboxes, channels, alert_cool_down: cool_down })
    }
}

fn relay(config: &Config) -> Result<RelayConfig, ConfigError> {
    let (section, default) = (&config.relay, RelayConfig::default());
    let time = |value: Option<Time>, default| value.map_or(default, |time| time.0);
    let zone = section.time_zone.as_deref().unwrap_or("UTC");
    let time_zone = zone.parse().map_err(|_| {
        ConfigError::Invalid(format!(
            "[relay] time_zone = \"{zone}\" is unknown; use a name like \"UTC\" or \"Asia/Seoul\""
        ))
    })?;
    let built = RelayConfig {
        host: host_name(),
        lease: time(section.lease, default.lease),
        heartbeat_every: time(section.heartbeat_every, default.heartbeat_every),
        stop_timeout: time(section.stop_timeout, default.stop_timeout),
        recover_every: time(section.recover_every, default.recover_every),
        stalled_after: time(section.stalled_after, default.stalled_after),
        fold_every: time(section.fold_every, default.fold_every),
        move_marked_every: time(section.move_marked_every, default.move_marked_every),
        unresolved_alert_at: section
            .unresolved_alert_at
            .map_or(default.unresolved_alert_at, i64::from),
        clean_up_at: clean_up_at(section.clean_up_at.as_deref().unwrap_or("02:00"))?,
        time_zone,
        backup_folder: section.backup_folder.clone().unwrap_or(default.backup_folder.clone()),
        backup_bytes_max: section.backup_bytes_max.unwrap_or(default.backup_bytes_max),
        ..default
    };
    if built.heartbeat_every * 3 > built.lease {
        return Err(ConfigError::Invalid(format!(
            "[relay] heartbeat_every = {:?} is too long for lease = {:?}: at least three must fit, \
             so that one lost heartbeat is not a death",
            built.heartbeat_every, built.lease
        )));
    }
    Ok(built)
}

fn clean_up_at(text: &str) -> Result<(u32, u32), ConfigError> {
    text.split_once(':')
        .and_then(|(hour, minute)| Some((hour.parse().ok()?, minute.parse().ok()?)))
        .filter(|(hour, minute)| *hour < 24 && *minute < 60)
        .ok_or_else(|| {
            ConfigError::Invalid(format!(
                "[relay] clean_up_at = \"{text}\" is no time of day; write it like \"02:00\""
            ))
        })
}

/// For people who look at the list of relays.
fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "localhost".to_owned());
    format!("{host}/{}", std::process::id())
}

fn outbox(
    section: &OutboxSection,
    sinks: &HashMap<String, Arc<dyn Sink>>,
) -> Result<OutboxConfig, ConfigError> {
    let place = format!("[[outbox]] `{}`", section.name);
    let invalid = |message: String| ConfigError::Invalid(format!("{place}: {message}"));
    let outbox = match &section.table {
        Some(table) => Outbox::with_table(&section.name, table)?,
        None => Outbox::new(&section.name)?,
    };
    let preset = Preset::by_name(&section.preset).ok_or_else(|| {
        let names = Preset::all().map(|preset| preset.name).join(", ");
        invalid(format!("preset = \"{}\" is unknown; allowed: {names}", section.preset))
    })?;
    let sink = sinks.get(&section.sink).ok_or_else(|| {
        let mut names: Vec<&str> = sinks.keys().map(String::as_str).collect();
        names.sort_unstable();
        invalid(format!(
            "sink = \"{}\" is not defined; the [[sink]] blocks define: {}",
            section.sink,
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ))
    })?;
    let preset = overridden(preset, section);
    check(&preset).map_err(&invalid)?;
    let mut config = OutboxConfig::new(outbox, preset, Arc::clone(sink));
    if let Some(dedupe) = &section.dedupe {
        config.dedupe = match dedupe.as_str() {
            "open" => Dedupe::Open,
            time => Dedupe::Window(
                parse_time(time)
                    .map_err(|error| invalid(format!("dedupe: {error}, or \"open\"")))?,
            ),
        };
    }
    config.notify = section.notify.unwrap_or(false);
    config.batches_max = section.batches_max.unwrap_or(config.batches_max);
    config.batch_bytes_max = section.batch_bytes_max.unwrap_or(config.batch_bytes_max);
    config.deliver_timeout = section.deliver_timeout.map_or(config.deliver_timeout, |t| t.0);
    if config.batches_max == 0 || config.batches_max > 64 {
        return Err(invalid(format!("batches_max = {}: allowed is 1 to 64", config.batches_max)));
    }
    Ok(config)
}

fn overridden(preset: Preset, section: &OutboxSection) -> Preset {
    let time = |value: Option<Time>, default| value.map_or(default, |time| time.0);
    let first = time(section.backoff_first, preset.backoff.first);
    Preset {
        name: preset.name,
        idle_poll: time(section.idle_poll, preset.idle_poll),
        batch: section.batch.unwrap_or(preset.batch),
        backoff: Backoff {
            first,
            factor: section.backoff_factor.unwrap_or(preset.backoff.factor),
            max: time(section.backoff_max, preset.backoff.max.max(first)),
            jitter: section.jitter.unwrap_or(preset.backoff.jitter),
        },
        max_retries: section.max_retries.unwrap_or(preset.max_retries),
        on_success: match section.on_success {
            Some(OnSuccessWord::Delete) => OnSuccess::Delete,
            Some(OnSuccessWord::Archive) => OnSuccess::Archive,
            None => preset.on_success,
        },
        retention: time(section.retention, preset.retention),
        require_hash: section.require_hash.unwrap_or(preset.require_hash),
        max_age: section.max_age.map(|time| time.0).or(preset.max_age),
        outage_spends_attempts: section
            .outage_spends_attempts
            .unwrap_or(preset.outage_spends_attempts),
        outage_max: time(section.outage_max, preset.outage_max),
    }
}

/// Numbers that would make no sense.
fn check(preset: &Preset) -> Result<(), String> {
    match preset {
        Preset { batch: 0, .. } => Err("batch = 0: allowed is 1 to 10000".to_owned()),
        Preset { batch, .. } if *batch > 10_000 => {
            Err(format!("batch = {batch}: allowed is 1 to 10000"))
        }
        Preset { max_retries: 0, .. } => Err("max_retries = 0: allowed is 1 to 1000".to_owned()),
        Preset { max_retries, .. } if *max_retries > 1_000 => {
            Err(format!("max_retries = {max_retries}: allowed is 1 to 1000"))
        }
        Preset { idle_poll, .. } if *idle_poll < Duration::from_millis(5) => {
            Err(format!("idle_poll = {idle_poll:?}: at least 5ms"))
        }
        Preset { backoff: Backoff { jitter, .. }, .. } if !(0.0..=1.0).contains(jitter) => {
            Err(format!("jitter = {jitter}: allowed is 0 to 1"))
        }
        Preset { backoff: Backoff { factor, .. }, .. } if !(1.0..=100.0).contains(factor) => {
            Err(format!("backoff_factor = {factor}: allowed is 1 to 100"))
        }
        _ => Ok(()),
    }
}

fn sink(section: &SinkSection) -> Result<(String, Arc<dyn Sink>), ConfigError> {
    Ok(match section {
        SinkSection::Log { name } => (name.clone(), Arc::new(LogSink::new(name))),
        SinkSection::Null { name } => (name.clone(), Arc::new(NullSink::new(name))),
        SinkSection::Http(http) => (http.name.clone(), Arc::new(http.build()?)),
        SinkSection::Discord(chat) => {
            (chat.name.clone(), Arc::new(ChatSink::discord(chat.settings()?)?))
        }
        SinkSection::Slack(chat) => {
            (chat.name.clone(), Arc::new(ChatSink::slack(chat.settings()?)?))
        }
        SinkSection::Redis(redis) => (redis.name.clone(), Arc::new(redis.build()?)),
        SinkSection::Kafka(kafka) => (kafka.name.clone(), Arc::new(kafka.build()?)),
        SinkSection::Rabbitmq(rabbit) => (rabbit.name.clone(), Arc::new(rabbit.build()?)),
        SinkSection::Nats(nats) => (nats.name.clone(), Arc::new(nats.build()?)),
    })
}

fn channel(section: &AlertSection) -> Result<Box<dyn Channel>, ConfigError> {
    match section {
        AlertSection::Discord { url, payloads } => {
            let channel = DiscordChannel::new(url.expose().to_owned(), *payloads)
                .map_err(|error| ConfigError::Invalid(format!("[[alert]] discord: {error}")))?;
            Ok(Box::new(channel))
        }
    }
}
