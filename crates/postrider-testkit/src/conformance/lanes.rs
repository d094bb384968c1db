//! Claim mode `lanes`: ownership, the effects of a crash, parked keys, and settles of rows that
//! were not marked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{
    ClaimMode, Cursor, DeadReason, Delivery, Key, LANES, Lane, LaneSet, Lease, OnSuccess,
    OutboxSpec, Serving, Share, StoreError, Traffic,
};

use super::steps::{death, deferral, failure, ids, order, originals, rows};
use crate::TestDb;

/// Returns how many lanes a relay gets that asks for this many free ones.
fn granted(db: &TestDb, asked: usize) -> usize {
    // Declared: a store that cannot share lanes grants all of them together.
    if db.store.capabilities().shares_lanes { asked } else { usize::from(LANES) }
}

async fn take(db: &TestDb, lease: &Lease, lanes_max: usize) -> Vec<Lane> {
    db.store.take_lanes(&db.outbox, lease, lanes_max).await.unwrap()
}

fn numbers(lanes: &[Lane]) -> BTreeSet<u8> {
    lanes.iter().map(|lane| lane.lane).collect()
}

fn key(aggregate_id: &str) -> Key {
    Key { aggregate_type: "order".to_owned(), aggregate_id: aggregate_id.to_owned() }
}

/// Free lanes are taken up to the limit, and a repeated call returns the owned ones.
pub async fn free_lanes_are_taken_up_to_the_limit(db: TestDb) {
    let relay = db.relay("relay-a").await;
    assert!(take(&db, &relay, 0).await.is_empty(), "nothing asked for, nothing taken");
    let first = take(&db, &relay, 10).await;
    assert_eq!(first.len(), granted(&db, 10));
    assert!(first.iter().all(|lane| (lane.crash_count, lane.flight_to) == (0, None)));
    let more = take(&db, &relay, 30).await;
    assert_eq!(more.len(), granted(&db, 30));
    assert!(numbers(&more).is_superset(&numbers(&first)), "what it has, it keeps");
    assert_eq!(take(&db, &relay, 0).await.len(), more.len(), "what is owned is answered");
    assert_eq!(numbers(&take(&db, &relay, 500).await), (0..LANES).collect());
}

/// A lane of a living relay cannot be taken, however slow that relay is.
pub async fn lanes_of_a_living_relay_stay_with_it(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let first = take(&db, &a, 40).await;
    let second = take(&db, &b, 64).await;
    assert_eq!(first.len() + second.len(), usize::from(LANES), "all that is left");
    assert!(numbers(&first).is_disjoint(&numbers(&second)));
    assert!(take(&db, &b, 64).await.iter().all(|lane| lane.crash_count == 0), "no relay died");
    let owners = db.store.lane_owners(&db.outbox).await.unwrap();
    assert_eq!(owners.iter().map(|o| o.lane).collect::<Vec<_>>(), (0..LANES).collect::<Vec<_>>());
    let of = |relay: &Lease| {
        let of = owners.iter().filter(|o| o.relay_id.as_ref() == Some(&relay.relay_id));
        of.map(|o| o.lane).collect::<BTreeSet<_>>()
    };
    assert_eq!((of(&a), of(&b)), (numbers(&first), numbers(&second)), "as anybody can see");
}

/// Concurrent takers wait for each other, and each sees the others as alive.
pub async fn relays_that_take_at_once_never_share_a_lane(db: TestDb) {
    let outboxes: Vec<_> = {
        let mut outboxes = vec![db.outbox.clone()];
        for _ in 0..5 {
            outboxes.push(db.add_outbox(postrider_store::Dedupe::default()).await);
        }
        outboxes
    };
    for outbox in outboxes {
        let mut tasks = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let (store, outbox) = (db.store.clone(), outbox.clone());
            let relay = db.relay(&format!("{}-{name}", outbox.name())).await;
            tasks.push(tokio::spawn(async move {
                let mut owned = Vec::new();
                for _ in 0..3 {
                    owned = store.take_lanes(&outbox, &relay, 64).await.unwrap();
                }
                owned
            }));
        }
        let mut owned: BTreeMap<u8, usize> = BTreeMap::new();
        for task in tasks {
            for lane in task.await.unwrap() {
                assert_eq!(lane.crash_count, 0, "no relay died");
                *owned.entry(lane.lane).or_default() += 1;
            }
        }
        assert_eq!(owned.len(), usize::from(LANES));
        assert!(owned.values().all(|owners| *owners == 1), "{owned:?}");
    }
}

