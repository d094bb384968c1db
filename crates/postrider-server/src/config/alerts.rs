//! Thresholds of an outbox and channels for alerts: converts the file's sections into the relay's
//! settings.

use std::fmt;

use postrider_relay::{
    Thresholds,
    alerts::{
        DiscordChannel, EmailChannel, EmailSettings, MailSecurity, Severity, SlackChannel,
        Subscription, WebhookChannel,
    },
};
use serde::{Deserialize, Deserializer, de};

use super::ConfigError;
use super::value::Secret;

/// `[outbox.alerts]`
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ThresholdsSection {
    pending_max: Option<Limit>,
    failed_per_minute_max: Option<Limit>,
    failed_rows_max: Option<Limit>,
    unresolved_at: Option<Limit>,
    retry_rate_max: Option<Limit>,
    availability_min: Option<Limit>,
    dead_letters: Option<Switch>,
    integrity: Option<Switch>,
    stalled_recovered: Option<Switch>,
    backups: Option<Switch>,
    critical_failures: Option<Switch>,
}

impl ThresholdsSection {
    /// Overrides a preset's thresholds with those that are set here.
    pub(crate) fn over(&self, preset: Thresholds) -> Result<Thresholds, String> {
        let count = |key: &str, limit: Option<Limit>, default: Option<u64>| match limit {
            None => Ok(default),
            Some(Limit(None)) => Ok(None),
            Some(Limit(Some(number))) if number.fract() == 0.0 && number < 1e15 => {
                Ok(Some(number as u64))
            }
            Some(Limit(Some(number))) => Err(format!("alerts.{key} = {number}: a whole number")),
        };
        let share = |key: &str, limit: Option<Limit>, default: Option<f64>| match limit {
            None => Ok(default),
            Some(Limit(Some(number))) if number > 1.0 => {
                Err(format!("alerts.{key} = {number}: allowed is 0 to 1, or \"off\""))
            }
            Some(Limit(number)) => Ok(number),
        };
        let on = |switch: Option<Switch>, default| switch.map_or(default, |switch| switch.0);
        Ok(Thresholds {
            pending_max: count("pending_max", self.pending_max, preset.pending_max)?,
            failed_per_minute_max: count(
                "failed_per_minute_max",
                self.failed_per_minute_max,
                preset.failed_per_minute_max,
            )?,
            failed_rows_max: count(
                "failed_rows_max",
                self.failed_rows_max,
                preset.failed_rows_max,
            )?,
            unresolved_at: count("unresolved_at", self.unresolved_at, preset.unresolved_at)?,
            retry_rate_max: share("retry_rate_max", self.retry_rate_max, preset.retry_rate_max)?,
            availability_min: share(
                "availability_min",
                self.availability_min,
                preset.availability_min,
            )?,
            dead_letters: on(self.dead_letters, preset.dead_letters),
            integrity: on(self.integrity, preset.integrity),
            stalled_recovered: on(self.stalled_recovered, preset.stalled_recovered),
            backups: on(self.backups, preset.backups),
            critical_failures: on(self.critical_failures, preset.critical_failures),
        })
    }
}

/// A number, or no limit for 0 and "off".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit(Option<f64>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitText)
    }
}

struct LimitText;

