//! The defaults that docs/configuration.md and default.toml name are those of the code.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::{Buffer, BufferSettings};
use postrider_command::parse_time;
use postrider_relay::gateway::{CacheSettings, GatewaySettings};
use postrider_relay::message::{EnvelopeSettings, Form};
use postrider_relay::sinks::{
    ChatSettings, HttpSettings, KafkaSettings, NatsSettings, RabbitSettings, RedisSettings,
};
use postrider_relay::{BufferConfig, OutboxConfig, Preset};
use postrider_store::{BatchTarget, ClaimMode, Dedupe, TableTarget, adopt::StateWords};

use super::file::StoreSection;
use super::{ApiSection, Built, Config, DEFAULT, ServerSection};

const PAGE: &str = include_str!("../../../../docs/configuration.md");
/// The required keys and nothing else.
const SMALLEST: &str = "[[outbox]]\nname = 'a'\npreset = 'broker'\nsink = 'b'\n\
                        [[sink]]\nname = 'b'\nkind = 'log'\n";
/// Keys whose default is made of the block's name.
const BY_NAME: [&str; 2] = ["outbox.table", "buffer.key"];
/// Keys for which default.toml shows another value than the default, as an example.
const EXAMPLES: [&str; 3] = ["outbox.claim", "outbox.auto_retry.backoff_factor", "sink.timeout"];

/// A default of the code.
enum Real {
    Time(Duration),
    Number(f64),
    Text(String),
}

impl Real {
    fn is(&self, written: &str) -> bool {
        let text = written.trim_matches('"');
        match self {
            Self::Time(time) => parse_time(text).as_ref() == Ok(time),
            Self::Number(number) => text.replace(['_', ','], "").parse() == Ok(*number),
            Self::Text(real) => text.trim_start_matches("./") == real.trim_start_matches("./"),
        }
    }
}

fn number(number: impl TryInto<i32>) -> Vec<Real> {
    vec![Real::Number(number.try_into().map_or(f64::NAN, f64::from))]
}

fn text(text: impl ToString) -> Vec<Real> {
    vec![Real::Text(text.to_string())]
}

fn texts(texts: &[String]) -> Vec<Real> {
    texts.iter().cloned().map(Real::Text).collect()
}

fn time(time: Duration) -> Vec<Real> {
    vec![Real::Time(time)]
}

/// Returns the literal defaults of the page by `section.key`, each with its values: what is in
/// backticks, or a number without them.
fn documented() -> BTreeMap<String, Vec<String>> {
    let (mut section, mut column, mut found) = (String::new(), None, BTreeMap::new());
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let named = heading.split('`').nth(1).unwrap_or_default();
            (section, column) = (named.trim_matches(['[', ']']).to_owned(), None);
        }
        let cells: Vec<&str> =
            line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        if line.starts_with("| key ") {
            column = cells.iter().position(|cell| *cell == "default");
        }
        let Some(cell) = column.and_then(|column| cells.get(column)) else { continue };
        let Some(key) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) else {
            continue;
        };
        let values: Vec<String> = match cell.chars().all(|c| c.is_ascii_digit() || c == ',') {
            true => vec![(*cell).to_owned()],
            false => cell.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        // A default that depends on another key is described, not written.
        let described = cell.starts_with("whether") || cell.starts_with("by ");
        if !values.is_empty() && !described {
            found.insert(format!("{section}.{key}"), values);
        }
    }
    found
}

/// Returns the values that default.toml gives a key, in comments as well.
fn shown(section_and_key: &str) -> Vec<String> {
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in DEFAULT.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ")
            && format!("{section}.{key}") == section_and_key
        {
            found.push(value.split("   ").next().unwrap_or_default().trim().to_owned());
        }
    }
    found
}

fn built(text: &str) -> Built {
    toml::from_str::<Config>(text).unwrap().validated().unwrap().build().unwrap()
}

