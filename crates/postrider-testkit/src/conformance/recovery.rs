//! Recovery: rows that no relay works on any more, and events that crash their relay.

use std::time::Duration;

use postrider_store::{Cursor, Deferral, Event, Lease, OnSuccess, Recovery};

use super::jobs::retry_all;
use super::steps::{deferral, failure, ids};
use crate::TestDb;

const STALLED_AFTER: Duration = Duration::from_secs(300);
/// Far beyond any stall time: the apparent age of a fresh claim after a clock jump.
const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

async fn recover(db: &TestDb, dead: &[&str], live: &[&str]) -> u64 {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let (dead, live) = (owned(dead), owned(live));
    let recovery = Recovery { dead: &dead, live: &live, stalled_after: STALLED_AFTER };
    db.store.recover(&db.outbox, &recovery).await.unwrap()
}

/// Crashes a relay with the rows that it holds: they are claimed, the relay is fenced, and they are
/// recovered.
async fn crash(db: &TestDb, survivor: &Lease, name: &str, cursor: &mut Cursor) -> Vec<Event> {
    let relay = db.relay(name).await;
    let held = db.claim_on(&relay, 100, cursor).await;
    db.fence(survivor, &relay).await;
    assert_eq!(recover(db, &[name], &[&survivor.relay_id]).await, held.len() as u64);
    db.store.remove_relay(name).await.unwrap();
    held
}

/// The rows of a dead relay return, with the crash counted; those of a living one do not.
pub async fn rows_of_a_dead_relay_return_with_the_crash_counted(db: TestDb) {
    let appended = db.append_orders(4).await;
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let (held, other) = (db.claim(&dead, 2).await, db.claim(&live, 2).await);
    assert_eq!((ids(&held), ids(&other)), (appended[..2].to_vec(), appended[2..].to_vec()));
    db.fence(&live, &dead).await;

    assert_eq!(recover(&db, &["relay-a"], &["relay-b"]).await, 2);

    for id in ids(&held) {
        let row = db.event(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.retry_count), ("PENDING", 0), "no attempt is spent");
        assert_eq!((row.locked_by, row.locked_at), (None, None));
        assert_eq!(db.column(id, "crash_count").await.as_deref(), Some("1"));
    }
    assert_eq!(db.event(appended[2]).await.unwrap().status.as_str(), "PROCESSING");
    assert_eq!(recover(&db, &["relay-a"], &["relay-b"]).await, 0, "once");
    assert_eq!(ids(&db.claim(&live, 10).await), ids(&held));
    db.assert_balanced().await;
}

/// Wall clocks of living relays are never compared: a clock that jumps takes no rows from them.
pub async fn rows_of_a_live_relay_stay_however_old_their_lock_looks(db: TestDb) {
    let id = db.append_orders(1).await[0];
    let relay = db.relay("relay-a").await;
    db.claim(&relay, 10).await;
    db.age(db.outbox.table(), "locked_at", YEARS, "1 = 1").await;
    assert_eq!(recover(&db, &[], &["relay-a"]).await, 0);
    assert_eq!(db.event(id).await.unwrap().locked_by.as_deref(), Some("relay-a"));
}

/// The last heartbeat of a dead runner then lies in the future, and would look fresh until the
/// clock gets there. A runner whose clock is slightly ahead keeps its job.
pub async fn a_job_of_a_dead_runner_is_taken_over_after_the_clock_was_set_back(db: TestDb) {
    const QUIET: Duration = Duration::from_secs(60);
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 1).await;
    let job = db.taken_job(&retry_all()).await;
    let take = async |runner: &str| db.store.take_job(job.id, runner, QUIET).await.unwrap();
    db.set_ahead("postrider_jobs", "beat_at", QUIET / 2, "1 = 1").await;
    assert!(take("runner-b").await.is_none(), "its runner gave a sign of life");
    db.set_ahead("postrider_jobs", "beat_at", YEARS, "1 = 1").await;
    assert!(take("runner-b").await.is_some(), "the clock was set back");
    assert!(db.step(&job, "runner-a", 2).await.is_none(), "fenced");
    assert!(take("runner-a").await.is_none(), "the new sign of life is by the new clock");
    assert_eq!(db.step(&job, "runner-b", 2).await.unwrap().done_count, 1);
}

