//! Claim mode `lanes`: which rows an owner reads, in which order, and that late commits keep the
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{
    ClaimLimit, Cursor, DeadReason, Key, LaneRead, LaneRow, LaneSet, Lease, OnSuccess, StoreKind,
};

use super::steps::{death, failure, order, rows};
use crate::TestDb;

/// Number of writers of the random test, and of events per writer.
const WRITERS: u64 = 4;
const EVENTS_EACH: u64 = 600;

async fn read(db: &TestDb, known: &[i64], limit: ClaimLimit, cursor: &mut Cursor) -> LaneRead {
    db.store.read_lanes(&db.outbox, LaneSet::ALL, known, &[], limit, cursor).await.unwrap()
}

fn ids(rows: &[LaneRow]) -> Vec<i64> {
    rows.iter().map(|row| row.event.id).collect()
}

fn of(aggregate_id: &str) -> NewEvent {
    NewEvent::new("order", aggregate_id, "T", "{}")
}

/// Settles rows as delivered, which removes them.
async fn deliver(db: &TestDb, relay: &Lease, rows: &[LaneRow]) {
    let events: Vec<_> = rows.iter().map(|row| row.event.clone()).collect();
    let settled = db.deliver(relay, &events, OnSuccess::Delete).await;
    assert_eq!(settled, rows.len() as u64, "what was read is the reader's to settle");
}

/// Ids ascend, the next read continues after the last row, and a read marks nothing.
pub async fn a_read_answers_rows_in_order_and_marks_nothing(db: TestDb) {
    let appended = db.append_orders(7).await;
    let (mut cursor, mut seen) = (Cursor::new(), Vec::new());
    let mut answers = Vec::new();
    for _ in 0..4 {
        let found = read(&db, &seen, rows(3), &mut cursor).await;
        answers.push((found.rows.len(), found.full));
        seen.extend(ids(&found.rows));
    }
    assert_eq!(seen, appended);
    assert_eq!(answers, [(3, true), (3, true), (1, false), (0, false)]);
    for id in appended {
        let row = db.event(id).await.unwrap();
        assert_eq!((row.status.as_str(), row.locked_by, row.locked_at), ("PENDING", None, None));
    }
}

/// An event has the same fields as from a claim, including the version that a settle needs.
pub async fn a_read_answers_the_same_event_as_a_claim(db: TestDb) {
    let event = order(1).request_id("r").header("x", "ü").max_retries(3);
    db.append(&[event.expires_after(Duration::from_secs(3600))]).await;
    let found = read(&db, &[], rows(10), &mut Cursor::new()).await.rows.remove(0);
    assert!((chrono::Utc::now() - found.event.claimed_at).num_seconds().abs() < 60);
    let relay = db.relay("relay-a").await;
    let mut claimed = db.claim(&relay, 10).await.remove(0);
    claimed.claimed_at = found.event.claimed_at;
    claimed.version = found.event.version;
    let place = std::mem::replace(&mut claimed.place, found.event.place);
    assert_eq!(format!("{:?}", found.event), format!("{claimed:?}"));
    assert!(!found.busy);
    let again = read(&db, &[], rows(10), &mut Cursor::new()).await.rows.remove(0);
    assert!(again.busy, "a relay in mode `rows` has it");
    assert_eq!(again.event.place, place, "where the claim left it");
    assert_eq!(place.is_some(), db.store.kind() == StoreKind::Postgres);
}

/// A read returns only rows of the requested lanes; all events of a key are in one lane.
pub async fn a_read_keeps_to_its_lanes(db: TestDb) {
    let events: Vec<_> = (0..400).map(|n| of(&format!("key-{}", n % 100))).collect();
    let appended = db.append(&events).await;
    let all = read(&db, &[], rows(1_000), &mut Cursor::new()).await.rows;
    assert_eq!(ids(&all), appended);
    let mut lanes: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
    for row in &all {
        lanes.entry(row.event.aggregate_id.clone()).or_default().insert(row.lane);
    }
    assert!(lanes.values().all(|lanes| lanes.len() == 1), "{lanes:?}");
    let used: BTreeSet<u8> = all.iter().map(|row| row.lane).collect();
    if !db.store.capabilities().shares_lanes {
        assert_eq!(used, [0].into(), "declared: there are no lanes");
        return;
    }
    assert!(used.len() > 30, "keys spread over the lanes: {used:?}");
    let half: LaneSet = (0..64).filter(|lane| lane % 2 == 1).collect();
    for lanes in [half, LaneSet::ALL.without(half), LaneSet::NONE, [63].into_iter().collect()] {
        let mut cursor = Cursor::new();
        let found =
            db.store.read_lanes(&db.outbox, lanes, &[], &[], rows(1_000), &mut cursor).await;
        let expected = all.iter().filter(|row| lanes.contains(row.lane)).map(|row| row.event.id);
        assert_eq!(ids(&found.unwrap().rows), expected.collect::<Vec<_>>());
    }
}

