//! `[[outbox.auto_retry]]`

use postrider_relay::{AutoRetry, ErrorPattern};
use postrider_store::DeadReason;
use serde::Deserialize;

use super::value::Time;

/// Every retry waits as long as the first, by default.
pub(super) const BACKOFF_FACTOR: f64 = 1.0;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AutoRetrySection {
    name: String,
    error: Option<String>,
    error_regex: Option<String>,
    reason: Option<DeadReason>,
    event_type: Option<String>,
    after: Time,
    times: u32,
    backoff_factor: Option<f64>,
}

impl AutoRetrySection {
    /// Builds the rule. An error does not name the outbox: the caller adds it.
    pub(super) fn build(&self) -> Result<AutoRetry, String> {
        let invalid = |what: String| format!("auto_retry `{}`: {what}", self.name);
        let compile = |text: &String| {
            ErrorPattern::new(text)
                .map_err(|error| invalid(format!("error_regex = \"{text}\": {error}")))
        };
        if !(1..=40).contains(&self.name.chars().count()) {
            return Err(invalid("the name has 1 to 40 characters".to_owned()));
        }
        if !(1..=1_000).contains(&self.times) {
            return Err(invalid(format!("times = {}: allowed is 1 to 1000", self.times)));
        }
        let backoff_factor = self.backoff_factor.unwrap_or(BACKOFF_FACTOR);
        if !(1.0..=100.0).contains(&backoff_factor) {
            return Err(invalid(format!("backoff_factor = {backoff_factor}: allowed is 1 to 100")));
        }
        Ok(AutoRetry {
            name: self.name.clone(),
            error: self.error.clone(),
            error_regex: self.error_regex.as_ref().map(compile).transpose()?,
            reason: self.reason,
            event_type: self.event_type.clone(),
            after: self.after.0,
            backoff_factor,
            times: self.times,
        })
    }
}
