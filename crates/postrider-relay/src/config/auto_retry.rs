//! Rules that retry dead letters.

use std::time::Duration;

use postrider_store::{DeadReason, DlqFilter, LetterBrief};

/// Memory limit of a compiled expression, in bytes; a larger expression is refused.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A regular expression for error messages. Matching takes time linear in the message length.
#[derive(Debug, Clone)]
pub struct ErrorPattern(regex::Regex);

impl ErrorPattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// If it is not a valid regular expression, or compiles to more than the memory limit.
    pub fn new(expression: &str) -> Result<Self, String> {
        let mut builder = regex::RegexBuilder::new(expression);
        let regex = builder.size_limit(PATTERN_BYTES_MAX).build();
        regex.map(Self).map_err(|error| error.to_string())
    }
}

/// A rule that retries dead letters without an operator.
#[derive(Debug, Clone)]
pub struct AutoRetry {
    /// Name of the rule, for the audit trail: the operator is `auto-retry:<name>`.
    pub name: String,
    /// Only errors that contain this text, ignoring case.
    pub error: Option<String>,
    /// Only errors that this expression matches.
    pub error_regex: Option<ErrorPattern>,
    /// Only dead letters with this reason.
    pub reason: Option<DeadReason>,
    /// Only events of this type.
    pub event_type: Option<String>,
    /// Wait between the event's death and its first automatic retry.
    pub after: Duration,
    /// Factor by which the wait grows after each retry.
    pub backoff_factor: f64,
    /// Maximum number of retries per event, including retries by operators.
    pub times: u32,
}

impl AutoRetry {
    /// Returns whether the rule selects a dead letter that was already due `ago` before now.
    pub(crate) fn is_due(&self, letter: &LetterBrief, ago: Duration) -> bool {
        let sent = u32::try_from(letter.redrive_count).unwrap_or(u32::MAX);
        let fits = self.error_regex.as_ref().is_none_or(|r| r.0.is_match(&letter.error_message));
        let age = letter.age.checked_sub(ago);
        fits && sent < self.times && age.is_some_and(|age| age >= self.delay(sent))
    }

    /// Returns the wait before the next retry, given the number of earlier retries.
    pub(crate) fn delay(&self, sent: u32) -> Duration {
        let factor = self.backoff_factor.powi(i32::try_from(sent).unwrap_or(i32::MAX));
        Duration::try_from_secs_f64(self.after.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    pub(crate) fn filter(&self) -> DlqFilter {
        DlqFilter {
            error: self.error.clone(),
            reason: self.reason,
            event_type: self.event_type.clone(),
            ..DlqFilter::default()
        }
    }
}