impl de::Visitor<'_> for LimitText {
    type Value = Limit;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number that is not negative, or \"off\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Limit, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Limit, E> {
        match number {
            0.0 => Ok(Limit(None)),
            number if number > 0.0 => Ok(Limit(Some(number))),
            _ => Err(E::invalid_value(de::Unexpected::Float(number), &self)),
        }
    }

    fn visit_bool<E: de::Error>(self, on: bool) -> Result<Limit, E> {
        match on {
            false => Ok(Limit(None)),
            true => Err(E::invalid_value(de::Unexpected::Bool(on), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
        match text {
            "off" => Ok(Limit(None)),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// `true` or `false`, "on" or "off".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Switch(bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "true, false, \"on\" or \"off\"")]
        enum Text {
            Bool(bool),
            Word(Word),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Word {
            On,
            Off,
        }
        Ok(Self(match Text::deserialize(deserializer)? {
            Text::Bool(on) => on,
            Text::Word(word) => matches!(word, Word::On),
        }))
    }
}

/// `[[alert]]`
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum AlertSection {
    Discord(ChatAlertSection),
    Slack(ChatAlertSection),
    Webhook(WebhookAlertSection),
    Email(Box<EmailAlertSection>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatAlertSection {
    name: Option<String>,
    url: Secret,
    #[serde(default)]
    severity: Severity,
    #[serde(default)]
    payloads: bool,
    #[serde(default)]
    reports: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookAlertSection {
    name: Option<String>,
    url: Secret,
    #[serde(default)]
    signing_secrets: Vec<Secret>,
    #[serde(default)]
    severity: Severity,
    #[serde(default)]
    payloads: bool,
    #[serde(default)]
    reports: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmailAlertSection {
    name: Option<String>,
    host: String,
    port: Option<u16>,
    #[serde(default)]
    security: SecurityWord,
    ca: Option<std::path::PathBuf>,
    user: Option<Secret>,
    password: Option<Secret>,
    from: String,
    to: Vec<String>,
    #[serde(default)]
    severity: Severity,
    #[serde(default)]
    payloads: bool,
    #[serde(default)]
    reports: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SecurityWord {
    #[default]
    StartTls,
    Tls,
    None,
}

/// Builds the channels of all sections; an e-mail section becomes one channel per recipient.
pub(crate) fn channels(sections: &[AlertSection]) -> Result<Vec<Subscription>, ConfigError> {
    let (mut channels, mut names) = (Vec::new(), std::collections::HashSet::new());
    for section in sections {
        let name = section.name();
        let invalid = |error: String| ConfigError::Invalid(format!("[[alert]] `{name}`: {error}"));
        if name == "log" || !names.insert(name.to_owned()) {
            return Err(invalid("another channel has this name; set `name`".to_owned()));
        }
        channels.extend(section.build(name).map_err(invalid)?);
    }
    Ok(channels)
}

impl AlertSection {
    /// Returns the name; the kind, if no name is set.
    fn name(&self) -> &str {
        let (name, kind) = match self {
            Self::Discord(section) => (&section.name, "discord"),
            Self::Slack(section) => (&section.name, "slack"),
            Self::Webhook(section) => (&section.name, "webhook"),
            Self::Email(section) => (&section.name, "email"),
        };
        name.as_deref().unwrap_or(kind)
    }

    fn build(&self, name: &str) -> Result<Vec<Subscription>, String> {
        let (severity_min, payloads, reports) = match self {
            Self::Discord(s) | Self::Slack(s) => (s.severity, s.payloads, s.reports),
            Self::Webhook(s) => (s.severity, s.payloads, s.reports),
            Self::Email(s) => (s.severity, s.payloads, s.reports),
        };
        let built = match self {
            Self::Discord(section) => {
                vec![Subscription::new(DiscordChannel::new(name, section.url.expose())?)]
            }
            Self::Slack(section) => {
                vec![Subscription::new(SlackChannel::new(name, section.url.expose())?)]
            }
            Self::Webhook(section) => {
                let secrets: Vec<String> =
                    section.signing_secrets.iter().map(|s| s.expose().to_owned()).collect();
                let channel = WebhookChannel::new(name, section.url.expose(), &secrets)?;
                vec![Subscription::new(channel)]
            }
            Self::Email(section) => section.build(name)?,
        };
        let settings = |channel| Subscription { severity_min, payloads, reports, ..channel };
        Ok(built.into_iter().map(settings).collect())
    }
}

impl EmailAlertSection {
    fn build(&self, name: &str) -> Result<Vec<Subscription>, String> {
        if self.to.is_empty() {
            return Err("`to` is empty; name at least one address".to_owned());
        }
        let text = |secret: &Secret| secret.expose().to_owned();
        let login = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some((text(user), text(password))),
            (None, None) => None,
            _ => return Err("`user` and `password` go together".to_owned()),
        };
        let ca = self.ca.as_ref().map(|path| {
            let shown = path.display();
            std::fs::read(path).map_err(|error| format!("`ca` = \"{shown}\": {error}"))
        });
        let settings = EmailSettings {
            name: name.to_owned(),
            host: self.host.clone(),
            port: self.port,
            security: match self.security {
                SecurityWord::StartTls => MailSecurity::StartTls,
                SecurityWord::Tls => MailSecurity::Tls,
                SecurityWord::None => MailSecurity::None,
            },
            ca: ca.transpose()?,
            login,
            from: self.from.clone(),
            to: String::new(),
        };
        let to = |to: &String| {
            let channel = EmailChannel::new(EmailSettings { to: to.clone(), ..settings.clone() });
            channel.map(Subscription::new)
        };
        self.to.iter().map(to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_can_be_overridden_and_switched_off() {
        let section: ThresholdsSection = toml::from_str(
            "pending_max = 7\nfailed_rows_max = 0\nunresolved_at = 'off'\nretry_rate_max = 0.25\n\
             availability_min = false\ndead_letters = 'off'\nintegrity = false\nbackups = 'on'",
        )
        .unwrap();
        let preset = Thresholds::BROKER;
        let expected = Thresholds {
            pending_max: Some(7),
            failed_rows_max: None,
            unresolved_at: None,
            retry_rate_max: Some(0.25),
            availability_min: None,
            dead_letters: false,
            integrity: false,
            ..preset
        };
        assert_eq!(section.over(preset), Ok(expected));
        assert_eq!(ThresholdsSection::default().over(preset), Ok(preset));
    }
}
