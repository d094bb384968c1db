//! When a destination counts as down, which events are sent to it then, and how it recovers. Times
//! are passed in.

use std::time::Duration;

use postrider_relay::{Cause, Health, HealthView, Outcome, Turn, outcome::RETRY_AFTER_MAX};
use postrider_testkit::relay::held_event;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(30);
const TOOK: Duration = Duration::from_millis(10);

fn down() -> Outcome {
    Outcome::Down {
        error: "no".to_owned(),
        retry_after: None,
        credentials: false,
        cause: Cause::Unknown,
    }
}

fn down_asking(wait: Duration) -> Outcome {
    Outcome::Down {
        error: "HTTP 429".to_owned(),
        retry_after: Some(wait),
        credentials: false,
        cause: Cause::Unknown,
    }
}

/// The health of a sink, and a clock that moves on demand.
struct Scene {
    health: Health,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { health: Health::new(EVERY), now: Instant::now() }
    }

    /// Creates a scene with this destination down, by five different events.
    fn down(destination: &str) -> Self {
        let scene = Self::new();
        scene.down_by(destination, 1..=5);
        assert!(scene.view(destination).open);
        scene
    }

    fn down_by(&self, destination: &str, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            self.record(destination, id, &down());
        }
    }

    fn record(&self, destination: &str, id: i64, outcome: &Outcome) -> Option<Turn> {
        self.health.record(destination, &held_event(id), outcome, TOOK, self.now, self.now)
    }

    fn view(&self, destination: &str) -> HealthView {
        self.health.view(destination, self.now)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn appoint(&self, destination: &str, ids: &[i64]) -> Option<i64> {
        self.health.appoint(destination, ids, self.now)
    }
}

#[test]
fn five_downs_of_different_events_open_a_destination() {
    let scene = Scene::new();
    for id in 1..=4 {
        assert_eq!(scene.record("a", id, &down()), None);
        assert!(!scene.view("a").open, "{id}");
    }
    assert_eq!(scene.record("a", 5, &down()), Some(Turn::WentDown));
    let view = scene.view("a");
    assert!(view.open && view.down_streak == 5 && view.down_for.is_some(), "{view:?}");
    assert_eq!((view.probe_in, scene.health.open_count()), (EVERY, 1));
}

#[test]
fn half_of_twenty_calls_in_ten_seconds_open_a_destination() {
    // Every second call fails: never two in a row.
    let mut scene = Scene::new();
    for id in 1..=19 {
        scene.pass(Duration::from_millis(450));
        let outcome = if id % 2 == 0 { Outcome::Delivered } else { down() };
        assert_eq!(scene.record("a", id, &outcome), None, "{id}");
    }
    assert_eq!(scene.record("a", 21, &down()), Some(Turn::WentDown));

    // A success of a call that was in flight does not close the breaker: there are as many
    // failures.
    assert_eq!(scene.record("a", 22, &Outcome::Delivered), None);
    scene.pass(EVERY);
    assert_eq!(scene.appoint("a", &[23]), Some(23));
    assert!(matches!(scene.record("a", 23, &Outcome::Delivered), Some(Turn::CameBack { .. })));
    assert_eq!(scene.record("a", 24, &down()), None, "what was counted before is over");
}

#[test]
fn a_third_of_the_calls_or_calls_that_are_long_ago_open_nothing() {
    let mut scene = Scene::new();
    for id in 1..=300 {
        scene.pass(Duration::from_millis(100));
        let outcome = if id % 3 == 0 { down() } else { Outcome::Delivered };
        assert_eq!(scene.record("a", id, &outcome), None, "{id}");
    }
    let mut scene = Scene::new();
    for id in 1..=300 {
        scene.pass(Duration::from_millis(600));
        let outcome = if id % 2 == 0 { down() } else { Outcome::Delivered };
        assert_eq!(scene.record("a", id, &outcome), None, "17 calls in 10 seconds at most: {id}");
    }
}

#[test]
fn going_down_and_coming_back_are_told_once_each() {
    let scene = Scene::new();
    let went_down: Vec<_> = (1..=7).map(|id| scene.record("a", id, &down())).collect();
    let mut wanted = vec![None; 7];
    wanted[4] = Some(Turn::WentDown);
    assert_eq!(went_down, wanted);
    assert!(matches!(scene.record("a", 8, &Outcome::Delivered), Some(Turn::CameBack { .. })));
    assert_eq!(scene.record("a", 9, &Outcome::Delivered), None);
    assert_eq!(scene.health.open_count(), 0);
}