/// Rows that are not due are read too, with the remaining time: their key must not be overtaken.
pub async fn rows_that_are_not_due_are_read_with_the_time_that_is_left(db: TestDb) {
    let appended = db.append(&[order(1).deliver_after(Duration::from_secs(600)), order(2)]).await;
    let relay = db.relay("relay-a").await;
    let found = read(&db, &[], rows(10), &mut Cursor::new()).await.rows;
    assert_eq!(ids(&found), appended);
    assert!((500..=600).contains(&found[0].due_in.as_secs()), "{:?}", found[0].due_in);
    assert_eq!(found[1].due_in, Duration::ZERO);
    let failures = [failure(&found[1].event, Duration::from_secs(90), "no")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    let found = read(&db, &[], rows(10), &mut Cursor::new()).await.rows;
    assert!((60..=90).contains(&found[1].due_in.as_secs()), "{:?}", found[1].due_in);
    assert_eq!(found[1].event.retry_count, 1);
    db.age(db.outbox.table(), "next_retry_at", Duration::from_secs(3600), "1 = 1").await;
    let found = read(&db, &[], rows(10), &mut Cursor::new()).await.rows;
    assert!(found.iter().all(|row| row.due_in == Duration::ZERO), "overdue is due");
}

/// Known ids and keys that wait are left out; a row marked dead is not read at all.
pub async fn known_rows_hidden_keys_and_dead_rows_are_passed_over(db: TestDb) {
    let appended =
        db.append(&[of("a"), of("b"), of("a"), of("c"), of("b"), of("d"), of("A"), of("a ")]).await;
    let relay = db.relay("relay-a").await;
    let all = read(&db, &[], rows(10), &mut Cursor::new()).await.rows;
    let marked = [death(&all[5].event, DeadReason::Rejected, "no")];
    db.store.mark_dead(&db.outbox, &relay, &marked).await.unwrap();
    let hidden = |id: &str| Key { aggregate_type: "order".into(), aggregate_id: id.into() };
    let (store, outbox) = (&db.store, &db.outbox);
    for (known, keys, expected) in [
        (vec![], vec![hidden("a")], vec![1, 3, 4, 6, 7]),
        (vec![appended[1]], vec![hidden("a")], vec![3, 4, 6, 7]),
        (vec![appended[1], appended[6], 999_999], vec![], vec![0, 2, 3, 4, 7]),
        (appended.clone(), vec![], vec![]),
        (vec![], vec![hidden("nobody"), hidden("b"), hidden("c")], vec![0, 2, 6, 7]),
        (
            vec![],
            vec![Key { aggregate_type: "x".into(), ..hidden("a") }],
            vec![0, 1, 2, 3, 4, 6, 7],
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|n| appended[n]).collect();
        // Alone, and among many that do not exist.
        for many in [0, 100] {
            let others = 1_000_000..1_000_000 + many;
            let keys = [keys.clone(), others.clone().map(|n| hidden(&n.to_string())).collect()];
            let (keys, known) = (keys.concat(), [known.clone(), others.collect()].concat());
            let (lanes, mut cursor) = (LaneSet::ALL, Cursor::new());
            let found = store.read_lanes(outbox, lanes, &known, &keys, rows(10), &mut cursor).await;
            assert_eq!(ids(&found.unwrap().rows), expected, "{many} more, {known:?} {keys:?}");
        }
    }
}

/// A read ends at the latest with the row that reaches the byte limit, and returns that there may
/// be more. After large rows it may be smaller.
pub async fn a_read_is_limited_in_bytes_and_an_over_large_row_ends_it(db: TestDb) {
    let event = |bytes: usize| NewEvent::new("k", "1", "T", "x".repeat(bytes));
    let appended = db.append(&[400, 400, 90_000, 0, 90_000, 0].map(event)).await;
    let (mut cursor, mut batches) = (Cursor::new(), Vec::<Vec<i64>>::new());
    loop {
        let limit = ClaimLimit::new(100, 2_000);
        let found = read(&db, &batches.concat(), limit, &mut cursor).await;
        let Some((last, before)) = found.rows.split_last() else { break };
        assert!(found.full || last.event.id == appended[5], "more is behind {}", last.event.id);
        let weight: usize = before.iter().map(|row| row.event.weight_bytes()).sum();
        assert!(weight < 2_000, "{weight} bytes before the last of {} rows", found.rows.len());
        batches.push(ids(&found.rows));
    }
    assert_eq!(batches.concat(), appended);
    assert_eq!(batches[0].len(), 3, "no limit was reached before the third");
}

/// A key's order survives a late commit: K:1 is open, other:2 is read, K:1 commits, K:3 commits.
/// The next read returns K:1 before K:3.
pub async fn a_late_commit_is_read_before_what_came_after_it(db: TestDb) {
    if !db.store.capabilities().concurrent_writers {
        return; // Declared: ids commit in order; `claim` proves it.
    }
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    for round in 0..3 {
        let mut open = db.begin().await;
        let first = open.append(&db.outbox, &of("K")).await.unwrap().id();
        let other = db.append(&[of("other")]).await;
        for _ in 0..2 {
            cursor.observed_at = None;
            let found = read(&db, &[], rows(10), &mut cursor).await.rows;
            assert_eq!(ids(&found), other, "round {round}");
            assert!(cursor.low < first, "it stays behind what may still commit");
        }
        let found = read(&db, &[], rows(10), &mut cursor).await.rows;
        deliver(&db, &relay, &found).await;
        open.commit().await.unwrap();
        let third = db.append(&[of("K")]).await;
        let found = read(&db, &[], rows(10), &mut cursor).await.rows;
        assert_eq!(ids(&found), [first, third[0]], "round {round}");
        deliver(&db, &relay, &found).await;
    }
}

/// Thousands of events from writers that keep their transactions open and commit out of order, or
/// not at all. Nothing is lost, and each key is read in the order of its ids.
pub async fn reads_among_random_late_commits_lose_nothing_and_keep_each_keys_order(db: TestDb) {
    if !db.store.capabilities().concurrent_writers {
        return; // Declared: ids commit in order; `claim` proves it.
    }
    let relay = db.relay("relay-a").await;
    let writing = Arc::new(AtomicUsize::new(WRITERS as usize));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (db, writing) = (db.clone(), Arc::clone(&writing));
        writers.push(tokio::spawn(async move {
            let committed = write_at_random(&db, writer).await;
            writing.fetch_sub(1, Ordering::SeqCst);
            committed
        }));
    }
    let (mut cursor, mut order) = (Cursor::new(), Vec::new());
    // Rows stay known for a while after the read and are then delivered, like those of an owner.
    let mut flight: Vec<LaneRow> = Vec::new();
    loop {
        let over = writing.load(Ordering::SeqCst) == 0;
        let found = read(&db, &ids(&flight), rows(50), &mut cursor).await;
        let end = over && found.rows.is_empty();
        order.extend(found.rows.iter().map(|r| (r.event.aggregate_id.clone(), r.event.id)));
        flight.extend(found.rows);
        if flight.len() > 100 || !found.full {
            deliver(&db, &relay, &std::mem::take(&mut flight)).await;
        }
        if end {
            break;
        }
    }
    let mut expected = Vec::new();
    for writer in writers {
        expected.extend(writer.await.unwrap());
    }
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, id) in &order {
        let before = last.insert(key, *id);
        assert!(before.is_none_or(|before| before < *id), "{key}: {id} after {before:?}");
    }
    let mut found: Vec<_> = order.iter().map(|(_, id)| *id).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "each one exactly once");
    db.assert_balanced().await;
}

