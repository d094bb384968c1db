//! The one place that decides what happens to an event. Pure: no clock, no store, no sink.
//!
//! It returns *delays*; the store adds them to the database's clock. Nothing else in Postrider
//! computes a backoff or a state.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider_store::{DeadReason, Event, SUSPECT_CRASHES};

use crate::destination::health::HealthView;
use crate::outcome::RETRY_AFTER_MAX;
use crate::outcome::{Cause, Outcome};
use crate::preset::Preset;

/// Crashes with only this event in flight before it becomes a dead letter. Together with the two
/// that made it a suspect, five relays died holding it.
pub const CRASHES_ALONE_MAX: i32 = 3;

/// The change that the store writes for an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// Removes the row.
    Delivered {
        /// The destination's answer, to be kept with the event.
        answer: Option<String>,
    },
    /// Spends an attempt and tries again after the delay.
    Failed {
        /// Time until the next attempt.
        delay: Duration,
        /// Text for `last_error`.
        error: String,
    },
    /// Spends no attempt and tries again after the delay.
    Deferred {
        /// Time until the event is due.
        delay: Duration,
        /// Text for `last_error`, if the destination answered.
        error: Option<String>,
    },
    /// Moves the event to the dead letters.
    Dead {
        /// Category of the failure.
        reason: DeadReason,
        /// The error in one sentence.
        message: String,
        /// More about the error.
        detail: Option<String>,
        /// Whether a delivery was attempted, which counts as an attempt.
        attempted: bool,
    },
}

/// Checks an event before delivery; `Some` means that it must not be delivered.
pub fn examine(event: &Event, preset: &Preset) -> Option<Settlement> {
    let dead = |reason, message: String| {
        Some(Settlement::Dead { reason, message, detail: None, attempted: false })
    };
    // Only this row is unreadable. The dead letter keeps the stored values.
    if let Some(defect) = &event.defect {
        return dead(DeadReason::Integrity, format!("the row cannot be read: {defect}"));
    }
    if event.hash_matches() == Some(false) {
        return dead(
            DeadReason::Integrity,
            "content hash does not match: request id, event type or payload was changed".to_owned(),
        );
    }
    if preset.require_hash && (event.content_hash.is_none() || event.request_id.is_none()) {
        return dead(
            DeadReason::Integrity,
            "this outbox requires request_id and content_hash; the event lacks one".to_owned(),
        );
    }
    if let Some(at) = expiry(event, preset).filter(|at| *at <= event.claimed_at) {
        return dead(DeadReason::Expired, format!("expired at {}", at.to_rfc3339()));
    }
    let crashes_alone = event.crash_count.saturating_sub(SUSPECT_CRASHES);
    if crashes_alone >= CRASHES_ALONE_MAX {
        return dead(
            DeadReason::Crash,
            format!("the relay died {crashes_alone} times with only this event in flight"),
        );
    }
    None
}

/// Returns the earlier of the event's own expiry and the outbox's `max_age`.
pub(crate) fn expiry(event: &Event, preset: &Preset) -> Option<DateTime<Utc>> {
    let by_age = preset
        .max_age
        .and_then(|age| chrono::Duration::from_std(age).ok())
        .and_then(|age| event.created_at.checked_add_signed(age));
    match (event.expires_at, by_age) {
        (Some(own), Some(age)) => Some(own.min(age)),
        (own, age) => own.or(age),
    }
}

/// Puts off an event that was not sent: it is behind another one of its key, or its destination is
/// down. It spends nothing.
pub fn put_off(delay: Duration) -> Settlement {
    Settlement::Deferred { delay, error: None }
}

/// Decides what follows from an outcome. `random` is between 0 and 1, for the jitter.
pub fn decide(
    outcome: &Outcome,
    event: &Event,
    health: &HealthView,
    preset: &Preset,
    random: f64,
) -> Settlement {
    match outcome {
        Outcome::Delivered | Outcome::AlreadyDone => Settlement::Delivered { answer: None },
        Outcome::Rejected { error, detail } => Settlement::Dead {
            reason: DeadReason::Rejected,
            message: error.clone(),
            detail: detail.clone(),
            attempted: true,
        },
        Outcome::CannotEncode { error } => Settlement::Dead {
            reason: DeadReason::Rejected,
            message: error.clone(),
            detail: None,
            attempted: false,
        },
        Outcome::NoRoute { error } => Settlement::Dead {
            reason: DeadReason::NoRoute,
            message: error.clone(),
            detail: None,
            attempted: false,
        },
        Outcome::Retry { error } => spend(error, None, event, preset, random),
        Outcome::Down { error, retry_after, cause, .. } => {
            let asked = retry_after.map(|wait| wait.min(RETRY_AFTER_MAX));
            if charged(*cause, event, health, preset) {
                return spend(error, asked, event, preset, random);
            }
            // Due again at the next probe, or at the next idle poll at the latest, so that
            // everything is due soon after the destination is back.
            let wait = preset.backoff.wait(health.down_streak.max(1), random);
            let wait = if health.open { health.probe_in } else { wait.min(preset.idle_poll) };
            // Never sooner than the relay's own wait: `Retry-After: 0` would cause a busy loop.
            let delay = asked.map_or(wait, |asked| asked.max(wait));
            Settlement::Deferred { delay, error: Some(error.clone()) }
        }
        Outcome::Untried => Settlement::Deferred {
            // At once, unless the destination is down: then the next claim would only bring the
            // event back here.
            delay: health.probe_in,
            error: None,
        },
    }
}

/// Returns whether an outage counts as an attempt of this event. It does if the destination
/// delivered something else since the event's previous attempt, and the event may be the cause or
/// is older than `outage_max`; or if nothing was delivered for `outage_max`.
fn charged(cause: Cause, event: &Event, health: &HealthView, preset: &Preset) -> bool {
    let others_passed = matches!(
        (event.last_failed_at, health.last_success_at),
        (Some(failed), Some(success)) if success > failed
    );
    let age = (event.claimed_at - event.created_at).to_std().unwrap_or_default();
    let may_be_the_cause = cause == Cause::Unknown || age >= preset.outage_max;
    preset.outage_spends_attempts
        || (others_passed && may_be_the_cause)
        || health.down_for.is_some_and(|time| time >= preset.outage_max)
}

/// Spends one attempt; an event without attempts left becomes a dead letter at once.
fn spend(
    error: &str,
    asked: Option<Duration>,
    event: &Event,
    preset: &Preset,
    random: f64,
) -> Settlement {
    let spent = u32::try_from(event.retry_count).unwrap_or(0).saturating_add(1);
    let allowed = event.max_retries.and_then(|n| u32::try_from(n).ok());
    let allowed = allowed.unwrap_or(preset.max_retries);
    if spent >= allowed {
        return Settlement::Dead {
            reason: DeadReason::Exhausted,
            message: error.to_owned(),
            detail: None,
            attempted: true,
        };
    }
    let wait = preset.backoff.wait(spent, random);
    let delay = asked.map_or(wait, |asked| asked.max(wait));
    Settlement::Failed { delay, error: error.to_owned() }
}