#[test]
fn a_few_events_that_always_fail_open_nothing() {
    let mut scene = Scene::new();
    for turn in 0..50 {
        scene.pass(Duration::from_secs(1));
        scene.record("a", 1 + turn % 4, &down());
    }
    let view = scene.view("a");
    assert!(!view.open, "four events are not an outage: {view:?}");
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
        let scene = Scene::down("a");
        scene.record("a", 10, &answer);
        let view = scene.view("a");
        assert!(!view.open && view.down_streak == 0 && view.down_for.is_none(), "{answer:?}");
        let counted = view.last_success_at.is_some();
        assert_eq!(counted, answer == Outcome::Delivered, "only a delivery is a success");
        scene.down_by("a", 1..=5);
        assert!(scene.view("a").open, "the ids of an old streak are forgotten");
    }
}

#[test]
fn what_was_not_tried_says_nothing() {
    let scene = Scene::down("a");
    for outcome in [Outcome::Untried, Outcome::NoRoute { error: "no".to_owned() }] {
        scene.record("a", 6, &outcome);
        scene.record("never reached", 7, &outcome);
    }
    assert!(scene.view("a").open);
    assert_eq!(scene.view("never reached"), HealthView::default());
}

#[test]
fn probes_go_one_at_a_time_and_take_turns() {
    let mut scene = Scene::down("a");
    assert_eq!(scene.appoint("a", &[1, 2, 3]), None, "not before the interval");
    let mut probes = Vec::new();
    for _ in 0..6 {
        scene.pass(EVERY);
        let probe = scene.appoint("a", &[1, 2, 3]).unwrap();
        assert_eq!(scene.appoint("a", &[1, 2, 3]), None, "one is under way");
        assert_eq!(scene.view("a").probe_in, EVERY);
        scene.pass(Duration::from_secs(5));
        scene.record("a", probe, &down());
        assert_eq!(scene.view("a").probe_in, EVERY, "counted from the answer");
        probes.push(probe);
    }
    assert!(probes.windows(2).all(|pair| pair[0] != pair[1]), "{probes:?}");
}

#[test]
fn the_last_probe_goes_again_only_when_it_is_alone() {
    let mut scene = Scene::down("a");
    let probe = |scene: &mut Scene, ids: &[i64]| {
        scene.pass(EVERY);
        let probe = scene.appoint("a", ids);
        scene.down_by("a", probe);
        probe
    };
    assert_eq!(probe(&mut scene, &[7]), Some(7));
    scene.pass(EVERY);
    assert_eq!(scene.appoint("a", &[]), None, "a batch without any of them says nothing");
    assert_eq!(probe(&mut scene, &[7]), None, "five others are known to wait");
    assert_eq!(probe(&mut scene, &[7]), Some(7), "they did not come: they are gone");
    assert_eq!(probe(&mut scene, &[7]), Some(7));
    scene.health.defer("a", 8, scene.now, None);
    assert_eq!(probe(&mut scene, &[7]), None, "another one waits again");
    assert_eq!(probe(&mut scene, &[8]), Some(8));
}

#[test]
fn retry_after_puts_the_next_probe_off_within_its_limit() {
    let mut scene = Scene::new();
    scene.down_by("a", 1..=4);
    scene.record("a", 5, &down_asking(Duration::from_secs(300)));
    assert_eq!(scene.view("a").probe_in, Duration::from_secs(300));
    scene.pass(Duration::from_secs(299));
    assert_eq!(scene.appoint("a", &[6]), None);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.appoint("a", &[6]), Some(6));
    scene.record("a", 6, &down_asking(Duration::MAX));
    assert_eq!(
        scene.view("a").probe_in,
        RETRY_AFTER_MAX,
        "a hostile answer stops nothing for ever"
    );
    let other = Scene::down("b");
    other.record("b", 6, &down_asking(Duration::ZERO));
    assert_eq!(other.view("b").probe_in, EVERY, "no busy loop");
}

