//! Dead letters that are sent again by themselves: by rule, after a delay, so often and no more.

use std::time::Duration;

use postrider::store::{Database, DeadLetter, DeadReason, DlqFilter, Page};
use postrider::{Outbox, StoreError};

use crate::telemetry;

/// Dead letters of one look. A dead letter may weigh megabytes.
const LOOK_ROWS: u32 = 50;
/// Looks of one rule in one round of upkeep.
const LOOKS_MAX: usize = 20;

/// Bytes that a compiled expression may need; a larger one is refused.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A regular expression for error messages. Matching takes time in proportion to the message.
#[derive(Debug, Clone)]
pub struct ErrorPattern(regex::Regex);

impl ErrorPattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// If it is none, or too large.
    pub fn new(expression: &str) -> Result<Self, String> {
        let mut builder = regex::RegexBuilder::new(expression);
        let regex = builder.size_limit(PATTERN_BYTES_MAX).build();
        regex.map(Self).map_err(|error| error.to_string())
    }
}

/// When a dead letter is sent again without an operator.
#[derive(Debug, Clone)]
pub struct AutoRetry {
    /// For the audit trail: the operator is `auto-retry:<name>`.
    pub name: String,
    /// Only errors that contain this text, in any case.
    pub error: Option<String>,
    /// Only errors that this expression finds.
    pub error_regex: Option<ErrorPattern>,
    /// Only this reason.
    pub reason: Option<DeadReason>,
    /// Only this event type.
    pub event_type: Option<String>,
    /// Time since the event was given up, before it is sent for the first time.
    pub after: Duration,
    /// From one such time to the next.
    pub backoff_factor: f64,
    /// How often an event is sent again in all, retries of operators included.
    pub times: u32,
}

impl AutoRetry {
    /// Whether a dead letter is due, on the database's clock.
    fn is_due(&self, letter: &DeadLetter, now: chrono::DateTime<chrono::Utc>) -> bool {
        let sent = u32::try_from(letter.redrive_count).unwrap_or(u32::MAX);
        let fits = self.error_regex.as_ref().is_none_or(|r| r.0.is_match(&letter.error_message));
        let age = (now - letter.failed_at).to_std().unwrap_or_default();
        fits && sent < self.times && age >= self.delay(sent)
    }

    /// Time before it is sent again, having been so often.
    fn delay(&self, sent: u32) -> Duration {
        let factor = self.backoff_factor.powi(i32::try_from(sent).unwrap_or(i32::MAX));
        Duration::try_from_secs_f64(self.after.as_secs_f64() * factor).unwrap_or(Duration::MAX)
    }

    fn filter(&self) -> DlqFilter {
        DlqFilter {
            error: self.error.clone(),
            reason: self.reason,
            event_type: self.event_type.clone(),
            resolved: Some(false),
            ..DlqFilter::default()
        }
    }
}

/// One rule at work: it goes through the dead letters again and again, some of them at a time.
#[derive(Debug)]
pub(crate) struct AutoRetrier {
    rule: AutoRetry,
    /// Where the next look begins.
    before_id: Option<i64>,
}

impl AutoRetrier {
    pub(crate) fn new(rule: AutoRetry) -> Self {
        Self { rule, before_id: None }
    }

    /// One round. Each retry is a transaction of its own: whoever dies in between has retried some,
    /// and `redrive_count`, which travels with the event, keeps the count.
    pub(crate) async fn round(
        &mut self,
        store: &dyn Database,
        outbox: &Outbox,
    ) -> Result<(), StoreError> {
        let filter = self.rule.filter();
        for _ in 0..LOOKS_MAX {
            let page = Page::first(LOOK_ROWS).below(self.before_id);
            let listed = store.dead_letters(outbox, &filter, page).await?;
            for letter in listed.rows.iter().filter(|l| self.rule.is_due(l, listed.as_of)) {
                self.retry(store, outbox, letter).await?;
            }
            self.before_id = listed.next;
            if self.before_id.is_none() {
                break;
            }
        }
        Ok(())
    }

    async fn retry(
        &self,
        store: &dyn Database,
        outbox: &Outbox,
        letter: &DeadLetter,
    ) -> Result<(), StoreError> {
        let AutoRetry { name, times, .. } = &self.rule;
        let note = format!("automatic retry {} of {times}", letter.redrive_count + 1);
        match store.retry(outbox, letter.id, &format!("auto-retry:{name}"), &note).await {
            Ok(id) => {
                metrics::counter!(telemetry::AUTO_RETRIED, "outbox" => outbox.name().to_owned())
                    .increment(1);
                tracing::info!(
                    outbox = outbox.name(),
                    rule = name,
                    dead_letter = letter.id,
                    id,
                    "dead letter sent again by rule"
                );
                Ok(())
            }
            // An operator was faster.
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_the_factor_and_never_overflow() {
        let rule = AutoRetry {
            name: "n".to_owned(),
            error: None,
            error_regex: None,
            reason: None,
            event_type: None,
            after: Duration::from_secs(60),
            backoff_factor: 3.0,
            times: 3,
        };
        let waits: Vec<u64> = (0..3).map(|sent| rule.delay(sent).as_secs()).collect();
        assert_eq!(waits, [60, 180, 540]);
        assert_eq!(rule.delay(u32::MAX), Duration::MAX);
    }
}