/// A holder that is on no list keeps its rows for the stall time only.
pub async fn rows_of_an_unknown_relay_return_after_the_stall_time(db: TestDb) {
    let id = db.append_orders(1).await[0];
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(recover(&db, &[], &["relay-b"]).await, 0, "held for less than the stall time");
    db.age(db.outbox.table(), "locked_at", STALLED_AFTER * 2, "1 = 1").await;
    assert_eq!(recover(&db, &[], &["relay-b"]).await, 1);
    assert_eq!(ids(&db.claim_on(&relay, 10, &mut cursor).await), [id], "by the same cursor");
}

/// Only `PROCESSING` rows are recovered: waiting and failed ones are not changed.
pub async fn only_rows_that_are_held_are_recovered(db: TestDb) {
    let appended = db.append_orders(2).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 1).await;
    let failures = [failure(&claimed[0], Duration::from_secs(3600), "no")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    assert_eq!(recover(&db, &["relay-a"], &[]).await, 0);
    assert_eq!(db.event(appended[0]).await.unwrap().status.as_str(), "FAILED");
    assert_eq!(db.event(appended[1]).await.unwrap().status.as_str(), "PENDING");
}

/// Rows that a relay holds in the table but does not know are released; rows in flight stay.
pub async fn release_lost_gives_back_exactly_what_is_not_in_flight(db: TestDb) {
    let appended = db.append_orders(5).await;
    let (relay, other) = (db.relay("relay-a").await, db.relay("relay-b").await);
    db.claim(&relay, 4).await;
    db.claim(&other, 1).await;
    let in_flight = [appended[1], appended[3]];

    assert_eq!(db.store.release_lost(&db.outbox, &relay, &in_flight).await.unwrap(), 2);

    let mut states = Vec::new();
    for id in &appended {
        states.push(db.event(*id).await.unwrap().locked_by);
    }
    let [mine, others] = ["relay-a", "relay-b"].map(|name| Some(name.to_owned()));
    assert_eq!(states, [None, mine.clone(), None, mine, others]);
    assert_eq!(db.column(appended[0], "crash_count").await.as_deref(), Some("0"), "no crash");
    assert_eq!(db.store.release_lost(&db.outbox, &relay, &in_flight).await.unwrap(), 0);
    assert_eq!(db.store.release_lost(&db.outbox, &relay, &[]).await.unwrap(), 2, "nothing flies");
    db.assert_balanced().await;
}

/// A relay that starts begins with the suspects. Without the wait, relays that are killed right
/// after their start would make an innocent suspect a dead letter.
pub async fn a_suspect_waits_longer_after_each_crash(db: TestDb) {
    const STEP: Duration = Duration::from_secs(5);
    let survivor = db.relay("survivor").await;
    let mut cursor = Cursor::new();
    db.append_orders(1).await;
    crash(&db, &survivor, "victim-1", &mut cursor).await;
    crash(&db, &survivor, "victim-2", &mut cursor).await;
    let is_due = async || db.store.has_suspect(&db.outbox).await.unwrap();
    for steps in [1, 2, 3, 3] {
        let victim = db.relay("victim").await;
        assert!(db.store.claim_suspect(&db.outbox, &victim).await.unwrap().is_some());
        db.fence(&survivor, &victim).await;
        assert_eq!(recover(&db, &["victim"], &["survivor"]).await, 1);
        db.store.remove_relay("victim").await.unwrap();
        for step in 0..steps {
            assert!(!is_due().await, "step {step} of {steps}");
            db.age(db.outbox.table(), "next_retry_at", STEP, "1 = 1").await;
        }
        assert!(is_due().await, "after {steps} steps");
    }
}

