//! The four presets of the specification and their numbers.

mod thresholds;

use std::time::Duration;

use postrider_store::OnSuccess;

pub use thresholds::Thresholds;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The wait before the next attempt: `first · factorⁿ⁻¹` after failure `n`, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// Growth factor from one wait to the next.
    pub factor: f64,
    /// Longest wait.
    pub max: Duration,
    /// Random share of the wait, 0 to 1: with 0.2, the relay waits 80 % to 100 % of it.
    pub jitter: f64,
}

impl Backoff {
    /// Returns the wait after failure `n` (from 1). `random` is between 0 and 1.
    pub fn wait(&self, failure: u32, random: f64) -> Duration {
        let exponent = f64::from(failure.saturating_sub(1));
        let wait = self.first.as_secs_f64() * self.factor.powf(exponent);
        let capped = wait.min(self.max.as_secs_f64());
        let shortened = capped * (1.0 - self.jitter * random).clamp(0.0, 1.0);
        Duration::try_from_secs_f64(shortened).unwrap_or(self.max)
    }
}

/// How the relay processes an outbox. Every number can be overridden in the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name in the configuration.
    pub name: &'static str,
    /// Interval between polls of an outbox that has nothing due.
    pub idle_poll: Duration,
    /// Events per claim.
    pub batch: u32,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Maximum number of delivery attempts, including the first.
    pub max_retries: u32,
    /// Whether delivered events are deleted or archived.
    pub on_success: OnSuccess,
    /// How long archived events and resolved dead letters are kept.
    pub retention: Duration,
    /// Whether an event without request id or content hash becomes a dead letter.
    pub require_hash: bool,
    /// Events older than this become dead letters (`expired`).
    pub max_age: Option<Duration>,
    /// Whether an outage of the destination spends attempts, as in plain counting.
    pub outage_spends_attempts: bool,
    /// After this time without any success, failed deliveries spend attempts again.
    pub outage_max: Duration,
    /// Thresholds for alerts.
    pub alerts: Thresholds,
}

impl Preset {
    /// Preset for calls to an HTTP API.
    pub fn api_call() -> Self {
        Self {
            name: "api-call",
            idle_poll: Duration::from_secs(30),
            batch: 100,
            backoff: doubling(60, 16 * 60),
            max_retries: 10,
            on_success: OnSuccess::Delete,
            retention: 7 * DAY,
            require_hash: false,
            max_age: None,
            outage_spends_attempts: false,
            outage_max: DAY,
            alerts: Thresholds::API_CALL,
        }
    }

    /// Preset for messages to people. Requires request id and content hash.
    pub fn notification() -> Self {
        Self {
            name: "notification",
            idle_poll: Duration::from_secs(10),
            backoff: doubling(30, 16 * 60),
            max_retries: 3,
            on_success: OnSuccess::Archive,
            require_hash: true,
            alerts: Thresholds::PEOPLE,
            ..Self::api_call()
        }
    }

    /// Preset for publishing to a message broker.
    pub fn broker() -> Self {
        Self {
            name: "broker",
            idle_poll: Duration::from_secs(1),
            batch: 500,
            backoff: doubling(2, 10 * 60),
            max_retries: 5,
            on_success: OnSuccess::Archive,
            alerts: Thresholds::BROKER,
            ..Self::api_call()
        }
    }

    /// Preset for handlers in the same process.
    pub fn handler() -> Self {
        let wait = Duration::from_secs(5);
        Self {
            name: "handler",
            idle_poll: wait,
            batch: 50,
            backoff: Backoff { first: wait, factor: 1.0, max: wait, jitter: 0.0 },
            max_retries: 5,
            on_success: OnSuccess::Archive,
            alerts: Thresholds::PEOPLE,
            ..Self::api_call()
        }
    }

    /// Returns all presets.
    pub fn all() -> [Self; 4] {
        [Self::api_call(), Self::notification(), Self::broker(), Self::handler()]
    }

    /// Returns the preset with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|preset| preset.name == name)
    }
}

fn doubling(first_s: u64, max_s: u64) -> Backoff {
    Backoff {
        first: Duration::from_secs(first_s),
        factor: 2.0,
        max: Duration::from_secs(max_s),
        jitter: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the table of the specification, line by line.
    #[test]
    fn presets_have_the_specified_numbers() {
        let line = |name: &str| {
            let p = Preset::by_name(name).unwrap();
            let waits: Vec<u64> = (1..=6).map(|n| p.backoff.wait(n, 0.0).as_secs()).collect();
            (p.idle_poll.as_secs(), p.batch, waits, p.max_retries, p.on_success, p.require_hash)
        };
        let (delete, archive) = (OnSuccess::Delete, OnSuccess::Archive);
        let waits = vec![60, 120, 240, 480, 960, 960];
        assert_eq!(line("api-call"), (30, 100, waits, 10, delete, false));
        let waits = vec![30, 60, 120, 240, 480, 960];
        assert_eq!(line("notification"), (10, 100, waits, 3, archive, true));
        let waits = vec![2, 4, 8, 16, 32, 64];
        assert_eq!(line("broker"), (1, 500, waits, 5, archive, false));
        assert_eq!(line("handler"), (5, 50, vec![5; 6], 5, archive, false));
        assert_eq!(Preset::broker().backoff.wait(40, 0.0).as_secs(), 600, "cap of 10 minutes");
        assert_eq!(Preset::broker().retention, 7 * DAY);
        assert_eq!(Preset::by_name("brokr"), None);
    }

    #[test]
    fn jitter_only_shortens_a_wait() {
        let backoff = Backoff { jitter: 0.5, ..Preset::broker().backoff };
        assert_eq!(backoff.wait(1, 0.0), Duration::from_secs(2));
        assert_eq!(backoff.wait(1, 1.0), Duration::from_secs(1));
    }
}