/// Returns the defaults of the sections that a relay needs.
fn of_the_relay() -> Vec<(&'static str, Vec<Real>)> {
    let (store, server, api) =
        (StoreSection::default(), ServerSection::default(), ApiSection::default());
    let Built { relay, outboxes, alert_settings, .. } = built(SMALLEST);
    let OutboxConfig { preset, dedupe, .. } = outboxes[0].clone();
    let Dedupe::Window(dedupe) = dedupe else { panic!("a time by default") };
    let (hour, minute) = relay.clean_up_at;
    let outbox = &outboxes[0];
    vec![
        ("store.url", text(store.url.expose())),
        ("store.connections_max", number(store.connections_max)),
        ("server.listen", text(server.listen)),
        ("server.body_bytes_max", number(server.body_bytes_max)),
        ("server.write_timeout", time(server.write_timeout.0)),
        ("server.connections_per_address_max", number(server.connections_per_address_max)),
        ("api.requests_per_s", number(api.requests_per_s)),
        ("api.sign_in_failures_per_min", number(api.sign_in_failures_per_min)),
        ("api.request_timeout", time(api.request_timeout.0)),
        ("api.list_budget", time(api.list_budget.0)),
        ("api.import_bytes_max", number(api.import_bytes_max)),
        ("api.session_idle", time(api.session_idle.0)),
        ("api.session_max", time(api.session_max.0)),
        ("api.sessions_max", number(api.sessions_max)),
        ("api.stream_every", time(api.stream_every.0)),
        ("api.stream_clients_max", number(api.stream_clients_max)),
        ("relay.lease", time(relay.lease)),
        ("relay.heartbeat_every", time(relay.heartbeat_every)),
        ("relay.stop_timeout", time(relay.stop_timeout)),
        ("relay.recover_every", time(relay.recover_every)),
        ("relay.stalled_after", time(relay.stalled_after)),
        ("relay.fold_every", time(relay.fold_every)),
        ("relay.move_marked_every", time(relay.move_marked_every)),
        ("relay.monitor_every", time(relay.monitor_every)),
        ("relay.report_every", time(relay.report_every)),
        ("relay.clean_up_at", text(format!("{hour:02}:{minute:02}"))),
        ("relay.time_zone", text(relay.time_zone.iana_name().unwrap_or_default())),
        ("relay.inbox_retention", time(relay.inbox_retention)),
        ("relay.unreachable_after", time(relay.unreachable_after)),
        ("relay.backup_after", time(relay.backup_after)),
        ("relay.backup_folder", text(relay.backup_folder.display())),
        ("relay.backup_bytes_max", number(relay.backup_bytes_max)),
        ("relay.alert_cool_down", time(alert_settings.cool_down)),
        ("telemetry.trace_ratio", vec![Real::Number(super::build::TRACE_RATIO)]),
        ("outbox.jitter", vec![Real::Number(preset.backoff.jitter)]),
        ("outbox.retention", time(preset.retention)),
        ("outbox.outage_spends_attempts", text(preset.outage_spends_attempts)),
        ("outbox.outage_max", time(preset.outage_max)),
        ("outbox.dedupe", time(dedupe)),
        ("outbox.notify", text(outbox.notify)),
        ("outbox.batches_max", number(outbox.batches_max)),
        ("outbox.batch_bytes_max", number(outbox.batch_bytes_max)),
        ("outbox.deliver_timeout", time(outbox.deliver_timeout)),
        ("outbox.claim", text(ClaimMode::default())),
        ("outbox.failing_key", text(format!("{:?}", outbox.failing_key).to_lowercase())),
        ("outbox.auto_retry.backoff_factor", {
            vec![Real::Number(super::auto_retry::BACKOFF_FACTOR)]
        }),
    ]
}

/// Returns the defaults of the sections that connect a relay with something else.
fn of_the_surroundings() -> Vec<(&'static str, Vec<Real>)> {
    let envelope = EnvelopeSettings::default();
    assert_eq!(envelope.form, Form::Plain);
    let (http, chat) = (HttpSettings::new("", ""), ChatSettings::new("", ""));
    let (kafka, rabbit) = (KafkaSettings::new("", "", ""), RabbitSettings::new("", "", ""));
    for timeout in [
        RedisSettings::new("", "", "").timeout,
        NatsSettings::new("", "", "").timeout,
        rabbit.timeout,
    ] {
        assert_eq!(timeout, http.timeout);
    }
    let redis = BufferSettings::new("a", "redis://a");
    let target = BatchTarget::Table(TableTarget::new("a", "b", "c").unwrap());
    let buffer = BufferConfig::new(Arc::new(Buffer::new(redis.clone()).unwrap()), target);
    let gateway = GatewaySettings::new("", "");
    let words = StateWords::default();
    vec![
        ("outbox.adopt.time_zone", text(super::adopt::TIME_ZONE)),
        ("outbox.adopt.states.pending", text(words.pending)),
        ("outbox.adopt.states.processing", text(words.processing)),
        ("outbox.adopt.states.failed", text(words.failed)),
        ("outbox.adopt.states.completed", text(words.completed)),
        ("outbox.adopt.states.dead_letter", text(words.dead_letter)),
        ("sink.timeout", vec![Real::Time(http.timeout), Real::Time(chat.timeout)]),
        ("sink.form", text(Form::NAMES[0])),
        ("sink.source", text(envelope.source)),
        ("sink.content_type", text(envelope.content_type)),
        ("sink.method", text(http.method)),
        ("sink.host_concurrency_max", number(http.host_concurrency_max)),
        ("sink.deny_private_addresses", text(http.deny_private_addresses)),
        ("sink.keep_response", text(http.keep_response)),
        ("sink.linger", time(kafka.linger)),
        ("sink.compression", text(kafka.compression)),
        ("sink.message_bytes_max", number(kafka.message_bytes_max)),
        ("sink.routing_key", text(rabbit.routing_key.unwrap())),
        ("buffer.flush_every", time(buffer.flush_every)),
        ("buffer.fields_max", number(buffer.fields_max)),
        ("buffer.timeout", time(redis.timeout)),
        ("buffer.wait_timeout", time(redis.wait_timeout)),
        ("buffer.leak_guard", time(redis.leak_guard)),
        ("buffer.durability", text(format!("{:?}", buffer.durability).to_lowercase())),
        ("gateway.forward_headers", texts(&gateway.forward_headers)),
        ("gateway.answer_headers", texts(&gateway.answer_headers)),
        ("gateway.methods", texts(&gateway.methods)),
        ("gateway.timeout", time(gateway.timeout)),
        ("gateway.concurrency_max", number(gateway.concurrency_max)),
        ("gateway.answer_bytes_max", number(gateway.answer_bytes_max)),
        ("gateway.ttl", time(gateway.ttl)),
        ("gateway.negative_ttl", time(gateway.negative_ttl)),
        ("gateway.stale_ttl", time(gateway.stale_ttl)),
        ("gateway.replay_after", time(gateway.replay_after)),
        ("gateway.retry_after", time(gateway.retry_after)),
        ("gateway.cache", text(super::gateway::IN_MEMORY)),
        ("gateway.cache_entries_max", number(CacheSettings::ENTRIES_MAX)),
        ("gateway.cache_bytes_max", number(CacheSettings::BYTES_MAX)),
        ("gateway.cache_timeout", time(super::gateway::CACHE_TIMEOUT)),
    ]
}

