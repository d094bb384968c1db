//! When a destination counts as down.

use std::time::Duration;

use postrider_relay::{Health, Outcome, Turn};
use postrider_testkit::relay::held_event;

const TOOK: Duration = Duration::from_millis(10);

fn down() -> Outcome {
    Outcome::Down { error: "no".to_owned(), retry_after: None, credentials: false }
}

fn record(health: &Health, destination: &str, id: i64, outcome: &Outcome) {
    health.record(destination, &held_event(id), outcome, TOOK);
}

#[test]
fn five_downs_of_different_events_open_a_destination() {
    let health = Health::default();
    for id in 1..=4 {
        record(&health, "a", id, &down());
        assert!(!health.view("a").open, "{id}");
    }
    record(&health, "a", 5, &down());
    let view = health.view("a");
    assert!(view.open && view.down_streak == 5 && view.down_for.is_some(), "{view:?}");
    assert!(health.all_open());
}

#[test]
fn going_down_and_coming_back_are_told_once_each() {
    let health = Health::default();
    let turn = |id, outcome: &Outcome| health.record("a", &held_event(id), outcome, TOOK);
    let went_down: Vec<_> = (1..=7).map(|id| turn(id, &down())).collect();
    let mut wanted = vec![None; 7];
    wanted[4] = Some(Turn::WentDown);
    assert_eq!(went_down, wanted);
    assert!(matches!(turn(8, &Outcome::Delivered), Some(Turn::CameBack { .. })));
    assert_eq!(turn(9, &Outcome::Delivered), None);
}

#[test]
fn a_few_events_that_always_fail_open_nothing() {
    let health = Health::default();
    for turn in 0..50 {
        record(&health, "a", 1 + turn % 4, &down());
    }
    let view = health.view("a");
    assert!(!view.open, "four events are no outage: {view:?}");
    assert_eq!(view.down_streak, 4);
}

#[test]
fn any_answer_but_down_ends_a_streak() {
    let error = || "no".to_owned();
    for answer in [
        Outcome::Delivered,
        Outcome::Retry { error: error() },
        Outcome::Rejected { error: error(), detail: None },
    ] {
        let health = Health::default();
        (1..=9).for_each(|id| record(&health, "a", id, &down()));
        record(&health, "a", 10, &answer);
        let view = health.view("a");
        assert!(!view.open && view.down_streak == 0 && view.down_for.is_none(), "{answer:?}");
        assert!(!health.all_open());
        let counted = view.last_success_at.is_some();
        assert_eq!(counted, answer == Outcome::Delivered, "only a delivery is a success");
        (1..=5).for_each(|id| record(&health, "a", id, &down()));
        assert!(health.view("a").open, "the ids of an old streak are forgotten");
    }
}

#[test]
fn what_was_not_tried_says_nothing() {
    let health = Health::default();
    (1..=5).for_each(|id| record(&health, "a", id, &down()));
    for outcome in [Outcome::Untried, Outcome::NoRoute { error: "no".to_owned() }] {
        record(&health, "a", 6, &outcome);
        record(&health, "never reached", 7, &outcome);
    }
    assert!(health.view("a").open);
    assert!(health.all_open(), "a destination that was never reached is not one that is up");
}

#[test]
fn all_open_needs_all() {
    let health = Health::default();
    assert!(!health.all_open(), "nothing is known");
    (1..=5).for_each(|id| record(&health, "a", id, &down()));
    record(&health, "b", 1, &Outcome::Delivered);
    assert!(health.view("a").open && !health.view("b").open);
    assert!(!health.all_open());
    (1..=5).for_each(|id| record(&health, "b", id, &down()));
    assert!(health.all_open());
}

#[test]
fn a_success_is_dated_on_the_databases_clock() {
    let health = Health::default();
    let event = held_event(1);
    health.record("a", &event, &Outcome::Delivered, Duration::from_secs(5));
    let at = health.view("a").last_success_at;
    assert_eq!(at, Some(event.claimed_at + Duration::from_secs(5)));
    health.record("a", &event, &Outcome::Delivered, Duration::from_secs(1));
    assert_eq!(health.view("a").last_success_at, at, "never backwards");
}

#[test]
fn a_thousand_destinations_are_remembered_and_the_stalest_goes() {
    let health = Health::default();
    for number in 0..1_000 {
        record(&health, &format!("host-{number}"), number, &down());
    }
    // Heard of again, so that the second one is the stalest now.
    record(&health, "host-0", 5_000, &down());
    record(&health, "one more", 1, &down());
    assert_eq!(health.view("host-0").down_streak, 2);
    assert_eq!(health.view("host-1").down_streak, 0, "forgotten");
    assert_eq!(health.view("host-2").down_streak, 1);
    assert_eq!(health.view("one more").down_streak, 1);
}
