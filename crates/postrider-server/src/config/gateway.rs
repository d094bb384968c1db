//! `[[gateway]]`. `default.toml` describes meaning, unit and default of each key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_relay::{
    OutboxConfig, Preset,
    gateway::{CacheSettings, GatewaySettings, Upstream},
};
use postrider_store::Dedupe;
use serde::Deserialize;

use super::ConfigError;
use super::brokers::CaSection;
use super::value::{Secret, Time};

/// The value of `cache` that selects a cache in this process.
pub(super) const IN_MEMORY: &str = "memory";
/// Time for an answer of a cache in Redis, by default.
pub(super) const CACHE_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewaySection {
    pub(crate) name: String,
    url: Secret,
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    forward_headers: Option<Vec<String>>,
    answer_headers: Option<Vec<String>>,
    methods: Option<Vec<String>>,
    #[serde(default)]
    endpoints: Vec<String>,
    timeout: Option<Time>,
    concurrency_max: Option<usize>,
    answer_bytes_max: Option<usize>,
    ttl: Option<Time>,
    negative_ttl: Option<Time>,
    stale_ttl: Option<Time>,
    replay_after: Option<Time>,
    retry_after: Option<Time>,
    cache: Option<Secret>,
    cache_entries_max: Option<u64>,
    cache_bytes_max: Option<u64>,
    cache_timeout: Option<Time>,
    proxy: Option<Secret>,
    tls: Option<CaSection>,
}

/// An upstream with the outbox of its saved calls.
pub(crate) struct BuiltGateway {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) outbox: Outbox,
}

impl GatewaySection {
    /// Builds the upstream. `preset` is the preset of the outbox whose sink this gateway is;
    /// `request_timeout` is the API's, which would cut off longer calls.
    pub(crate) fn build(
        &self,
        preset: &Preset,
        request_timeout: Duration,
    ) -> Result<Upstream, ConfigError> {
        let default = GatewaySettings::new(&self.name, self.url.expose());
        let time = |value: Option<Time>, default| value.map_or(default, |time| time.0);
        let exposed = |secret: &Secret| secret.expose().to_owned();
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), exposed(value)));
        let settings = GatewaySettings {
            headers: headers.collect(),
            forward_headers: self.forward_headers.clone().unwrap_or(default.forward_headers),
            answer_headers: self.answer_headers.clone().unwrap_or(default.answer_headers),
            endpoints: self.endpoints.clone(),
            methods: self.methods.clone().unwrap_or(default.methods),
            timeout: time(self.timeout, default.timeout),
            concurrency_max: self.concurrency_max.unwrap_or(default.concurrency_max),
            answer_bytes_max: self.answer_bytes_max.unwrap_or(default.answer_bytes_max),
            ttl: time(self.ttl, default.ttl),
            negative_ttl: time(self.negative_ttl, default.negative_ttl),
            stale_ttl: time(self.stale_ttl, default.stale_ttl),
            replay_after: time(self.replay_after, default.replay_after),
            retry_after: time(self.retry_after, default.retry_after),
            cache: self.cache()?,
            proxy: self.proxy.as_ref().map(exposed),
            ca: self.tls.as_ref().map(|tls| tls.ca.clone()),
            name: default.name,
            url: default.url,
        };
        if settings.timeout >= request_timeout {
            return Err(self.invalid(&format!(
                "timeout = {:?} must be less than `request_timeout` in [api], {request_timeout:?}: \
                 that would cut off the answer",
                settings.timeout
            )));
        }
        Upstream::new(settings, preset).map_err(|error| self.invalid(&error.message))
    }

    fn cache(&self) -> Result<CacheSettings, ConfigError> {
        let url = self.cache.as_ref().map(Secret::expose).filter(|text| *text != IN_MEMORY);
        let Some(url) = url else {
            if self.cache_timeout.is_some() {
                return Err(self.invalid("`cache_timeout` is for a cache in Redis; see `cache`"));
            }
            return Ok(CacheSettings::Memory {
                entries_max: self.cache_entries_max.unwrap_or(CacheSettings::ENTRIES_MAX),
                bytes_max: self.cache_bytes_max.unwrap_or(CacheSettings::BYTES_MAX),
            });
        };
        if self.cache_entries_max.is_some() || self.cache_bytes_max.is_some() {
            let why = "`cache_entries_max` and `cache_bytes_max` are for `cache` = \"memory\"; \
                       Redis has `maxmemory`";
            return Err(self.invalid(why));
        }
        let timeout = self.cache_timeout.map_or(CACHE_TIMEOUT, |time| time.0);
        Ok(CacheSettings::Redis { url: url.to_owned(), timeout })
    }

    /// Returns the outbox whose sink this gateway is. It must deduplicate calls while they are
    /// open, and no longer.
    pub(crate) fn outbox<'a>(
        &self,
        outboxes: &'a [OutboxConfig],
    ) -> Result<&'a Outbox, ConfigError> {
        let mut found = outboxes.iter().filter(|config| config.sink.name() == self.name);
        let (Some(config), None) = (found.next(), found.next()) else {
            return Err(self.no_outbox());
        };
        match config.dedupe {
            Dedupe::Open => Ok(&config.outbox),
            Dedupe::Window(_) => Err(self.invalid(&format!(
                "[[outbox]] `{}` needs dedupe = \"open\", so that a call is saved once while it \
                 waits, and again after it was answered",
                config.outbox.name()
            ))),
        }
    }

    pub(crate) fn no_outbox(&self) -> ConfigError {
        self.invalid(&format!(
            "calls are saved in the [[outbox]] with its `name`, sink = {:?}; there must be one \
             such, usually with preset = \"api-call\" and dedupe = \"open\"",
            self.name
        ))
    }

    fn invalid(&self, message: &str) -> ConfigError {
        ConfigError::Invalid(format!("[[gateway]] `{}`: {message}", self.name))
    }
}