/// Returns the defaults of a channel for alerts.
fn of_alerts() -> Vec<(&'static str, Vec<Real>)> {
    let alert = "[[alert]]\nkind = 'email'\nhost = 'a'\nfrom = 'a@example.com'\n\
                 to = ['b@example.com']\n";
    let config: Config = toml::from_str(&format!("{SMALLEST}{alert}")).unwrap();
    let section = format!("{:?}", config.alert[0]);
    let security = section.split("security: ").nth(1).unwrap().split(',').next().unwrap();
    let channel = config.build().unwrap().channels.remove(0);
    vec![
        ("alert.severity", text(format!("{:?}", channel.severity_min).to_lowercase())),
        ("alert.payloads", text(channel.payloads)),
        ("alert.reports", text(channel.reports)),
        ("alert.security", text(security.to_lowercase())),
    ]
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let mut page = documented();
    page.retain(|key, _| !BY_NAME.contains(&key.as_str()));
    let mut wrong = Vec::new();
    for (key, real) in [of_the_relay(), of_the_surroundings(), of_alerts()].into_iter().flatten() {
        let written = page.remove(key).unwrap_or_default();
        let same = written.len() == real.len() && real.iter().zip(&written).all(|(r, w)| r.is(w));
        if !same {
            wrong.push(format!("docs/configuration.md: {key} = {written:?}"));
        }
        let shown = shown(key);
        let single = real.len() == 1 && !EXAMPLES.contains(&key);
        if single && !shown.iter().any(|value| real[0].is(value)) {
            wrong.push(format!("default.toml: {key} = {shown:?}"));
        }
    }
    let unchecked: Vec<_> = page.into_keys().collect();
    assert!(wrong.is_empty(), "these are not the code's defaults:\n{}", wrong.join("\n"));
    assert!(unchecked.is_empty(), "compare these defaults with the code too: {unchecked:?}");
}

/// The table of the presets, whose columns are the presets.
#[test]
fn the_numbers_of_the_presets_are_documented() {
    let presets = [Preset::api_call(), Preset::notification(), Preset::broker(), Preset::handler()];
    let row = |name: &str| -> Vec<String> {
        let start = format!("| {name} | ");
        let line = PAGE.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("no row `{name}`"));
        line.trim_end_matches(" |").split(" | ").map(|cell| cell.replace(' ', "")).collect()
    };
    let of_each = |real: fn(&Preset) -> String| presets.each_ref().map(real).to_vec();
    let times = |cells: Vec<String>| -> Vec<_> {
        cells.iter().map(|cell| parse_time(cell).unwrap()).collect()
    };
    assert_eq!(times(row("idle poll")), presets.each_ref().map(|p| p.idle_poll));
    assert_eq!(times(row("longest wait")), presets.each_ref().map(|p| p.backoff.max));
    assert_eq!(row("batch"), of_each(|p| p.batch.to_string()));
    assert_eq!(row("attempts"), of_each(|p| p.max_retries.to_string()));
    assert_eq!(row("on success"), of_each(|p| format!("{:?}", p.on_success).to_lowercase()));
}

/// The file without its optional values builds the same as with them.
#[test]
fn the_default_file_changes_nothing() {
    let (whole, smallest) = (built(DEFAULT), built(SMALLEST));
    let folder = |built: &Built| {
        let mut relay = built.relay.clone();
        relay.backup_folder =
            relay.backup_folder.components().skip_while(|part| part.as_os_str() == ".").collect();
        format!("{relay:?}")
    };
    assert_eq!(folder(&whole), folder(&smallest));
    assert_eq!(whole.outboxes[0].preset, smallest.outboxes[0].preset);
}