/// An event held at two crashes is sent alone from then on; an ordinary claim skips it.
pub async fn a_suspect_is_claimed_alone_and_never_in_a_batch(db: TestDb) {
    let survivor = db.relay("survivor").await;
    let mut cursor = Cursor::new();
    let suspects = db.append_orders(2).await;
    assert!(!db.store.has_suspect(&db.outbox).await.unwrap());
    crash(&db, &survivor, "victim-1", &mut cursor).await;
    assert!(!db.store.has_suspect(&db.outbox).await.unwrap(), "one crash proves nothing");
    assert!(db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().is_none());
    assert_eq!(ids(&crash(&db, &survivor, "victim-2", &mut cursor).await), suspects);
    assert!(db.store.has_suspect(&db.outbox).await.unwrap());

    let fresh = db.append_orders(1).await;
    assert_eq!(ids(&db.claim_on(&survivor, 10, &mut cursor).await), fresh, "without suspects");
    let alone = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().unwrap();
    assert_eq!((alone.id, alone.crash_count), (suspects[0], 2));
    let row = db.event(alone.id).await.unwrap();
    assert_eq!((row.status.as_str(), row.locked_by.as_deref()), ("PROCESSING", Some("survivor")));
    let next = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().unwrap();
    assert_eq!(next.id, suspects[1]);
    assert!(db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().is_none());
    assert!(!db.store.has_suspect(&db.outbox).await.unwrap(), "both are held");
    assert_eq!(db.deliver(&survivor, &[alone, next], OnSuccess::Delete).await, 2);
    db.assert_balanced().await;
}

/// Fewest crashes first: an innocent event that was held next to the crashing one gets through.
pub async fn the_suspect_with_the_fewest_crashes_comes_first(db: TestDb) {
    let survivor = db.relay("survivor").await;
    let mut cursor = Cursor::new();
    let suspects = db.append_orders(3).await;
    for number in 0..2 {
        crash(&db, &survivor, &format!("victim-{number}"), &mut cursor).await;
    }
    // The first event crashes another relay, alone in flight.
    let killer = db.relay("victim-x").await;
    let alone = db.store.claim_suspect(&db.outbox, &killer).await.unwrap().unwrap();
    assert_eq!(alone.id, suspects[0]);
    db.fence(&survivor, &killer).await;
    assert_eq!(recover(&db, &["victim-x"], &["survivor"]).await, 1);
    // Its wait is over.
    db.age(db.outbox.table(), "next_retry_at", STALLED_AFTER, "1 = 1").await;

    let mut order = Vec::new();
    while let Some(event) = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap() {
        order.push((event.id, event.crash_count));
    }
    assert_eq!(order, [(suspects[1], 2), (suspects[2], 2), (suspects[0], 3)]);
}

/// Any outcome shows that the event does not crash the relay, and clears the count. A release
/// without an attempt shows nothing.
pub async fn an_outcome_clears_the_crash_count_and_a_release_untried_does_not(db: TestDb) {
    let survivor = db.relay("survivor").await;
    let mut cursor = Cursor::new();
    let appended = db.append_orders(3).await;
    for number in 0..2 {
        crash(&db, &survivor, &format!("victim-{number}"), &mut cursor).await;
    }
    let mut held = Vec::new();
    while let Some(event) = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap() {
        held.push(event);
    }
    let failures = [failure(&held[0], Duration::ZERO, "404")];
    db.store.settle_failed(&db.outbox, &survivor, &failures).await.unwrap();
    let down = Some("503".to_owned());
    let deferrals = [
        Deferral { error: down, ..deferral(&held[1], Duration::ZERO) },
        deferral(&held[2], Duration::ZERO),
    ];
    db.store.release(&db.outbox, &survivor, &deferrals).await.unwrap();

    let ordinary = db.claim_on(&survivor, 10, &mut cursor).await;
    assert_eq!(ids(&ordinary), appended[..2], "cleared, so they travel with others again");
    assert!(ordinary.iter().all(|event| event.crash_count == 0));
    let suspect = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().unwrap();
    assert_eq!((suspect.id, suspect.crash_count), (appended[2], 2), "still unproven");
}

/// A suspect that is deferred waits to be due like any other event.
pub async fn a_suspect_that_is_not_due_is_left_alone(db: TestDb) {
    let survivor = db.relay("survivor").await;
    let mut cursor = Cursor::new();
    db.append_orders(1).await;
    for number in 0..2 {
        crash(&db, &survivor, &format!("victim-{number}"), &mut cursor).await;
    }
    let event = db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().unwrap();
    let put_off = [deferral(&event, Duration::from_secs(3600))];
    db.store.release(&db.outbox, &survivor, &put_off).await.unwrap();
    assert!(!db.store.has_suspect(&db.outbox).await.unwrap());
    assert!(db.store.claim_suspect(&db.outbox, &survivor).await.unwrap().is_none());
    assert!(db.claim_on(&survivor, 10, &mut cursor).await.is_empty());
}
