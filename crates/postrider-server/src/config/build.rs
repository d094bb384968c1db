//! Builds the relay's settings from the configuration.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_command::parse_time;
use postrider_relay::{
    Backoff, BufferConfig, FanOut, OutboxConfig, Preset, RateLimit, RelayConfig, Sink,
    TraceSettings,
    alerts::{AlertSettings, Subscription},
    gateway::GatewaySink,
    sinks::{ChatSink, LogSink, NullSink},
};
use postrider_store::{Dedupe, OnSuccess, OutboxSpec};

use super::ConfigError;
use super::alerts::channels;
use super::auto_retry::AutoRetrySection;
use super::buffer::buffers;
use super::file::{Config, OnSuccessWord, OutboxSection, SinkSection, TelemetrySection};
use super::gateway::BuiltGateway;
use super::value::Time;

/// Of events without a trace, the share that starts one.
pub(super) const TRACE_RATIO: f64 = 1.0;

/// Everything that a relay needs.
pub(crate) struct Built {
    pub(crate) relay: RelayConfig,
    pub(crate) outboxes: Vec<OutboxConfig>,
    pub(crate) buffers: Vec<BufferConfig>,
    pub(crate) gateways: Vec<BuiltGateway>,
    pub(crate) channels: Vec<Subscription>,
    pub(crate) alert_settings: AlertSettings,
    pub(crate) traces: Option<TraceSettings>,
}

impl Built {
    /// Returns the outboxes that `migrate` sets up.
    pub(crate) fn specs(&self) -> Vec<OutboxSpec> {
        self.outboxes
            .iter()
            .map(|config| OutboxSpec {
                outbox: config.outbox.clone(),
                dedupe: config.dedupe,
                notify: config.notify,
                claim: config.claim.unwrap_or_default(),
                adoption: config.adoption.clone(),
            })
            .collect()
    }
}

/// A sink with the rate limit that all of its outboxes share.
struct Target {
    sink: Arc<dyn Sink>,
    rate: Option<Arc<RateLimit>>,
    fan_out: Option<Arc<FanOut>>,
}

impl Config {
    pub(crate) fn build(self) -> Result<Built, ConfigError> {
        let names = names(&self.outbox)?;
        let mut sinks: HashMap<String, Target> = HashMap::new();
        for section in &self.sink {
            let (name, target) = target(section, &names)?;
            if name.trim().is_empty() {
                let message = "[[sink]] `name` is empty; outboxes refer to a sink by its name";
                return Err(ConfigError::Invalid(message.to_owned()));
            }
            if sinks.insert(name.clone(), target).is_some() {
                return Err(ConfigError::Invalid(format!(
                    "[[sink]] `{name}`: another sink has this name"
                )));
            }
        }
        let mut upstreams = Vec::new();
        for section in &self.gateway {
            if section.name.trim().is_empty() {
                let message = "[[gateway]] `name` is empty; its outbox refers to it by this name";
                return Err(ConfigError::Invalid(message.to_owned()));
            }
            let saves = self.outbox.iter().find(|outbox| outbox.sink == section.name);
            let preset = preset(saves.ok_or_else(|| section.no_outbox())?)?;
            let upstream = Arc::new(section.build(&preset, self.api.request_timeout.0)?);
            let sink: Arc<dyn Sink> = Arc::new(GatewaySink::new(Arc::clone(&upstream)));
            let target = Target { sink, rate: None, fan_out: None };
            if sinks.insert(section.name.clone(), target).is_some() {
                return Err(ConfigError::Invalid(format!(
                    "[[gateway]] `{}`: another gateway or sink has this name",
                    section.name
                )));
            }
            upstreams.push(upstream);
        }
        let outboxes = outboxes(&self.outbox, &sinks)?;
        refuse_circles(&outboxes)?;
        let buffers = buffers(&self.buffer, &names)?;
        let mut gateways = Vec::new();
        for (section, upstream) in self.gateway.iter().zip(upstreams) {
            let outbox = section.outbox(&outboxes)?.clone();
            gateways.push(BuiltGateway { upstream, outbox });
        }
        let channels = channels(&self.alert)?;
        let usual = AlertSettings::default();
        let cool_down = self.relay.alert_cool_down.map_or(usual.cool_down, |time| time.0);
        let alert_settings = AlertSettings { cool_down, ..usual };
        let traces = traces(&self.telemetry)?;
        let relay = relay(&self)?;
        Ok(Built { relay, outboxes, buffers, gateways, channels, alert_settings, traces })
    }
}

