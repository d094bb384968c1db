//! The sinks of the configuration file, and how the relay's sinks are built from them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use postrider::Outbox;
use postrider_relay::{
    BranchSettings, FanOut, RouteSettings,
    message::{EnvelopeSettings, Form},
    sinks::{ChatSettings, HttpSettings, HttpSink},
};
use serde::Deserialize;

use super::ConfigError;
use super::brokers::CaSection;
use super::value::{Secret, Time};

/// `rate`, the same for every kind of sink.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateSection {
    pub(crate) events_per_s: f64,
    pub(crate) burst: Option<u32>,
}

/// `[[sink.route]]`, the same for every kind of sink.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteSection {
    pub(crate) event_type: Option<String>,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) filter: Option<String>,
    pub(crate) to: Secret,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpSection {
    pub(crate) name: String,
    pub(crate) url: Option<Secret>,
    #[serde(default)]
    pub(crate) route: Vec<RouteSection>,
    pub(crate) method: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) timeout: Option<Time>,
    pub(crate) host_concurrency_max: Option<usize>,
    pub(crate) form: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) body_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) signing_secrets: Vec<Secret>,
    pub(crate) proxy: Option<Secret>,
    pub(crate) tls: Option<CaSection>,
    #[serde(default)]
    pub(crate) deny_private_addresses: bool,
    #[serde(default)]
    pub(crate) keep_response: bool,
    pub(crate) rate: Option<RateSection>,
}

impl HttpSection {
    pub(crate) fn build(&self) -> Result<HttpSink, ConfigError> {
        let default = HttpSettings::new(&self.name, "");
        Ok(HttpSink::new(HttpSettings {
            method: self.method.clone().unwrap_or(default.method),
            url: self.url.as_ref().map(exposed),
            routes: routes(&self.route),
            headers: self
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), exposed(value)))
                .collect(),
            timeout: time(self.timeout, default.timeout),
            host_concurrency_max: self
                .host_concurrency_max
                .unwrap_or(default.host_concurrency_max)
                .max(1),
            envelope: envelope(&self.name, &self.form, &self.source, &self.content_type)?,
            body: body(&self.name, &self.body, &self.body_file)?,
            signing_secrets: self.signing_secrets.iter().map(exposed).collect(),
            proxy: self.proxy.as_ref().map(exposed),
            ca: self.tls.as_ref().map(|tls| tls.ca.clone()),
            deny_private_addresses: self.deny_private_addresses,
            keep_response: self.keep_response,
            name: default.name,
        })?)
    }
}

/// `discord` and `slack`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatSection {
    pub(crate) name: String,
    pub(crate) url: Option<Secret>,
    #[serde(default)]
    pub(crate) route: Vec<RouteSection>,
    pub(crate) text: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) body_file: Option<PathBuf>,
    pub(crate) timeout: Option<Time>,
    pub(crate) proxy: Option<Secret>,
    pub(crate) rate: Option<RateSection>,
}

impl ChatSection {
    pub(crate) fn settings(&self) -> Result<ChatSettings, ConfigError> {
        let default = ChatSettings::new(&self.name, "");
        Ok(ChatSettings {
            url: self.url.as_ref().map(exposed),
            routes: routes(&self.route),
            text: self.text.clone(),
            body: body(&self.name, &self.body, &self.body_file)?,
            timeout: time(self.timeout, default.timeout),
            proxy: self.proxy.as_ref().map(exposed),
            name: default.name,
        })
    }
}

/// `outbox`: the sink that copies events into other outboxes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FanOutSection {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) branch: Vec<BranchSection>,
}

/// `[[sink.branch]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BranchSection {
    pub(crate) outbox: String,
    pub(crate) event_type: Option<String>,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) filter: Option<String>,
}

impl FanOutSection {
    /// Builds the fan-out. `outboxes` are those of the configuration, by name.
    pub(crate) fn build(&self, outboxes: &BTreeMap<String, Outbox>) -> Result<FanOut, ConfigError> {
        let branch = |branch: &BranchSection| {
            let outbox = outboxes.get(&branch.outbox).ok_or_else(|| {
                let names: Vec<&str> = outboxes.keys().map(String::as_str).collect();
                ConfigError::Invalid(format!(
                    "sink `{}`: [[sink.branch]] outbox = \"{}\" is not the name of an \
                     [[outbox]]; there is: {}",
                    self.name,
                    branch.outbox,
                    names.join(", ")
                ))
            })?;
            Ok(BranchSettings {
                outbox: outbox.clone(),
                event_type: branch.event_type.clone(),
                aggregate_type: branch.aggregate_type.clone(),
                filter: branch.filter.clone(),
            })
        };
        let branches = self.branch.iter().map(branch).collect::<Result<Vec<_>, ConfigError>>()?;
        Ok(FanOut::new(&self.name, &branches)?)
    }
}

pub(crate) fn routes(sections: &[RouteSection]) -> Vec<RouteSettings> {
    let route = |section: &RouteSection| RouteSettings {
        event_type: section.event_type.clone(),
        aggregate_type: section.aggregate_type.clone(),
        filter: section.filter.clone(),
        to: exposed(&section.to),
    };
    sections.iter().map(route).collect()
}

pub(crate) fn envelope(
    sink: &str,
    form: &Option<String>,
    source: &Option<String>,
    content_type: &Option<String>,
) -> Result<EnvelopeSettings, ConfigError> {
    let default = EnvelopeSettings::default();
    let form = form.as_deref().map_or(Ok(default.form), |name| {
        Form::by_name(name).ok_or_else(|| {
            let allowed = Form::NAMES.join(", ");
            ConfigError::Invalid(format!(
                "sink `{sink}`: form = \"{name}\" is unknown; allowed: {allowed}"
            ))
        })
    })?;
    Ok(EnvelopeSettings {
        form,
        source: source.clone().unwrap_or(default.source),
        content_type: content_type.clone().unwrap_or(default.content_type),
    })
}

/// Returns the template itself, or reads it from the file.
fn body(
    sink: &str,
    text: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, ConfigError> {
    let invalid = |message: String| ConfigError::Invalid(format!("sink `{sink}`: {message}"));
    match (text, file) {
        (Some(_), Some(_)) => Err(invalid("`body` and `body_file` exclude each other".to_owned())),
        (text, None) => Ok(text.clone()),
        (None, Some(path)) => std::fs::read_to_string(path).map(Some).map_err(|error| {
            invalid(format!("body_file = \"{}\" cannot be read: {error}", path.display()))
        }),
    }
}

fn exposed(secret: &Secret) -> String {
    secret.expose().to_owned()
}

fn time(value: Option<Time>, default: Duration) -> Duration {
    value.map_or(default, |time| time.0)
}
