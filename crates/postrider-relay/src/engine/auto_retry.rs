//! Automatic retries of dead letters: by rule, after a delay, up to a number of times.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_store::{Database, LetterBrief, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{AutoRetry, OutboxConfig};
use crate::lease::Membership;
use crate::telemetry;

/// Dead letters read per page.
const LOOK_ROWS: u32 = 200;
/// Pages that one rule reads per round.
const LOOKS_MAX: usize = 20;
/// Dead letters per rule whose failed retry is remembered, so that each is logged once.
const REPORTED_MAX: usize = 1_000;

/// Applies the rules of the outboxes that this relay leads, until the task is aborted. It runs as
/// its own task, so that a rule with many dead letters to retry does not delay recovery.
pub(crate) async fn keep_retrying(
    store: Arc<dyn Database>,
    outboxes: Vec<OutboxConfig>,
    memberships: watch::Receiver<Membership>,
    every: Duration,
) {
    let mut retriers: Vec<AutoRetrier> = outboxes.into_iter().flat_map(AutoRetrier::all).collect();
    if retriers.is_empty() {
        return;
    }
    loop {
        tokio::time::sleep(every).await;
        let membership = memberships.borrow().clone();
        for retrier in retriers.iter_mut().filter(|retrier| membership.leads(retrier.outbox.name()))
        {
            if let Err(error) = retrier.round(store.as_ref()).await {
                let (outbox, rule) = (retrier.outbox.name(), &retrier.rule.name);
                tracing::warn!(outbox, rule, %error, "automatic retry failed; it is tried again");
            }
        }
    }
}

/// The state of one rule. It walks the dead letters repeatedly, oldest first, so that events of a
/// key that failed in order are retried in that order.
struct AutoRetrier {
    outbox: Outbox,
    rule: AutoRetry,
    /// The next page starts after this id.
    after_id: i64,
    /// Start of the current walk. Only dead letters that were due at this time are retried:
    /// otherwise one that becomes due during the walk would overtake an older one that the walk has
    /// already passed.
    started: Instant,
    /// Dead letters that cannot be retried; each is logged once.
    reported: HashSet<i64>,
}

impl AutoRetrier {
    fn all(config: OutboxConfig) -> impl Iterator<Item = Self> {
        let (outbox, rules) = (config.outbox, config.auto_retry);
        rules.into_iter().map(move |rule| Self {
            outbox: outbox.clone(),
            rule,
            after_id: 0,
            started: Instant::now(),
            reported: HashSet::new(),
        })
    }

    /// Runs one round. Each retry is a transaction of its own: a crash in between loses nothing,
    /// because `redrive_count` travels with the event and keeps the count.
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
            // An operator has retried or resolved it first.
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) if error.is_transient() => Err(error),
            // One dead letter that can never be retried must not block the others.
            Err(error) => {
                if self.reported.len() < REPORTED_MAX && self.reported.insert(letter.id) {
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
