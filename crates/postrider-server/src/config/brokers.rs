//! Sections of `[[sink]]` for message brokers. Meaning and default of each key are in
//! `default.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use postrider_relay::message::EnvelopeSettings;
use postrider_relay::sinks::{KafkaSettings, KafkaSink, Sasl, Tls};
use serde::Deserialize;

use super::ConfigError;
use super::value::{Secret, Time};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KafkaSection {
    pub(crate) name: String,
    brokers: String,
    topic: String,
    linger: Option<Time>,
    compression: Option<String>,
    message_bytes_max: Option<usize>,
    tls: Option<TlsSection>,
    sasl: Option<SaslSection>,
    #[serde(default)]
    options: BTreeMap<String, Secret>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSection {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaslSection {
    mechanism: String,
    username: Secret,
    password: Secret,
}

impl KafkaSection {
    pub(crate) fn build(&self) -> Result<KafkaSink, ConfigError> {
        let text = |secret: &Secret| secret.expose().to_owned();
        Ok(KafkaSink::new(KafkaSettings {
            name: self.name.clone(),
            brokers: self.brokers.clone(),
            topic: Some(self.topic.clone()),
            routes: Vec::new(),
            envelope: EnvelopeSettings::default(),
            linger: self.linger.map_or(Duration::from_millis(1), |time| time.0),
            compression: self.compression.clone().unwrap_or_else(|| "none".to_owned()),
            message_bytes_max: self.message_bytes_max.unwrap_or(1_000_000),
            tls: self.tls.clone().map(|tls| Tls { ca: tls.ca, cert: tls.cert, key: tls.key }),
            sasl: self.sasl.as_ref().map(|sasl| Sasl {
                mechanism: sasl.mechanism.clone(),
                username: text(&sasl.username),
                password: text(&sasl.password),
            }),
            options: self.options.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        })?)
    }
}