/// A dead owner's lanes go to the next taker, which learns how many owners in a row died.
pub async fn lanes_of_a_dead_relay_are_taken_with_the_crash_counted(db: TestDb) {
    let mut owner = db.relay("relay-0").await;
    for crashes in 1..4 {
        take(&db, &owner, 64).await;
        let next = db.relay(&format!("relay-{crashes}")).await;
        db.fence(&next, &owner).await;
        let taken = take(&db, &next, 64).await;
        assert_eq!(taken.len(), usize::from(LANES));
        assert!(taken.iter().all(|lane| lane.crash_count == crashes), "{taken:?}");
        if crashes == 2 {
            // Removed from the list counts as dead, like fenced.
            db.store.remove_relay(&owner.relay_id).await.unwrap();
        }
        owner = next;
    }
    db.store.clear_crashes(&db.outbox, &owner, LaneSet::ALL).await.unwrap();
    assert!(take(&db, &owner, 64).await.iter().all(|lane| lane.crash_count == 0), "forgotten");
}

/// A relay that retired without releasing its lanes counts as dead; one that released them does
/// not.
pub async fn a_retired_relay_leaves_no_crash_where_it_gave_its_lanes_back(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let owned = take(&db, &a, 64).await;
    db.store.release_lanes(&db.outbox, &a, &owned).await.unwrap();
    db.store.retire(&a).await.unwrap();
    let taken = take(&db, &b, 64).await;
    assert_eq!(taken.len(), usize::from(LANES));
    assert!(taken.iter().all(|lane| lane.crash_count == 0));
    db.store.retire(&b).await.unwrap();
    let c = db.relay("relay-c").await;
    assert!(take(&db, &c, 64).await.iter().all(|lane| lane.crash_count == 1));
}

/// A relay that lost its lease takes and parks nothing.
pub async fn a_fenced_relay_takes_no_lane(db: TestDb) {
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    db.fence(&live, &dead).await;
    let taken = db.store.take_lanes(&db.outbox, &dead, 64).await;
    assert!(matches!(taken, Err(StoreError::LeaseLost)), "{taken:?}");
    let parked = db.store.park_keys(&db.outbox, &dead, &[key("1")]).await;
    assert!(matches!(parked, Err(StoreError::LeaseLost)), "{parked:?}");
    assert!(db.store.parked_keys(&db.outbox).await.unwrap().is_empty());
    assert_eq!(take(&db, &live, 64).await.len(), usize::from(LANES));
}

/// A release whose answer was lost arrives late, after the lane was taken again, and does nothing.
pub async fn a_late_release_does_nothing(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let old = take(&db, &a, 64).await;
    let new = take(&db, &a, 64).await;
    db.store.release_lanes(&db.outbox, &a, &old).await.unwrap();
    assert!(take(&db, &b, 64).await.is_empty(), "an older version");
    db.store.release_lanes(&db.outbox, &b, &new).await.unwrap();
    assert!(take(&db, &b, 64).await.is_empty(), "not the owner");
    db.store.release_lanes(&db.outbox, &a, &new).await.unwrap();
    let taken = take(&db, &b, 64).await;
    assert_eq!(taken.len(), usize::from(LANES));
    db.store.release_lanes(&db.outbox, &a, &new).await.unwrap();
    assert!(take(&db, &a, 64).await.is_empty(), "its repeat, after another took them");
}

