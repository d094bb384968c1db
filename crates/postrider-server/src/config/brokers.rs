//! Sections of `[[sink]]` for message brokers. Meaning and default of each key are in
//! `default.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use postrider_relay::sinks::{
    KafkaSettings, KafkaSink, NatsSettings, NatsSink, RabbitSettings, RabbitSink, Sasl, Tls,
};
use serde::Deserialize;

use super::ConfigError;
use super::sink::{RateSection, RouteSection, envelope, routes};
use super::value::{Secret, Time};

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
            }),
            options: self.options.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            name: default.name,
            brokers: default.brokers,
        })?)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RabbitSection {
    pub(crate) name: String,
    pub(crate) rate: Option<RateSection>,
    url: Secret,
    exchange: String,
    routing_key: Option<String>,
    #[serde(default)]
    route: Vec<RouteSection>,
    form: Option<String>,
    source: Option<String>,
    content_type: Option<String>,
    timeout: Option<Time>,
    tls: Option<CaSection>,
}

/// TLS itself is asked for by the URL.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaSection {
    ca: PathBuf,
}

impl RabbitSection {
    pub(crate) fn build(&self) -> Result<RabbitSink, ConfigError> {
        let default = RabbitSettings::new(&self.name, self.url.expose(), &self.exchange);
        Ok(RabbitSink::new(RabbitSettings {
            ca: self.tls.as_ref().map(|tls| tls.ca.clone()),
            routing_key: self.routing_key.clone().or(default.routing_key),
            routes: routes(&self.route),
            envelope: envelope(&self.name, &self.form, &self.source, &self.content_type)?,
            timeout: self.timeout.map_or(default.timeout, |time| time.0),
            ..default
        })?)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NatsSection {
    pub(crate) name: String,
    pub(crate) rate: Option<RateSection>,
    url: Secret,
    credentials: Option<PathBuf>,
    subject: Option<String>,
    #[serde(default)]
    route: Vec<RouteSection>,
    form: Option<String>,
    source: Option<String>,
    content_type: Option<String>,
    timeout: Option<Time>,
    tls: Option<CaSection>,
}

impl NatsSection {
    pub(crate) fn build(&self) -> Result<NatsSink, ConfigError> {
        let default = NatsSettings::new(&self.name, self.url.expose(), "");
        Ok(NatsSink::new(NatsSettings {
            credentials: self.credentials.clone(),
            ca: self.tls.as_ref().map(|tls| tls.ca.clone()),
            subject: self.subject.clone(),
            routes: routes(&self.route),
            envelope: envelope(&self.name, &self.form, &self.source, &self.content_type)?,
            timeout: self.timeout.map_or(default.timeout, |time| time.0),
            ..default
        })?)
    }
}
