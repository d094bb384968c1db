//! Properties of every decision, whatever the numbers.

use std::time::Duration;

use postrider_relay::{
    Backoff, Cause, HealthView, Outcome, Preset,
    outcome::RETRY_AFTER_MAX,
    policy::{Settlement, decide},
};
use postrider_store::{DeadReason, Event};
use postrider_testkit::relay::held_event;
use proptest::prelude::*;

fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0..100_000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_secs),
    ]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let error = || "no".to_owned();
    prop_oneof![
        Just(Outcome::Delivered),
        Just(Outcome::Rejected { error: error(), detail: None }),
        Just(Outcome::NoRoute { error: error() }),
        Just(Outcome::Retry { error: error() }),
        Just(Outcome::Untried),
        (proptest::option::of(any_duration()), any::<bool>(), any_cause()).prop_map(
            move |(retry_after, credentials, cause)| Outcome::Down {
                error: error(),
                retry_after,
                credentials,
                cause
            }
        ),
    ]
}

fn any_cause() -> impl Strategy<Value = Cause> {
    prop_oneof![Just(Cause::Unknown), Just(Cause::Destination), Just(Cause::Server)]
}

prop_compose! {
    fn any_preset()(
        preset in proptest::sample::select(Preset::all().to_vec()),
        first in any_duration(),
        factor in 0.0..1e9_f64,
        max in any_duration(),
        jitter in 0.0..2.0_f64,
        max_retries in 0..2_000_u32,
        outage_spends_attempts in any::<bool>(),
        idle_poll in any_duration(),
        outage_max in any_duration(),
    ) -> Preset {
        let backoff = Backoff { first, factor, max, jitter };
        Preset { backoff, max_retries, outage_spends_attempts, idle_poll, outage_max, ..preset }
    }
}

prop_compose! {
    fn any_event()(
        retry_count in prop_oneof![-5..30_i32, any::<i32>()],
        max_retries in proptest::option::of(prop_oneof![-5..30_i32, any::<i32>()]),
        failed_before_s in proptest::option::of(0..1_000_u64),
    ) -> Event {
        let event = held_event(1);
        let at = event.claimed_at;
        let last_failed_at = failed_before_s.map(|s| at - Duration::from_secs(s));
        Event { retry_count, max_retries, last_failed_at, ..event }
    }
}

prop_compose! {
    fn any_health()(
        open in any::<bool>(),
        down_streak in prop_oneof![0..20_u32, any::<u32>()],
        down_for in proptest::option::of(any_duration()),
        success_before_s in proptest::option::of(0..1_000_u64),
        probe_in in any_duration(),
    ) -> HealthView {
        let at = held_event(1).claimed_at;
        let last_success_at = success_before_s.map(|s| at - Duration::from_secs(s));
        HealthView { open, down_streak, down_for, last_success_at, probe_in }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(2_000)
    })]

    #[test]
    fn no_decision_breaks_the_rules(
        outcome in any_outcome(),
        event in any_event(),
        health in any_health(),
        preset in any_preset(),
        random in 0.0..=1.0_f64,
    ) {
        let spent = event.retry_count.max(0).unsigned_abs().saturating_add(1);
        let own = event.max_retries.and_then(|n| u32::try_from(n).ok());
        let allowed = own.unwrap_or(preset.max_retries);
        let longest = preset.backoff.max.max(RETRY_AFTER_MAX);
        match decide(&outcome, &event, &health, &preset, random) {
            Settlement::Delivered { .. } => prop_assert_eq!(outcome, Outcome::Delivered),
            Settlement::Failed { delay, .. } => {
                prop_assert!(spent < allowed, "an attempt beyond the last");
                prop_assert!(delay <= longest, "{:?}", delay);
                let failed = matches!(outcome, Outcome::Retry { .. } | Outcome::Down { .. });
                prop_assert!(failed);
            }
            Settlement::Deferred { delay, error } => {
                let longest = preset.idle_poll.max(longest).max(health.probe_in);
                prop_assert!(delay <= longest, "{:?}", delay);
                let untried = outcome == Outcome::Untried;
                prop_assert_eq!(error.is_none(), untried, "an answer leaves its trace");
                let down = matches!(outcome, Outcome::Down { .. });
                prop_assert!(untried || (down && !preset.outage_spends_attempts));
            }
            Settlement::Dead { reason, attempted, .. } => {
                prop_assert_eq!(attempted, !matches!(outcome, Outcome::NoRoute { .. }));
                match reason {
                    DeadReason::Exhausted => prop_assert!(spent >= allowed),
                    DeadReason::Rejected => {
                        let rejected = matches!(outcome, Outcome::Rejected { .. });
                        prop_assert!(rejected);
                    }
                    DeadReason::NoRoute => {
                        let no_route = matches!(outcome, Outcome::NoRoute { .. });
                        prop_assert!(no_route);
                    }
                    other => prop_assert!(false, "{:?} is not for the policy to find", other),
                }
            }
        }
    }

    /// An event that always fails ends after its number of attempts.
    #[test]
    fn an_event_that_always_fails_ends_after_its_attempts(
        preset in any_preset(),
        random in 0.0..=1.0_f64,
    ) {
        let outcome = Outcome::Retry { error: "no".to_owned() };
        let mut event = held_event(1);
        let mut tries = 0;
        loop {
            tries += 1;
            match decide(&outcome, &event, &HealthView::default(), &preset, random) {
                Settlement::Failed { .. } => event.retry_count += 1,
                Settlement::Dead { .. } => break,
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(tries, preset.max_retries.max(1));
    }
}