/// The next owner learns what was in flight; clearing the crashes deletes that too.
pub async fn the_next_owner_learns_what_was_in_flight(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    take(&db, &a, 64).await;
    let (store, outbox) = (&db.store, &db.outbox);
    let some: LaneSet = [0, 5, 63].into_iter().collect();
    store.note_flight(outbox, &a, some, 70).await.unwrap();
    store.note_flight(outbox, &a, some, 40).await.unwrap();
    store.note_flight(outbox, &b, LaneSet::ALL, 99).await.unwrap();
    db.fence(&b, &a).await;
    let taken = take(&db, &b, 64).await;
    for lane in &taken {
        let expected = some.contains(lane.lane).then_some(70);
        assert_eq!(lane.flight_to, expected, "the largest, and only of the owner: {lane:?}");
    }
    let cleared: LaneSet = [5].into_iter().collect();
    store.clear_crashes(outbox, &a, LaneSet::ALL).await.unwrap();
    store.clear_crashes(outbox, &b, cleared).await.unwrap();
    for lane in take(&db, &b, 64).await {
        let expected = (lane.lane != 5, [0, 63].contains(&lane.lane).then_some(70));
        assert_eq!((lane.crash_count == 1, lane.flight_to), expected, "{lane:?}");
    }
}

/// A crash is charged only to the event that was alone in flight; from then on it is a suspect in
/// both modes.
pub async fn only_the_suspect_is_charged_with_a_crash(db: TestDb) {
    let appended = db.append_orders(3).await;
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    take(&db, &a, 64).await;
    let (store, outbox) = (&db.store, &db.outbox);
    store.note_suspect(outbox, &a, 3, Some(appended[0])).await.unwrap();
    store.note_suspect(outbox, &a, 7, Some(appended[1])).await.unwrap();
    store.note_suspect(outbox, &b, 9, Some(appended[2])).await.unwrap();
    db.fence(&b, &a).await;
    take(&db, &b, 64).await;
    let found = store.read_ids(outbox, &appended).await.unwrap();
    let crashes: Vec<_> = found.iter().map(|row| row.event.crash_count).collect();
    assert_eq!(crashes[0], 0, "it was delivered before the next suspect was noted");
    assert!(crashes[1] > 2, "{crashes:?}");
    assert_eq!(crashes[2], 0, "noted by a relay that does not own the lane");
    assert_eq!(found[1].due_in, Duration::ZERO);
    let charged = crashes[1];

    take(&db, &b, 64).await;
    db.store.retire(&b).await.unwrap();
    let c = db.relay("relay-c").await;
    take(&db, &c, 64).await;
    let again = store.read_ids(outbox, &appended).await.unwrap();
    assert_eq!(again[1].event.crash_count, charged, "charged once for one death");
    assert_eq!(ids(&db.claim(&c, 10).await), [appended[0], appended[2]], "rows: not in a batch");
    assert_eq!(store.claim_suspect(outbox, &c).await.unwrap().unwrap().id, appended[1]);
}

/// Rows that were read and not marked can be settled like claimed ones.
pub async fn rows_that_were_only_read_are_settled(db: TestDb) {
    let appended = db.append_orders(6).await;
    let relay = db.relay("relay-a").await;
    let (store, outbox) = (&db.store, &db.outbox);
    let read = store.read_ids(outbox, &appended).await.unwrap();
    let event = |n: usize| &read[n].event;
    let minute = Duration::from_secs(60);
    for expected in [1, 0] {
        // The second time is a repeat of a call whose answer was lost.
        let deleted = [Delivery::from(event(0))];
        let settled = store.settle_delivered(outbox, &relay, &deleted, OnSuccess::Delete).await;
        assert_eq!(settled.unwrap().rows, expected);
        let archived = [Delivery::from(event(1))];
        let settled = store.settle_delivered(outbox, &relay, &archived, OnSuccess::Archive).await;
        assert_eq!(settled.unwrap().rows, expected);
        let failed = [failure(event(2), minute, "no")];
        assert_eq!(store.settle_failed(outbox, &relay, &failed).await.unwrap().rows, expected);
        let dead = [death(event(3), DeadReason::Rejected, "no")];
        assert_eq!(store.settle_dead(outbox, &relay, &dead).await.unwrap().rows, expected);
        let marked = [death(event(4), DeadReason::Rejected, "no")];
        assert_eq!(store.mark_dead(outbox, &relay, &marked).await.unwrap().rows, expected);
        let back = [deferral(event(5), minute)];
        assert_eq!(store.release(outbox, &relay, &back).await.unwrap().rows, expected);
    }
    let rest = store.read_ids(outbox, &appended).await.unwrap();
    let rest: Vec<_> = rest.iter().map(|row| (row.event.id, row.event.retry_count)).collect();
    assert_eq!(rest, [(appended[2], 1), (appended[5], 0)], "one marked dead is not read");
    let attempts = store.attempts(outbox, &event(2).event_id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].relay_id, "relay-a", "who tried it is known without a mark on the row");
    assert_eq!(originals(&store.move_marked(outbox, 10).await.unwrap()), [appended[4]]);
    assert_eq!((db.count("_archive").await, db.count("_dlq").await), (1, 2));
    db.assert_balanced().await;
}

