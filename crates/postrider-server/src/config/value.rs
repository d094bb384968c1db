//! Values with their own syntax: times and secrets.

use std::fmt;
use std::time::Duration;

use postrider_command::parse_time;
use serde::{Deserialize, Deserializer, de};

/// A time such as `30s` or `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map(Self).map_err(de::Error::custom)
    }
}

/// A value that is never printed. Deserialization resolves `env:NAME` and `file:PATH`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SecretText)
    }
}

struct SecretText;

impl de::Visitor<'_> for SecretText {
    type Value = Secret;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
        look_up(text).map(Secret).map_err(E::custom)
    }

    // For a token of digits without quotes: serde's default error would show it.
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Secret, E> {
        Err(E::invalid_type(de::Unexpected::Other("a number"), &self))
    }
}

fn look_up(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| {
            format!("environment variable `{name}` is not set; the configuration names it")
        });
    }
    if let Some(path) = text.strip_prefix("file:") {
        return std::fs::read_to_string(path)
            .map(|content| content.trim_end().to_owned())
            .map_err(|error| format!("secret file `{path}` cannot be read: {error}"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_itself() {
        let secret = Secret("hunter2".to_owned());
        assert!(!format!("{secret:?}").contains("hunter2"));
    }

    #[test]
    fn a_secret_that_cannot_be_looked_up_names_where_it_should_be() {
        assert!(look_up("env:POSTRIDER_NO_SUCH").unwrap_err().contains("POSTRIDER_NO_SUCH"));
        assert!(look_up("file:/no/such").unwrap_err().contains("/no/such"));
    }
}