/// Builds the outboxes. No two have a name or a table in common, adopted tables included.
fn outboxes(
    sections: &[OutboxSection],
    sinks: &HashMap<String, Target>,
) -> Result<Vec<OutboxConfig>, ConfigError> {
    let mut seen = HashSet::new();
    let mut outboxes = Vec::new();
    for section in sections {
        let config = outbox(section, sinks)?;
        if !seen.insert(config.outbox.name().to_owned())
            || !seen.insert(format!("table {}", config.outbox.table()))
        {
            return Err(ConfigError::Invalid(format!(
                "[[outbox]] `{}`: another outbox has this name or table",
                section.name
            )));
        }
        let table = config.adoption.as_ref().map(|adoption| &adoption.table);
        if let Some(table) = table.filter(|table| !seen.insert(format!("table {table}"))) {
            return Err(ConfigError::Invalid(format!(
                "[[outbox]] `{}`: [outbox.adopt] table = \"{table}\": another outbox has or \
                 serves this table",
                section.name
            )));
        }
        outboxes.push(config);
    }
    Ok(outboxes)
}

fn traces(section: &TelemetrySection) -> Result<Option<TraceSettings>, ConfigError> {
    let Some(endpoint) = &section.otlp_endpoint else { return Ok(None) };
    let headers = section.otlp_headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    TraceSettings::new(endpoint.expose(), headers, section.trace_ratio.unwrap_or(TRACE_RATIO))
        .map(Some)
        .map_err(|error| ConfigError::Invalid(format!("[telemetry] {error}")))
}

fn relay(config: &Config) -> Result<RelayConfig, ConfigError> {
    let (section, default) = (&config.relay, RelayConfig::default());
    let time = |value: Option<Time>, default| value.map_or(default, |time| time.0);
    let zone = section.time_zone.as_deref().unwrap_or("UTC");
    let time_zone = jiff::tz::TimeZone::get(zone).map_err(|_| {
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
        monitor_every: time(section.monitor_every, default.monitor_every),
        report_every: time(section.report_every, default.report_every),
        clean_up_at: clean_up_at(section.clean_up_at.as_deref().unwrap_or("02:00"))?,
        time_zone,
        inbox_retention: time(section.inbox_retention, default.inbox_retention),
        unreachable_after: time(section.unreachable_after, default.unreachable_after),
        backup_after: time(section.backup_after, default.backup_after),
        backup_folder: section.backup_folder.clone().unwrap_or(default.backup_folder.clone()),
        backup_bytes_max: section.backup_bytes_max.unwrap_or(default.backup_bytes_max),
        ..default
    };
    if built.monitor_every < Duration::from_millis(100) {
        return Err(ConfigError::Invalid(format!(
            "[relay] monitor_every = {:?} is too short: each look asks the database; at least \
             100ms",
            built.monitor_every
        )));
    }
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
                "[relay] clean_up_at = \"{text}\" is not a time of day; write it like \"02:00\""
            ))
        })
}

/// Returns the host's name and the process id, for people who look at the list of relays.
fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "localhost".to_owned());
    format!("{host}/{}", std::process::id())
}

fn named(section: &OutboxSection) -> Result<Outbox, ConfigError> {
    Ok(match &section.table {
        Some(table) => Outbox::with_table(&section.name, table)?,
        None => Outbox::new(&section.name)?,
    })
}

/// Returns the outboxes by name, for fan-out sinks, which write into other outboxes.
fn names(sections: &[OutboxSection]) -> Result<BTreeMap<String, Outbox>, ConfigError> {
    sections.iter().map(|section| Ok((section.name.clone(), named(section)?))).collect()
}

/// Refuses fan-outs that lead back to their own outbox: their events would be copied for ever.
fn refuse_circles(outboxes: &[OutboxConfig]) -> Result<(), ConfigError> {
    let children = |name: &str| {
        let found = outboxes.iter().find(|config| config.outbox.name() == name);
        let fan_out = found.and_then(|config| config.fan_out.as_ref());
        fan_out.map_or(&[][..], |fan_out| fan_out.children())
    };
    for config in outboxes {
        let start = config.outbox.name();
        let (mut todo, mut seen) = (vec![start], HashSet::new());
        while let Some(name) = todo.pop() {
            for child in children(name) {
                if child.name() == start {
                    return Err(ConfigError::Invalid(format!(
                        "[[outbox]] `{start}`: the branches of its sink lead back to it"
                    )));
                }
                if seen.insert(child.name()) {
                    todo.push(child.name());
                }
            }
        }
    }
    Ok(())
}