/// Appends to keys of the writer's own, so that the ids of a key ascend with its commits; returns
/// the committed ids.
async fn write_at_random(db: &TestDb, writer: u64) -> Vec<i64> {
    let (mut committed, mut seed) = (Vec::new(), writer + 1);
    let mut random = |below: u64| {
        // An LCG: the test needs variety, but the same on each run.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut written = 0;
    while written < EVENTS_EACH {
        let count = 1 + random(4);
        let mut tx = db.begin().await;
        let mut appended = Vec::new();
        for _ in 0..count {
            let event = of(&format!("{writer}-{}", random(5)));
            appended.push(tx.append(&db.outbox, &event).await.unwrap().id());
            if random(4) == 0 {
                // Not a wait for a condition: the transaction stays open while others commit.
                tokio::time::sleep(Duration::from_millis(random(15))).await;
            }
        }
        if random(8) == 0 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            committed.extend(appended);
        }
        written += count;
    }
    committed
}

/// Rows by id; rows that are gone are left out.
pub async fn rows_are_read_by_id(db: TestDb) {
    let appended = db.append_orders(4).await;
    let relay = db.relay("relay-a").await;
    let (store, outbox) = (&db.store, &db.outbox);
    let all = store.read_ids(outbox, &appended).await.unwrap();
    assert_eq!(ids(&all), appended);
    deliver(&db, &relay, &all[1..2]).await;
    let marked = [death(&all[2].event, DeadReason::Rejected, "no")];
    store.mark_dead(outbox, &relay, &marked).await.unwrap();
    let wanted = [&appended[..], &[999_999]].concat();
    let rest = store.read_ids(outbox, &wanted).await.unwrap();
    assert_eq!(ids(&rest), [appended[0], appended[3]]);
    assert!(store.read_ids(outbox, &[]).await.unwrap().is_empty());
}

