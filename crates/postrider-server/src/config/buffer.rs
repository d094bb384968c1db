//! `[[buffer]]`. `default.toml` describes meaning and default of each key.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Outbox,
    buffer::{Buffer, BufferSettings},
};
use postrider_relay::{BufferConfig, Durability};
use postrider_store::{BatchTarget, EventTarget, TableTarget};
use serde::Deserialize;

use super::ConfigError;
use super::value::{Secret, Time};

/// Maximum number of fields per batch: a larger one would block Redis and the database for too
/// long.
const FIELDS_MAX: u32 = 50_000;
const FLUSH_EVERY_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BufferSection {
    name: String,
    url: Secret,
    key: Option<String>,
    table: Option<String>,
    key_column: Option<String>,
    count_column: Option<String>,
    outbox: Option<String>,
    aggregate_type: Option<String>,
    event_type: Option<String>,
    flush_every: Option<Time>,
    fields_max: Option<u32>,
    timeout: Option<Time>,
    wait_replicas: Option<u32>,
    wait_timeout: Option<Time>,
    leak_guard: Option<Time>,
    durability: Option<Durability>,
}

/// Builds the relay's settings of the buffers.
pub(super) fn buffers(
    sections: &[BufferSection],
    outboxes: &BTreeMap<String, Outbox>,
) -> Result<Vec<BufferConfig>, ConfigError> {
    let mut seen = HashSet::new();
    let mut buffers: Vec<BufferConfig> = Vec::new();
    for section in sections {
        let invalid = |message: String| {
            ConfigError::Invalid(format!("[[buffer]] `{}`: {message}", section.name))
        };
        let config = section.build(outboxes).map_err(&invalid)?;
        if !seen.insert(config.buffer.name().to_owned()) {
            return Err(invalid("another buffer has this name".to_owned()));
        }
        let other = buffers.iter().find(|other| other.buffer.is_same_hash(&config.buffer));
        if let Some(other) = other {
            return Err(invalid(format!(
                "`key` = `{}` is also the key of the buffer `{}` on this server; each buffer needs \
                 a key of its own",
                config.buffer.key(),
                other.buffer.name()
            )));
        }
        buffers.push(config);
    }
    Ok(buffers)
}

impl BufferSection {
    fn build(&self, outboxes: &BTreeMap<String, Outbox>) -> Result<BufferConfig, String> {
        let time = |value: Option<Time>, default| value.map_or(default, |time| time.0);
        let default = BufferSettings::new(&self.name, self.url.expose());
        let settings = BufferSettings {
            key: self.key.clone(),
            timeout: time(self.timeout, default.timeout),
            wait_replicas: self.wait_replicas,
            wait_timeout: time(self.wait_timeout, default.wait_timeout),
            leak_guard: time(self.leak_guard, default.leak_guard),
            ..default
        };
        let buffer = Buffer::new(settings).map_err(|error| error.to_string())?;
        let mut config = BufferConfig::new(Arc::new(buffer), self.target(outboxes)?);
        config.flush_every = time(self.flush_every, config.flush_every);
        config.fields_max = self.fields_max.unwrap_or(config.fields_max);
        config.durability = self.durability.unwrap_or_default();
        if config.fields_max == 0 || config.fields_max > FIELDS_MAX {
            return Err(format!(
                "fields_max = {}: allowed is 1 to {FIELDS_MAX}",
                config.fields_max
            ));
        }
        if config.flush_every < FLUSH_EVERY_MIN {
            return Err(format!(
                "flush_every = {:?}: at least {FLUSH_EVERY_MIN:?}",
                config.flush_every
            ));
        }
        Ok(config)
    }

    fn target(&self, outboxes: &BTreeMap<String, Outbox>) -> Result<BatchTarget, String> {
        let table = (&self.table, &self.key_column, &self.count_column);
        let events = (&self.outbox, &self.aggregate_type, &self.event_type);
        match (table, events) {
            ((Some(table), Some(key), Some(count)), (None, None, None)) => {
                TableTarget::new(table, key, count).map(BatchTarget::Table)
            }
            ((None, None, None), (Some(outbox), Some(aggregate_type), Some(event_type))) => {
                let found = outboxes.get(outbox).ok_or_else(|| {
                    let names: Vec<&str> = outboxes.keys().map(String::as_str).collect();
                    let names = names.join(", ");
                    format!(
                        "outbox = \"{outbox}\" is not the name of an [[outbox]]; there is: {names}"
                    )
                })?;
                Ok(BatchTarget::Events(EventTarget {
                    outbox: found.clone(),
                    aggregate_type: aggregate_type.clone(),
                    event_type: event_type.clone(),
                }))
            }
            _ => Err("where do its counts go? Set either `table`, `key_column` and \
                      `count_column`, or `outbox`, `aggregate_type` and `event_type`"
                .to_owned()),
        }
    }
}