/// The version fences the row: a row that changed since the read is not settled.
pub async fn a_row_that_changed_since_the_read_is_not_settled(db: TestDb) {
    let appended = db.append_orders(2).await;
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let before = db.store.read_ids(&db.outbox, &appended).await.unwrap();
    let claimed = db.claim(&b, 1).await;
    let old: Vec<_> = before.iter().map(|row| row.event.clone()).collect();
    assert_eq!(db.deliver(&a, &old, OnSuccess::Delete).await, 1, "one is another's meanwhile");
    let failed = [failure(&old[0], Duration::ZERO, "no")];
    assert_eq!(db.store.settle_failed(&db.outbox, &a, &failed).await.unwrap().rows, 0);
    assert_eq!(db.count("_attempts").await, 0);
    let back = [deferral(&claimed[0], Duration::ZERO)];
    assert_eq!(db.store.release(&db.outbox, &b, &back).await.unwrap().rows, 1);
    assert_eq!(db.deliver(&a, &old, OnSuccess::Delete).await, 0, "free again, but not as it was");
    db.assert_balanced().await;
}

/// A relay that was declared dead settles none of its rows, marked or not.
pub async fn a_fenced_relay_settles_nothing_that_it_read(db: TestDb) {
    let appended = db.append_orders(1).await;
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let read = db.store.read_ids(&db.outbox, &appended).await.unwrap();
    db.fence(&live, &dead).await;
    let (store, outbox, event) = (&db.store, &db.outbox, &read[0].event);
    let delivered = [Delivery::from(event)];
    let answers = [
        store.settle_delivered(outbox, &dead, &delivered, OnSuccess::Delete).await,
        store.settle_failed(outbox, &dead, &[failure(event, Duration::ZERO, "no")]).await,
        store.settle_dead(outbox, &dead, &[death(event, DeadReason::Rejected, "no")]).await,
        store.release(outbox, &dead, &[deferral(event, Duration::ZERO)]).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(StoreError::LeaseLost)), "{answer:?}");
    }
    assert_eq!(db.event(appended[0]).await.unwrap().status.as_str(), "PENDING");
}

/// A parked key stays parked over restarts, until an operator releases it, which is audited.
pub async fn a_parked_key_stays_until_an_operator_releases_it(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let long = Key { aggregate_type: "t".repeat(100), aggregate_id: "ü".repeat(255) };
    let keys = [key("1"), key("1 "), long.clone()];
    let (store, outbox) = (&db.store, &db.outbox);
    for _ in 0..2 {
        store.park_keys(outbox, &relay, &keys).await.expect("again is not an error");
    }
    let parked: BTreeSet<_> = store.parked_keys(outbox).await.unwrap().into_iter().collect();
    assert_eq!(parked, keys.iter().cloned().collect());
    let other = db.add_outbox(postrider_store::Dedupe::default()).await;
    assert!(store.parked_keys(&other).await.unwrap().is_empty());

    let unknown = store.release_key(outbox, &key("2"), "ann").await;
    assert!(matches!(&unknown, Err(StoreError::Refused(why)) if why.contains("order / 2")));
    store.release_key(outbox, &long, "ann").await.unwrap();
    let again = store.release_key(outbox, &long, "ann").await;
    assert!(matches!(again, Err(StoreError::Refused(_))), "{again:?}");
    assert_eq!(store.parked_keys(outbox).await.unwrap().len(), 2);
    let audit = db.trail().await;
    assert_eq!(audit.len(), 1, "what was refused is not recorded as done");
    assert_eq!((audit[0].operator.as_str(), audit[0].action.as_str()), ("ann", "release_key"));
}

