//! Claims: which rows a relay takes, and which it leaves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{ClaimLimit, Cursor, OnSuccess};

use super::steps::{deferral, failure, ids, order, rows};
use crate::TestDb;

/// A claim takes rows within the limit, oldest first, and marks them as this relay's.
pub async fn a_claim_takes_the_oldest_rows_within_the_limit(db: TestDb) {
    let appended = db.append_orders(7).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();

    let claimed = db.claim_on(&relay, 3, &mut cursor).await;

    assert_eq!(ids(&claimed), appended[..3]);
    for event in &claimed {
        let row = db.event(event.id).await.unwrap();
        assert_eq!(row.status.as_str(), "PROCESSING");
        assert_eq!(row.locked_by.as_deref(), Some("relay-a"));
        assert!(row.locked_at.is_some());
    }
    assert_eq!(db.event(appended[3]).await.unwrap().status.as_str(), "PENDING");
    assert_eq!(ids(&db.claim_on(&relay, 100, &mut cursor).await), appended[3..]);
    assert!(db.claim_on(&relay, 100, &mut cursor).await.is_empty(), "what is held is not taken");
    db.assert_balanced().await;
}

/// `full` means "poll again now": true while more rows may be due, false once the end was reached.
pub async fn a_claim_says_whether_there_may_be_more(db: TestDb) {
    db.append_orders(5).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let mut answers = Vec::new();
    for _ in 0..4 {
        let claimed = db.store.claim(&db.outbox, &relay, rows(2), &mut cursor).await.unwrap();
        answers.push((claimed.events.len(), claimed.full));
    }
    assert_eq!(answers, [(2, true), (2, true), (1, false), (0, false)]);
}

/// Bytes are limited too, and a single event that is larger than the limit is claimed alone.
pub async fn a_claim_is_limited_in_bytes_and_a_large_event_travels_alone(db: TestDb) {
    let event = |bytes: usize| NewEvent::new("k", "1", "T", "x".repeat(bytes));
    let sizes = [400, 400, 5_000, 0, 5_000, 400, 0];
    let appended = db.append(&sizes.map(event)).await;
    let relay = db.relay("relay-a").await;
    let limit = ClaimLimit::new(100, 2_000);
    let mut cursor = Cursor::new();
    let mut batches = Vec::new();
    loop {
        let claimed = db.store.claim(&db.outbox, &relay, limit, &mut cursor).await.unwrap();
        assert_eq!(claimed.full, claimed.events.last().is_some_and(|e| e.id != appended[6]));
        if claimed.events.is_empty() {
            break;
        }
        batches.push(ids(&claimed.events));
    }
    let large = [appended[2], appended[4]];
    for batch in &batches {
        let alone = batch.len() == 1 || !batch.iter().any(|id| large.contains(id));
        assert!(alone, "a large event must travel alone: {batches:?}");
    }
    assert_eq!(batches.concat(), appended, "nothing is left out: {batches:?}");
    assert_eq!(batches[0], appended[..2], "small ones travel together");
}

/// Headers count too; a batch of small payloads with large headers is cut.
pub async fn headers_count_against_the_limit_of_bytes(db: TestDb) {
    let event = || NewEvent::new("k", "1", "T", "{}").header("x-large", "h".repeat(10_000));
    db.append(&[event(), event(), event(), event()]).await;
    let relay = db.relay("relay-a").await;
    let limit = ClaimLimit::new(100, 25_000);
    let claimed = db.store.claim(&db.outbox, &relay, limit, &mut Cursor::new()).await.unwrap();
    assert_eq!(claimed.events.len(), 2);
    assert!(claimed.full);
}