#[test]
fn events_of_a_destination_that_is_down_wait_for_the_probe_and_not_all_for_the_same_moment() {
    let mut scene = Scene::down("a");
    scene.pass(Duration::from_secs(10));
    let wait = |scene: &Scene, id| scene.health.defer("a", id, scene.now, Some(EVERY * 10));
    assert_eq!(wait(&scene, 10), Duration::from_secs(20), "to the next probe");
    let waits: Vec<Duration> = (0..400_000).map(|id| wait(&scene, id)).collect();
    let at_once = waits.iter().filter(|wait| **wait <= Duration::from_secs(21)).count();
    assert!(at_once <= 1_001, "a thousand a second are claimed again: {at_once}");
    assert_eq!(waits.iter().max(), Some(&(EVERY * 10)), "and all of them are due in bounded time");
    let told = scene.health.defer("a", 400_000, scene.now, None);
    assert!(told > EVERY * 10, "whoever is told of its return need not ask: {told:?}");
    assert_eq!(scene.health.defer("never heard of", 1, scene.now, None), Duration::ZERO);
}

#[test]
fn a_success_is_dated_on_the_databases_clock() {
    let scene = Scene::new();
    let event = held_event(1);
    let record = |took| {
        scene.health.record("a", &event, &Outcome::Delivered, took, scene.now, scene.now);
    };
    record(Duration::from_secs(5));
    let at = scene.view("a").last_success_at;
    assert_eq!(at, Some(event.claimed_at + Duration::from_secs(5)));
    record(Duration::from_secs(1));
    assert_eq!(scene.view("a").last_success_at, at, "never backwards");
}

#[test]
fn a_thousand_destinations_are_remembered_and_the_stalest_goes() {
    let mut scene = Scene::new();
    for number in 0..1_000 {
        scene.pass(Duration::from_millis(1));
        scene.record(&format!("host-{number}"), number, &down());
    }
    scene.pass(Duration::from_millis(1));
    // Used again, so that the second one is the oldest now.
    scene.record("host-0", 5_000, &down());
    scene.record("one more", 1, &down());
    assert_eq!(scene.view("host-0").down_streak, 2);
    assert_eq!(scene.view("host-1").down_streak, 0, "forgotten");
    assert_eq!(scene.view("host-2").down_streak, 1);
    assert_eq!(scene.view("one more").down_streak, 1);
}

#[test]
fn an_event_of_which_no_message_can_be_made_says_nothing_about_its_destination() {
    let mut scene = Scene::down("a");
    scene.pass(EVERY);
    assert_eq!(scene.appoint("a", &[9]), Some(9));
    let cannot_encode = Outcome::CannotEncode { error: "its headers are not JSON".to_owned() };
    assert_eq!(scene.record("a", 9, &cannot_encode), None);
    assert!(scene.view("a").open, "nothing was sent");
    assert_eq!(scene.appoint("a", &[10]), Some(10), "the next one is the probe");
    assert_eq!(scene.record("b", 11, &cannot_encode), None);
    assert_eq!(scene.view("b"), HealthView::default());
}

/// The outcomes of a batch arrive together, after the slowest: a delivery before an outage says
/// nothing about the outage.
#[test]
fn a_success_counts_from_when_the_event_was_sent() {
    let mut scene = Scene::new();
    let (sent_at, under_way) = (scene.now, Duration::from_secs(6));
    scene.pass(under_way);
    let event = held_event(1);
    scene.health.record("a", &event, &Outcome::Delivered, under_way, sent_at, scene.now);
    assert_eq!(scene.view("a").last_success_at, Some(event.claimed_at));
}

/// Events that wait for it would never learn that it is back.
#[test]
fn a_destination_that_is_down_is_not_forgotten_for_others() {
    let mut scene = Scene::down("a");
    for other in 0..1_500 {
        scene.pass(Duration::from_millis(1));
        scene.record(&format!("other-{other}"), 100 + other, &Outcome::Delivered);
    }
    assert!(scene.view("a").open);
}

/// It may be back sooner, and nothing would notify the waiting events.
#[test]
fn events_wait_no_longer_than_their_limit_however_long_the_destination_asks_for() {
    let (scene, limit) = (Scene::new(), Duration::from_secs(10));
    for id in 1..=5 {
        scene.record("a", id, &down_asking(RETRY_AFTER_MAX));
    }
    assert!(scene.view("a").open);
    assert_eq!(scene.health.defer("a", 6, scene.now, Some(limit)), limit);
}