/// Blocked keys are listed, oldest first, with the number of events that wait behind each.
pub async fn blocked_keys_are_listed_with_what_waits_behind_them(db: TestDb) {
    assert!(db.store.blocked_keys(&db.outbox, 10, 200_000).await.unwrap().is_empty());
    let of = |id: &str| NewEvent::new("order", id, "T", "{}");
    let appended = db
        .append(&[of("calm"), of("a"), of("b"), of("a"), of("p"), of("a"), of("calm"), of("b")])
        .await;
    let relay = db.relay("relay-a").await;
    let (store, outbox) = (&db.store, &db.outbox);
    let read = store.read_ids(outbox, &appended).await.unwrap();
    let hour = Duration::from_secs(3600);
    let failed =
        [failure(&read[2].event, hour, "b fails"), failure(&read[1].event, hour, "a fails")];
    store.settle_failed(outbox, &relay, &failed).await.unwrap();
    // Deferred without an attempt, so the key is not blocked.
    store.release(outbox, &relay, &[deferral(&read[0].event, hour)]).await.unwrap();
    store.park_keys(outbox, &relay, &[key("p"), key("b"), key("empty")]).await.unwrap();

    let blocked = store.blocked_keys(outbox, 10, 200_000).await.unwrap();

    let seen: Vec<_> = blocked
        .iter()
        .map(|b| (b.key.aggregate_id.as_str(), b.head_id, b.waiting, b.parked, b.more))
        .collect();
    let (a, b) = (Some(appended[1]), Some(appended[2]));
    let expected = [
        ("a", a, 2, false, false),
        ("b", b, 1, true, false),
        ("p", None, 1, true, false),
        ("empty", None, 0, true, false),
    ];
    assert_eq!(seen, expected);
    assert_eq!((blocked[0].last_error.as_deref(), blocked[0].retry_count), (Some("a fails"), 1));
    let wait = blocked[0].next_retry_at.unwrap() - read[0].event.claimed_at;
    assert!((3590..3700).contains(&wait.num_seconds()), "{wait}");
    assert_eq!(store.blocked_keys(outbox, 1, 200_000).await.unwrap().len(), 1, "within the limit");
}

/// The mode is that of the first migration until an operator changes it; each change is counted.
pub async fn a_change_of_the_claim_mode_is_counted_and_recorded(db: TestDb) {
    let (store, outbox) = (&db.store, &db.outbox);
    let mode = async || {
        let modes = store.modes().await.unwrap();
        modes.into_iter().find(|(name, _)| name == outbox.name()).unwrap().1
    };
    assert_eq!((mode().await.claim, mode().await.epoch), (ClaimMode::Rows, 1));
    let mut told = Vec::new();
    for claim in [ClaimMode::Lanes, ClaimMode::Lanes, ClaimMode::Rows] {
        let answer = store.set_mode(outbox, claim, "ann").await.unwrap();
        assert_eq!(answer, mode().await);
        told.push((answer.claim, answer.epoch));
    }
    assert_eq!(told, [(ClaimMode::Lanes, 2), (ClaimMode::Lanes, 2), (ClaimMode::Rows, 3)]);
    let spec = OutboxSpec { claim: ClaimMode::Lanes, ..OutboxSpec::new(outbox.clone()) };
    store.migrate(&[spec]).await.unwrap();
    assert_eq!((mode().await.claim, mode().await.epoch), (ClaimMode::Rows, 3), "not by migrating");
    let audit = db.trail().await;
    assert!(audit.iter().all(|entry| entry.operator == "ann" && entry.action == "set_claim"));
    assert_eq!((audit[0].target.as_str(), audit[0].outbox.as_str()), ("rows", "orders"));

    let fresh = postrider::Outbox::new("fresh").unwrap();
    let spec = OutboxSpec { claim: ClaimMode::Lanes, ..OutboxSpec::new(fresh.clone()) };
    store.migrate(&[spec]).await.unwrap();
    let modes: BTreeMap<_, _> = store.modes().await.unwrap().into_iter().collect();
    assert_eq!((modes["fresh"].claim, modes["fresh"].epoch), (ClaimMode::Lanes, 1));
}

