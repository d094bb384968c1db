//! `[[sink]]` of kind `nats`. `default.toml` describes meaning and default of each key.

use std::path::PathBuf;

use postrider_relay::sinks::{NatsSettings, NatsSink};
use serde::Deserialize;

use super::CaSection;
use crate::config::ConfigError;
use crate::config::sink::{RateSection, RouteSection, envelope, routes};
use crate::config::value::{Secret, Time};

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