/// Four relays claim two thousand rows concurrently: each row goes to exactly one relay.
pub async fn relays_that_claim_at_once_never_share_a_row(db: TestDb) {
    for _ in 0..4 {
        db.append_orders(500).await;
    }
    let db = Arc::new(db);
    let mut tasks = Vec::new();
    for number in 0..4 {
        let db = Arc::clone(&db);
        let relay = db.relay(&format!("relay-{number}")).await;
        tasks.push(tokio::spawn(async move {
            let mut cursor = Cursor::new();
            let mut taken = Vec::new();
            // An empty claim may mean that other relays hold the locks right now; three in a row
            // mean that no rows are left.
            let mut empty = 0;
            while empty < 3 {
                let claim = db.store.claim(&db.outbox, &relay, rows(37), &mut cursor).await;
                let events = match claim {
                    Ok(claimed) => claimed.events,
                    Err(error) if error.is_transient() => Vec::new(),
                    Err(error) => panic!("{error}"),
                };
                empty = if events.is_empty() { empty + 1 } else { 0 };
                assert!(events.is_sorted_by_key(|event| event.id));
                taken.extend(ids(&events));
            }
            taken
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "a row was claimed twice");
    assert_eq!(all.len(), 2_000);
    db.assert_balanced().await;
}

/// Failed rows can be claimed again when they are due, and not before.
pub async fn a_failed_row_is_claimed_again_when_due(db: TestDb) {
    let id = db.append_orders(1).await[0];
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(&relay, 10, &mut cursor).await;
    let hour = Duration::from_secs(3600);
    let failures = [failure(&claimed[0], hour, "no")];
    assert_eq!(db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap().rows, 1);

    assert!(db.claim_on(&relay, 10, &mut cursor).await.is_empty(), "not due for an hour");
    db.age(db.outbox.table(), "next_retry_at", hour, &format!("id = {id}")).await;
    let again = db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(ids(&again), [id]);
    assert_eq!(again[0].retry_count, 1);
    assert!(again[0].last_failed_at.is_some());
    assert!(again[0].version > claimed[0].version, "each claim has its own version");
}

/// A batch full of waiting rows does not prove that there are no fresh ones, so the cursor stays.
pub async fn fresh_rows_behind_a_batch_of_waiting_ones_are_not_passed_over(db: TestDb) {
    let waiting = db.append(&[1, 2, 3, 4].map(|n| order(n).deliver_after(Duration::ZERO))).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    // There is no fresh row, so from now on waiting rows may fill a whole batch.
    let mut seen = ids(&db.claim_on(&relay, 1, &mut cursor).await);
    let fresh = db.append_orders(3).await;
    for _ in 0..8 {
        // The horizon is observed again, and is past all rows.
        cursor.observed_at = None;
        seen.extend(ids(&db.claim_on(&relay, 2, &mut cursor).await));
    }
    seen.sort_unstable();
    assert_eq!(seen, [waiting, fresh].concat(), "with the same cursor, and no sweep");
}

/// A batch of one row serves waiting and fresh rows alike.
pub async fn a_batch_of_one_row_reaches_waiting_and_fresh_rows(db: TestDb) {
    let mut expected = db.append(&[1, 2, 3].map(|n| order(n).deliver_after(Duration::ZERO))).await;
    expected.extend(db.append_orders(3).await);
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let mut seen = Vec::new();
    for _ in 0..10 {
        cursor.observed_at = None;
        seen.extend(ids(&db.claim_on(&relay, 1, &mut cursor).await));
    }
    seen.sort_unstable();
    assert_eq!(seen, expected);
}

/// A transaction that took a small id and commits late is found with the same cursor.
pub async fn a_late_commit_is_claimed_with_the_same_cursor(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    if !db.store.capabilities().concurrent_writers {
        // Declared: ids commit in order, because the next writer waits for the previous one.
        let mut open = db.begin().await;
        let early = open.append(&db.outbox, &order(1)).await.unwrap().id();
        let next = tokio::spawn(db.begin_later());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!next.is_finished(), "a second writer must wait");
        open.commit().await.unwrap();
        let mut next = next.await.unwrap();
        let late = next.append(&db.outbox, &order(2)).await.unwrap().id();
        next.commit().await.unwrap();
        assert_eq!(ids(&db.claim_on(&relay, 10, &mut cursor).await), [early, late]);
        return;
    }
    let mut open = db.begin().await;
    let early = open.append(&db.outbox, &order(1)).await.unwrap().id();
    for _ in 0..12 {
        let later = db.append_orders(3).await;
        assert!(later[0] > early);
        cursor.observed_at = None;
        let claimed = db.claim_on(&relay, 2, &mut cursor).await;
        assert_eq!(claimed.len(), 2);
        db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    }
    open.commit().await.unwrap();
    let rest = ids(&db.claim_on(&relay, 100, &mut cursor).await);
    assert_eq!(rest.len(), 13);
    assert_eq!(rest[0], early, "the late one, found without a sweep");
    db.assert_balanced().await;
}

/// Rolled-back ids leave gaps, which claims do not wait for.
pub async fn a_gap_in_the_ids_does_not_hold_up_claims(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    for _ in 0..3 {
        let mut tx = db.begin().await;
        let _ = tx.append(&db.outbox, &order(1)).await.unwrap();
        tx.rollback().await.unwrap();
        let id = db.append_orders(1).await[0];
        assert_eq!(ids(&db.claim_on(&relay, 10, &mut cursor).await), [id]);
    }
}

/// Rows returned by a release, recovery or a lost claim are found by the cursor that passed them.
pub async fn rows_that_come_back_are_found_by_the_same_cursor(db: TestDb) {
    let appended = db.append_orders(4).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(&relay, 10, &mut cursor).await;
    // Immediately, or after the time for which a store lets its ids age.
    crate::eventually("the cursor passes what is held", async || {
        assert!(db.claim_on(&relay, 10, &mut cursor).await.is_empty());
        let passed = cursor.low >= appended[0];
        (passed || !db.store.capabilities().concurrent_writers).then_some(())
    })
    .await;

    let back = [deferral(&claimed[0], Duration::ZERO), deferral(&claimed[2], Duration::ZERO)];
    assert_eq!(db.store.release(&db.outbox, &relay, &back).await.unwrap().rows, 2);
    let again = db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(ids(&again), [appended[0], appended[2]], "released");

    let lost = db.store.release_lost(&db.outbox, &relay, &appended[..3]).await.unwrap();
    assert_eq!(lost, 1);
    assert_eq!(ids(&db.claim_on(&relay, 10, &mut cursor).await), [appended[3]], "lost and found");
}

/// A relay that was declared dead takes nothing.
pub async fn a_fenced_relay_claims_nothing(db: TestDb) {
    let appended = db.append_orders(3).await;
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    db.fence(&live, &dead).await;

    match db.store.claim(&db.outbox, &dead, rows(10), &mut Cursor::new()).await {
        Ok(claimed) => assert!(claimed.events.is_empty()),
        Err(error) => assert!(matches!(error, postrider_store::StoreError::LeaseLost), "{error}"),
    }
    match db.store.claim_suspect(&db.outbox, &dead).await {
        Ok(found) => assert!(found.is_none()),
        Err(error) => assert!(matches!(error, postrider_store::StoreError::LeaseLost), "{error}"),
    }
    assert_eq!(ids(&db.claim(&live, 10).await), appended, "all of it is left to the living");
}

/// A relay that is not registered (any more) takes nothing either.
pub async fn a_relay_without_a_registration_claims_nothing(db: TestDb) {
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    db.store.retire(&relay).await.unwrap();
    if let Ok(claimed) = db.store.claim(&db.outbox, &relay, rows(9), &mut Cursor::new()).await {
        assert!(claimed.events.is_empty());
    }
    let beat = db.store.heartbeat(&relay, &[]).await;
    assert!(matches!(beat, Err(postrider_store::StoreError::LeaseLost)), "{beat:?}");
}

/// Hints arrive if the store declares them, after the commit.
pub async fn hints_arrive_where_the_store_declares_them(db: TestDb) {
    let spec = postrider_store::OutboxSpec {
        notify: true,
        ..postrider_store::OutboxSpec::new(db.outbox.clone())
    };
    db.store.migrate(&[spec]).await.unwrap();
    let hints = db.store.hints(std::slice::from_ref(&db.outbox)).await.unwrap();
    assert_eq!(hints.is_some(), db.store.capabilities().notifies);
    let Some(mut hints) = hints else { return };
    db.append_orders(1).await;
    let hint = tokio::time::timeout(crate::PATIENCE, hints.recv()).await.unwrap();
    assert_eq!(hint.as_deref(), Some(db.outbox.table()));
}
