//! The decisions of the policy, as a table.

use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider::content_hash;
use postrider_relay::{
    Cause, HealthView, Outcome, Preset,
    outcome::RETRY_AFTER_MAX,
    policy::{CRASHES_ALONE_MAX, Settlement, decide, examine},
};
use postrider_store::{DeadReason, Event, SUSPECT_CRASHES};
use postrider_testkit::relay::held_event;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const PROBE_IN: Duration = Duration::from_secs(7);

fn delivered() -> Outcome {
    Outcome::Delivered
}

fn rejected() -> Outcome {
    Outcome::Rejected { error: "no".to_owned(), detail: Some("body".to_owned()) }
}

fn no_route() -> Outcome {
    Outcome::NoRoute { error: "no".to_owned() }
}

fn retry() -> Outcome {
    Outcome::Retry { error: "no".to_owned() }
}

fn down() -> Outcome {
    down_by(Cause::Unknown)
}

fn down_by(cause: Cause) -> Outcome {
    Outcome::Down { error: "no".to_owned(), retry_after: None, credentials: false, cause }
}

fn down_asking(wait: Duration) -> Outcome {
    let (error, retry_after, cause) = ("no".to_owned(), Some(wait), Cause::Unknown);
    Outcome::Down { error, retry_after, credentials: false, cause }
}

fn denied() -> Outcome {
    let (error, retry_after, cause) = ("no".to_owned(), None, Cause::Unknown);
    Outcome::Down { error, retry_after, credentials: true, cause }
}

/// The relay's view of a destination.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// Nothing is known.
    New,
    /// It accepted something before this event's last attempt.
    TookBefore,
    /// It accepted something after this event's last attempt.
    TookSince,
    /// It is down, for less than the limit.
    Open,
    /// It is down, for the limit.
    OpenTooLong,
}

const ALL_SEEN: [Seen; 5] =
    [Seen::New, Seen::TookBefore, Seen::TookSince, Seen::Open, Seen::OpenTooLong];

fn view(seen: Seen, failed_at: DateTime<Utc>, preset: &Preset) -> HealthView {
    let at = |last_success_at| HealthView { last_success_at, ..HealthView::default() };
    let open = |down_for| HealthView {
        open: true,
        down_streak: 5,
        down_for: Some(down_for),
        last_success_at: Some(failed_at - HOUR),
        probe_in: PROBE_IN,
    };
    match seen {
        Seen::New => HealthView::default(),
        Seen::TookBefore => at(Some(failed_at - SECOND)),
        Seen::TookSince => at(Some(failed_at + SECOND)),
        Seen::Open => open(preset.outage_max - SECOND),
        Seen::OpenTooLong => open(preset.outage_max),
    }
}

/// A settlement without its texts.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Delivered,
    Failed(Duration),
    Deferred(Duration),
    Dead(DeadReason, bool),
}

fn fate(settlement: Settlement) -> Fate {
    match settlement {
        Settlement::Delivered { .. } => Fate::Delivered,
        Settlement::Failed { delay, error } => {
            assert_eq!(error, "no", "the sink's words reach the row");
            Fate::Failed(delay)
        }
        Settlement::Deferred { delay, error } => {
            assert!(error.is_none_or(|error| error == "no"));
            Fate::Deferred(delay)
        }
        Settlement::Dead { reason, message, attempted, .. } => {
            assert_eq!(message, "no");
            Fate::Dead(reason, attempted)
        }
    }
}

/// Returns an event that was tried before, with `spent` attempts spent.
fn tried(spent: i32) -> Event {
    let event = held_event(1);
    Event {
        retry_count: spent,
        last_failed_at: Some(event.claimed_at - Duration::from_secs(10)),
        ..event
    }
}

