//! Dead letters that are sent again by themselves: by rule, after a delay, so often and no more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::store::{Database, DeadReason, DlqFilter, LetterBrief};
use postrider::{Outbox, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::OutboxConfig;
use crate::heart::Roll;
use crate::telemetry;

/// Dead letters of one look.
const LOOK_ROWS: u32 = 200;
/// Looks of one rule in one round.
const LOOKS_MAX: usize = 20;
/// Dead letters that a rule remembers having told of.
const TOLD_MAX: usize = 1_000;

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
    /// Whether a dead letter was due so long ago.
    fn is_due(&self, letter: &LetterBrief, ago: Duration) -> bool {
        let sent = u32::try_from(letter.redrive_count).unwrap_or(u32::MAX);
        let fits = self.error_regex.as_ref().is_none_or(|r| r.0.is_match(&letter.error_message));
        let age = letter.age.checked_sub(ago);
        fits && sent < self.times && age.is_some_and(|age| age >= self.delay(sent))
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
            ..DlqFilter::default()
        }
    }
}

/// Follows the rules of outboxes that this relay leads, until cut off. A task of its own: a rule that
/// has much to send holds up no recovery.
pub(crate) async fn keep_retrying(
    store: Arc<dyn Database>,
    outboxes: Vec<OutboxConfig>,
    rolls: watch::Receiver<Roll>,
    every: Duration,
) {
    let mut retriers: Vec<AutoRetrier> = outboxes.into_iter().flat_map(AutoRetrier::all).collect();
    if retriers.is_empty() {
        return;
    }
    loop {
        tokio::time::sleep(every).await;
        let roll = rolls.borrow().clone();
        for retrier in retriers.iter_mut().filter(|retrier| roll.leads(retrier.outbox.name())) {
            if let Err(error) = retrier.round(store.as_ref()).await {
                let (outbox, rule) = (retrier.outbox.name(), &retrier.rule.name);
                tracing::warn!(outbox, rule, %error, "automatic retry failed; it is tried again");
            }
        }
    }
}

/// One rule at work: it goes through the dead letters again and again, oldest first, so that what
/// failed in the order of its key goes out in that order.
struct AutoRetrier {
    outbox: Outbox,
    rule: AutoRetry,
    /// Where the next look begins.
    after_id: i64,
    /// Since when it has been going through them. Due is what was due then: otherwise one that
    /// becomes due on the way would overtake an older one that was looked at before.
    started: Instant,
    /// Dead letters that cannot be sent again, and the log says so.
    told: HashSet<i64>,
}

impl AutoRetrier {
    fn all(config: OutboxConfig) -> impl Iterator<Item = Self> {
        let (outbox, rules) = (config.outbox, config.auto_retry);
        rules.into_iter().map(move |rule| Self {
            outbox: outbox.clone(),
            rule,
            after_id: 0,
            started: Instant::now(),
            told: HashSet::new(),
        })
    }

    /// One round. Each retry is a transaction of its own: whoever dies in between has retried some,
    /// and `redrive_count`, which travels with the event, keeps the count.
    async fn round(&mut self, store: &dyn Database) -> Result<(), StoreError> {
        let filter = self.rule.filter();
        for _ in 0..LOOKS_MAX {
            let look = store.oldest_dead_letters(&self.outbox, &filter, self.after_id, LOOK_ROWS);
            let look = look.await?;
            for letter in look.letters {
                if self.rule.is_due(&letter, self.started.elapsed()) {
                    self.retry(store, &letter).await?;
                }
                self.after_id = letter.id;
            }
            let Some(next) = look.next else {
                (self.after_id, self.started) = (0, Instant::now());
                break;
            };
            self.after_id = next;
        }
        Ok(())
    }

    async fn retry(
        &mut self,
        store: &dyn Database,
        letter: &LetterBrief,
    ) -> Result<(), StoreError> {
        let AutoRetry { name, times, .. } = &self.rule;
        let (outbox, dead_letter) = (self.outbox.name(), letter.id);
        let note = format!("automatic retry {} of {times}", letter.redrive_count + 1);
        match store.retry(&self.outbox, letter.id, &format!("auto-retry:{name}"), &note).await {
            Ok(id) => {
                metrics::counter!(telemetry::AUTO_RETRIED, "outbox" => outbox.to_owned())
                    .increment(1);
                tracing::info!(
                    outbox,
                    rule = name,
                    dead_letter,
                    id,
                    "dead letter sent again by rule"
                );
                Ok(())
            }
            // An operator was faster.
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) if error.is_transient() => Err(error),
            // The others must not wait for one that will never go.
            Err(error) => {
                if self.told.len() < TOLD_MAX && self.told.insert(letter.id) {
                    tracing::error!(outbox, rule = name, dead_letter, %error,
                        "dead letter cannot be sent again by rule; resolve or edit it");
                }
                Ok(())
            }
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