fn outbox(
    section: &OutboxSection,
    sinks: &HashMap<String, Target>,
) -> Result<OutboxConfig, ConfigError> {
    let place = format!("[[outbox]] `{}`", section.name);
    let invalid = |message: String| ConfigError::Invalid(format!("{place}: {message}"));
    let outbox = named(section)?;
    let preset = preset(section)?;
    let target = sinks.get(&section.sink).ok_or_else(|| {
        let mut names: Vec<&str> = sinks.keys().map(String::as_str).collect();
        names.sort_unstable();
        invalid(format!(
            "sink = \"{}\" is not the name of a [[sink]] or [[gateway]]; there is: {}",
            section.sink,
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        ))
    })?;
    let mut config = OutboxConfig::new(outbox, preset, Arc::clone(&target.sink));
    config.rate = target.rate.clone();
    config.fan_out = target.fan_out.clone();
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
    if let Some(adopt) = &section.adopt {
        let keeps = config.preset.on_success == OnSuccess::Archive;
        config.adoption = Some(adopt.build(keeps).map_err(&invalid)?);
    }
    config.claim = section.claim;
    config.failing_key = section.failing_key.unwrap_or_default();
    if let Some(share) = section.share {
        if share.of == 0 || share.index >= share.of {
            return Err(invalid(format!(
                "share = {{ of = {}, index = {} }}: index is from 0 to of - 1",
                share.of, share.index
            )));
        }
        config.share = share;
    }
    let rules = section.auto_retry.iter().map(AutoRetrySection::build);
    config.auto_retry = rules.collect::<Result<_, String>>().map_err(&invalid)?;
    if config.batches_max == 0 || config.batches_max > 64 {
        return Err(invalid(format!("batches_max = {}: allowed is 1 to 64", config.batches_max)));
    }
    if config.batch_bytes_max == 0 {
        return Err(invalid("batch_bytes_max = 0: at least 1; one event travels alone".to_owned()));
    }
    Ok(config)
}

/// Returns the named preset with the overrides of the section.
fn preset(section: &OutboxSection) -> Result<Preset, ConfigError> {
    let invalid =
        |message: String| ConfigError::Invalid(format!("[[outbox]] `{}`: {message}", section.name));
    let named = Preset::by_name(&section.preset).ok_or_else(|| {
        let names = Preset::all().map(|preset| preset.name).join(", ");
        invalid(format!("preset = \"{}\" is unknown; allowed: {names}", section.preset))
    })?;
    let mut preset = overridden(named, section);
    preset.alerts = section.alerts.over(preset.alerts).map_err(invalid)?;
    check(&preset).map_err(invalid)?;
    Ok(preset)
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
        alerts: preset.alerts,
    }
}

/// Checks that the numbers are within their ranges.
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

fn target(
    section: &SinkSection,
    outboxes: &BTreeMap<String, Outbox>,
) -> Result<(String, Target), ConfigError> {
    let mut fan_out = None;
    let (name, sink): (&str, Arc<dyn Sink>) = match section {
        SinkSection::Log { name, .. } => (name, Arc::new(LogSink::new(name))),
        SinkSection::Null { name, .. } => (name, Arc::new(NullSink::new(name))),
        SinkSection::Http(http) => (&http.name, Arc::new(http.build()?)),
        SinkSection::Discord(chat) => (&chat.name, Arc::new(ChatSink::discord(chat.settings()?)?)),
        SinkSection::Slack(chat) => (&chat.name, Arc::new(ChatSink::slack(chat.settings()?)?)),
        SinkSection::Redis(redis) => (&redis.name, Arc::new(redis.build()?)),
        SinkSection::Kafka(kafka) => (&kafka.name, Arc::new(kafka.build()?)),
        SinkSection::Rabbitmq(rabbit) => (&rabbit.name, Arc::new(rabbit.build()?)),
        SinkSection::Nats(nats) => (&nats.name, Arc::new(nats.build()?)),
        SinkSection::Outbox(section) => {
            let built = Arc::new(section.build(outboxes)?);
            fan_out = Some(Arc::clone(&built));
            (&section.name, built)
        }
    };
    let rate = rate(name, section)?;
    Ok((name.to_owned(), Target { sink, rate, fan_out }))
}

/// Builds the limit of a sink. Without `burst`, a burst is the events of one second.
fn rate(name: &str, section: &SinkSection) -> Result<Option<Arc<RateLimit>>, ConfigError> {
    let Some(rate) = section.rate() else { return Ok(None) };
    let burst = rate.burst.unwrap_or_else(|| (rate.events_per_s as u32).max(1));
    RateLimit::new(rate.events_per_s, burst)
        .map(|limit| Some(Arc::new(limit)))
        .map_err(|error| ConfigError::Invalid(format!("[[sink]] `{name}`: rate: {error}")))
}