/// Outcome × attempts left or not × what is known about the destination × preset.
#[test]
fn every_outcome_has_the_consequence_that_the_specification_says() {
    for preset in Preset::all() {
        let last = i32::try_from(preset.max_retries).unwrap() - 1;
        for (spent, left) in [(0, true), (last - 1, true), (last, false), (last + 5, false)] {
            let event = tried(spent);
            let wait = preset.backoff.wait(u32::try_from(spent).unwrap() + 1, 0.0);
            let charge = || match left {
                true => Fate::Failed(wait),
                false => Fate::Dead(DeadReason::Exhausted, true),
            };
            for seen in ALL_SEEN {
                let health = view(seen, event.last_failed_at.unwrap(), &preset);
                let decided =
                    |outcome: &Outcome| fate(decide(outcome, &event, &health, &preset, 0.0));
                let case = format!("{} {spent} spent, {seen:?}", preset.name);

                assert_eq!(decided(&delivered()), Fate::Delivered, "{case}");
                let dead = |reason, attempted| Fate::Dead(reason, attempted);
                assert_eq!(decided(&rejected()), dead(DeadReason::Rejected, true), "{case}");
                assert_eq!(decided(&no_route()), dead(DeadReason::NoRoute, false), "{case}");
                assert_eq!(decided(&retry()), charge(), "{case}");
                let soon = if health.open { PROBE_IN } else { Duration::ZERO };
                assert_eq!(decided(&Outcome::Untried), Fate::Deferred(soon), "{case}");

                let streak = health.down_streak.max(1);
                let own = preset.backoff.wait(streak, 0.0).min(preset.idle_poll);
                let own = if health.open { PROBE_IN } else { own };
                let expected = match seen {
                    Seen::TookSince | Seen::OpenTooLong => charge(),
                    _ => Fate::Deferred(own),
                };
                assert_eq!(decided(&down()), expected, "{case}");
                assert_eq!(decided(&denied()), expected, "{case}: credentials are a Down too");
                let expected = match seen {
                    Seen::OpenTooLong => charge(),
                    _ => Fate::Deferred(own),
                };
                for cause in [Cause::Destination, Cause::Server] {
                    assert_eq!(decided(&down_by(cause)), expected, "{case}, {cause:?}");
                }
            }
        }
    }
}

#[test]
fn a_first_try_is_never_charged_for_an_outage() {
    let preset = Preset::api_call();
    let event = held_event(1);
    let took = view(Seen::TookSince, event.claimed_at, &preset);
    let settlement = decide(&down(), &event, &took, &preset, 0.0);
    assert!(matches!(settlement, Settlement::Deferred { error: Some(_), .. }), "{settlement:?}");
}

#[test]
fn plain_counting_charges_every_outage() {
    let preset = Preset { outage_spends_attempts: true, ..Preset::broker() };
    for seen in ALL_SEEN {
        let event = tried(0);
        let health = view(seen, event.last_failed_at.unwrap(), &preset);
        let wait = preset.backoff.wait(1, 0.0);
        assert_eq!(fate(decide(&down(), &event, &health, &preset, 0.0)), Fate::Failed(wait));
        let last = tried(4);
        let dead = fate(decide(&down(), &last, &health, &preset, 0.0));
        assert_eq!(dead, Fate::Dead(DeadReason::Exhausted, true));
    }
}

#[test]
fn retry_after_is_honoured_within_its_limits() {
    let preset = Preset::api_call();
    let (event, new) = (tried(0), HealthView::default());
    let deferred = |asked| match decide(&down_asking(asked), &event, &new, &preset, 0.0) {
        Settlement::Deferred { delay, .. } => delay,
        other => panic!("{other:?}"),
    };
    assert_eq!(deferred(Duration::from_secs(600)), Duration::from_secs(600));
    assert_eq!(deferred(Duration::MAX), RETRY_AFTER_MAX, "a hostile answer parks nothing for ever");
    assert_eq!(deferred(Duration::ZERO), preset.idle_poll, "no busy loop");

    let charged = view(Seen::TookSince, event.last_failed_at.unwrap(), &preset);
    for (asked, expected) in [(1, 60), (600, 600), (1_000_000, 3_600)] {
        let outcome = down_asking(Duration::from_secs(asked));
        let settlement = decide(&outcome, &event, &charged, &preset, 0.0);
        assert_eq!(fate(settlement), Fate::Failed(Duration::from_secs(expected)));
    }
}