/// Rows of some keys within a range of ids, limited like any read.
pub async fn rows_are_read_by_key_within_a_range(db: TestDb) {
    let appended =
        db.append(&[of("a"), of("b"), of("a"), of("c"), of("b"), of("a"), of("A")]).await;
    let key = |id: &str| Key { aggregate_type: "order".into(), aggregate_id: id.into() };
    let keys = [key("a"), key("b")];
    let (store, outbox) = (&db.store, &db.outbox);
    let found = store.read_keys(outbox, &keys, appended[1], appended[4], rows(10)).await.unwrap();
    assert_eq!(ids(&found.rows), [appended[1], appended[2], appended[4]], "both ends included");
    assert!(!found.full);
    let found = store.read_keys(outbox, &keys, 0, i64::MAX, rows(2)).await.unwrap();
    assert_eq!((ids(&found.rows), found.full), (appended[..2].to_vec(), true));
    let tiny = ClaimLimit::new(10, 1);
    let found = store.read_keys(outbox, &keys[..1], appended[1], i64::MAX, tiny).await.unwrap();
    assert_eq!((ids(&found.rows), found.full), (vec![appended[2]], true));
    let none = store.read_keys(outbox, &[], 0, i64::MAX, rows(10)).await.unwrap();
    assert_eq!((none.rows.len(), none.full), (0, false));
}

/// Ids ascend whatever the physical order of rows, their changes, or the order of the request: the
/// next read continues after the last row of a full one.
pub async fn every_read_answers_ids_ascending(db: TestDb) {
    let events: Vec<_> = (0..400).map(|n| of(&format!("key-{}", n % 10))).collect();
    let appended = db.append(&events).await;
    // Rows that are written again move to another position.
    let table = db.outbox.table();
    for part in [7, 3, 5] {
        db.execute(&format!("UPDATE {table} SET last_error = 'no' WHERE id % {part} = 0")).await;
    }
    let (store, outbox, limit) = (&db.store, &db.outbox, rows(300));
    let keys: Vec<_> = (0..10)
        .map(|n| Key { aggregate_type: "order".into(), aggregate_id: format!("key-{n}") })
        .collect();
    let first = &appended[..300];
    let found = read(&db, &[], limit, &mut Cursor::new()).await;
    assert_eq!((ids(&found.rows), found.full), (first.to_vec(), true), "read_lanes");
    let found = store.read_keys(outbox, &keys, 0, i64::MAX, limit).await.unwrap();
    assert_eq!((ids(&found.rows), found.full), (first.to_vec(), true), "read_keys");
    let backwards: Vec<i64> = appended.iter().rev().copied().collect();
    let found = store.read_ids(outbox, &backwards).await.unwrap();
    assert_eq!(ids(&found), appended, "read_ids");
}
