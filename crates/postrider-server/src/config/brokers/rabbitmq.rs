//! `[[sink]]` of kind `rabbitmq`. `default.toml` describes meaning and default of each key.

use postrider_relay::sinks::{RabbitSettings, RabbitSink};
use serde::Deserialize;

use super::CaSection;
use crate::config::ConfigError;
use crate::config::sink::{RateSection, RouteSection, envelope, routes};
use crate::config::value::{Secret, Time};

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
