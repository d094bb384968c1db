//! `[[sink]]` of kind `redis`. `default.toml` describes meaning and default of each key.

use postrider_relay::sinks::{RedisSettings, RedisSink};
use serde::Deserialize;

use super::CaSection;
use crate::config::ConfigError;
use crate::config::sink::{RateSection, RouteSection, envelope, routes};
use crate::config::value::{Secret, Time};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedisSection {
    pub(crate) name: String,
    url: Secret,
    cluster: Option<bool>,
    stream: Option<String>,
    #[serde(default)]
    route: Vec<RouteSection>,
    stream_length_max: Option<u64>,
    timeout: Option<Time>,
    form: Option<String>,
    source: Option<String>,
    content_type: Option<String>,
    tls: Option<CaSection>,
    pub(crate) rate: Option<RateSection>,
}

impl RedisSection {
    pub(crate) fn build(&self) -> Result<RedisSink, ConfigError> {
        let default = RedisSettings::new(&self.name, self.url.expose(), "");
        Ok(RedisSink::new(RedisSettings {
            ca: self.tls.as_ref().map(|tls| tls.ca.clone()),
            cluster: self.cluster,
            stream: self.stream.clone(),
            routes: routes(&self.route),
            stream_length_max: self.stream_length_max,
            timeout: self.timeout.map_or(default.timeout, |time| time.0),
            envelope: envelope(&self.name, &self.form, &self.source, &self.content_type)?,
            ..default
        })?)
    }
}