#[test]
fn an_events_own_limit_of_attempts_goes_first() {
    let preset = Preset::notification();
    let health = HealthView::default();
    for (own, spent, dead) in [(1, 0, true), (5, 3, false), (5, 4, true), (-1, 1, false)] {
        let event = Event { max_retries: Some(own), ..tried(spent) };
        let settlement = decide(&retry(), &event, &health, &preset, 0.0);
        let is_dead = matches!(settlement, Settlement::Dead { .. });
        assert_eq!(is_dead, dead, "own {own}, spent {spent}");
    }
}

#[test]
fn a_rejection_keeps_the_body_of_the_answer() {
    let decided = decide(&rejected(), &tried(0), &HealthView::default(), &Preset::api_call(), 0.0);
    assert!(matches!(decided, Settlement::Dead { detail: Some(body), .. } if body == "body"));
}

fn reason(event: &Event, preset: &Preset) -> Option<DeadReason> {
    examine(event, preset).map(|settlement| match settlement {
        Settlement::Dead { reason, attempted: false, .. } => reason,
        other => panic!("nothing was tried yet: {other:?}"),
    })
}

#[test]
fn an_event_is_examined_before_it_is_delivered() {
    let free = Preset::api_call();
    let strict = Preset::notification();
    let aged = |age| Preset { max_age: Some(Duration::from_secs(age)), ..Preset::api_call() };
    let event = held_event(1);
    let hash = content_hash(Some("r"), &event.event_type, &event.payload);
    let signed =
        Event { request_id: Some("r".to_owned()), content_hash: Some(hash), ..event.clone() };
    let expiring = |at| Event { expires_at: Some(at), ..held_event(1) };
    let crashed = |crash_count| Event { crash_count, ..held_event(1) };
    let changed = |change: fn(&mut Event)| {
        let mut event = signed.clone();
        change(&mut event);
        event
    };
    let capitals: fn(&mut Event) =
        |e| e.content_hash = e.content_hash.take().map(|hash| hash.to_uppercase());
    let (integrity, expired) = (Some(DeadReason::Integrity), Some(DeadReason::Expired));
    let fatal = SUSPECT_CRASHES + CRASHES_ALONE_MAX;
    let now = event.claimed_at;
    for (case, event, preset, expected) in [
        ("no hash, none required", event.clone(), &free, None),
        ("hash fits", signed.clone(), &free, None),
        ("hash in capitals", changed(capitals), &free, None),
        ("payload changed", changed(|e| e.payload.push(' ')), &free, integrity),
        ("type changed", changed(|e| e.event_type.push('2')), &free, integrity),
        ("request id changed", changed(|e| e.request_id = None), &free, integrity),
        ("hash emptied", changed(|e| e.content_hash = Some(String::new())), &free, integrity),
        ("hash required and there", signed.clone(), &strict, None),
        ("hash required", changed(|e| e.content_hash = None), &strict, integrity),
        ("neither there", event.clone(), &strict, integrity),
        ("expires later", expiring(now + SECOND), &free, None),
        ("expires now", expiring(now), &free, expired),
        ("expired", expiring(now - SECOND), &free, expired),
        ("young enough", event.clone(), &aged(61), None),
        ("as old as allowed", event.clone(), &aged(60), expired),
        ("own time before the age", expiring(now - SECOND), &aged(1_000), expired),
        ("age before the own time", expiring(now + HOUR), &aged(10), expired),
        ("an age beyond all calendars", event.clone(), &aged(u64::MAX), None),
        ("a suspect", crashed(SUSPECT_CRASHES), &free, None),
        ("a suspect that crashed alone", crashed(fatal - 1), &free, None),
        ("a killer", crashed(fatal), &free, Some(DeadReason::Crash)),
    ] {
        assert_eq!(reason(&event, preset), expected, "{case}");
    }
    // The hash is checked first: an event that was tampered with is not judged by its own claims.
    let mut tampered = changed(|e| e.payload.push('!'));
    tampered.expires_at = Some(now - SECOND);
    assert_eq!(reason(&tampered, &free), integrity);
}
