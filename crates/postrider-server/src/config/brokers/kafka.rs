//! `[[sink]]` of kind `kafka`. `default.toml` describes meaning and default of each key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use postrider_relay::sinks::{KafkaSettings, KafkaSink, Sasl, Tls};
use serde::Deserialize;

use crate::config::ConfigError;
use crate::config::sink::{RateSection, RouteSection, envelope, routes};
use crate::config::value::{Secret, Time};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KafkaSection {
    pub(crate) name: String,
    pub(crate) rate: Option<RateSection>,
    brokers: String,
    topic: Option<String>,
    #[serde(default)]
    route: Vec<RouteSection>,
    form: Option<String>,
    source: Option<String>,
    content_type: Option<String>,
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
    #[serde(default)]
    without_tls: bool,
}

impl KafkaSection {
    pub(crate) fn build(&self) -> Result<KafkaSink, ConfigError> {
        let default = KafkaSettings::new(&self.name, &self.brokers, "");
        let text = |secret: &Secret| secret.expose().to_owned();
        Ok(KafkaSink::new(KafkaSettings {
            topic: self.topic.clone(),
            routes: routes(&self.route),
            envelope: envelope(&self.name, &self.form, &self.source, &self.content_type)?,
            linger: self.linger.map_or(default.linger, |time| time.0),
            compression: self.compression.clone().unwrap_or(default.compression),
            message_bytes_max: self.message_bytes_max.unwrap_or(default.message_bytes_max),
            tls: self.tls.clone().map(|tls| Tls { ca: tls.ca, cert: tls.cert, key: tls.key }),
            sasl: self.sasl.as_ref().map(|sasl| Sasl {
                mechanism: sasl.mechanism.clone(),
                username: text(&sasl.username),
                password: text(&sasl.password),
                without_tls: sasl.without_tls,
            }),
            options: self.options.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            name: default.name,
            brokers: default.brokers,
        })?)
    }
}