/// Every relay sees what the others work on, from their registration on.
pub async fn relays_tell_each_other_what_they_serve(db: TestDb) {
    let serving = |epoch, of, index| Serving {
        outbox: "orders".to_owned(),
        epoch,
        share: Share { of, index },
        down: Vec::new(),
        traffic: Traffic { in_flight: 7, ..Traffic::default() },
        trouble: None,
    };
    let identity = postrider_store::RelayIdentity {
        id: "relay-a".to_owned(),
        host: "h".to_owned(),
        version: "1".to_owned(),
        serving: vec![serving(1, 2, 1)],
    };
    let a = db.store.register(&identity).await.unwrap();
    let b = db.relay("relay-b").await;
    assert_eq!(db.pulse(&b, &a).await.serving, [serving(1, 2, 1)]);
    db.store.heartbeat(&a, &[serving(2, 1, 0), serving(3, 1, 0)]).await.unwrap();
    assert_eq!(db.pulse(&b, &a).await.serving, [serving(2, 1, 0), serving(3, 1, 0)]);
    assert!(db.pulse(&a, &b).await.serving.is_empty());
}

/// Fixed shares: together they cover all rows, and no row is in two.
pub async fn shares_are_disjoint_and_complete(db: TestDb) {
    let mut expected = db.append(&[1, 2, 3].map(|n| order(n).deliver_after(Duration::ZERO))).await;
    expected.extend(db.append_orders(40).await);
    let of = 3;
    let mut taken = Vec::new();
    for index in 0..of {
        let relay = db.relay(&format!("relay-{index}")).await;
        let limit = postrider_store::ClaimLimit { share: Share { of, index }, ..rows(7) };
        let mut cursor = Cursor::new();
        loop {
            let claim = db.store.claim(&db.outbox, &relay, limit, &mut cursor).await.unwrap();
            if claim.events.is_empty() {
                assert!(!claim.full);
                break;
            }
            for id in ids(&claim.events) {
                assert_eq!(id % i64::from(of), i64::from(index));
                taken.push(id);
            }
        }
    }
    taken.sort_unstable();
    assert_eq!(taken, expected);
}

/// A concurrent claim of one share never hides rows of another share from its relay.
pub async fn shares_claimed_at_once_leave_nothing_behind(db: TestDb) {
    let expected = {
        let mut expected = Vec::new();
        for _ in 0..4 {
            expected.extend(db.append_orders(500).await);
        }
        expected
    };
    let mut tasks = Vec::new();
    for index in 0..2 {
        let (db, relay) = (db.clone(), db.relay(&format!("relay-{index}")).await);
        tasks.push(tokio::spawn(async move {
            let limit = postrider_store::ClaimLimit { share: Share { of: 2, index }, ..rows(41) };
            let (mut cursor, mut taken) = (Cursor::new(), Vec::new());
            loop {
                match db.store.claim(&db.outbox, &relay, limit, &mut cursor).await {
                    // The first empty claim is the end, because no other relay claims this share.
                    Ok(claim) if claim.events.is_empty() => return taken,
                    Ok(claim) => taken.extend(ids(&claim.events)),
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        }));
    }
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, expected);
}
