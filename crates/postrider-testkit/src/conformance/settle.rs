//! Settles of claimed events.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider::limits;
use postrider_store::{Cursor, DeadReason, Deferral, Delivery, Event, OnSuccess, StoreError};

use super::steps::{death, deferral, failure, ids, order, originals};
use crate::TestDb;

/// Delivered events leave the outbox and are counted in the ledger.
pub async fn delivered_events_are_removed_and_recorded(db: TestDb) {
    db.append_orders(3).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;

    assert_eq!(db.deliver(&relay, &claimed[..2], OnSuccess::Delete).await, 2);

    assert_eq!(db.count("").await, 1);
    assert_eq!(db.count("_archive").await, 0);
    let ledger = db.ledger().await;
    let delivered = ledger.iter().fold((0, 0), |sum, window| {
        (sum.0 + window.delivered.count, sum.1 + window.delivered.id_sum)
    });
    assert_eq!(delivered, (2, i128::from(claimed[0].id + claimed[1].id)));
    db.assert_balanced().await;
}

/// Many at once: only the delivered rows are removed and counted. Between them are rows that were
/// not delivered, one that another call removed, one that changed, and one of a failed attempt.
pub async fn of_many_delivered_events_only_those_meant_are_removed(db: TestDb) {
    let ids_of = |events: &[Event]| ids(events).into_iter().collect::<BTreeSet<_>>();
    db.append_orders(400).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let first = db.claim_on(&relay, 10, &mut cursor).await;
    let failures = [failure(&first[7], Duration::ZERO, "once")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    let mut claimed = [first, db.claim_on(&relay, 400, &mut cursor).await].concat();
    claimed.retain(|event| event.version != failures[0].version || event.id != failures[0].id);
    claimed.sort_by_key(|event| event.id);
    assert_eq!(claimed.len(), 400);

    let mut meant: Vec<Event> = claimed.iter().filter(|event| event.id % 3 != 0).cloned().collect();
    let all = meant.len();
    let (as_known, mixed) = meant.split_at_mut(all / 2);
    assert_eq!(db.deliver(&relay, as_known, OnSuccess::Delete).await, as_known.len() as u64);
    assert_eq!(db.count("").await, (400 - as_known.len()) as i64);
    assert_eq!(db.deliver(&relay, &mixed[20..21], OnSuccess::Delete).await, 1);
    mixed[30].version += 1;
    let changed = mixed[30].id;
    assert_eq!(db.deliver(&relay, mixed, OnSuccess::Delete).await, mixed.len() as u64 - 2);
    assert_eq!(db.deliver(&relay, &meant, OnSuccess::Delete).await, 0, "the answer was lost");

    let gone = ids_of(&meant);
    let left: BTreeSet<i64> =
        ids_of(&claimed).into_iter().filter(|id| !gone.contains(id) || *id == changed).collect();
    assert_eq!(db.count("").await, left.len() as i64);
    for id in left {
        assert!(db.event(id).await.is_some(), "row {id} was not meant");
    }
    db.assert_balanced().await;

    let others: Vec<Event> = claimed.iter().filter(|event| event.id % 3 == 0).cloned().collect();
    db.fence(&db.relay("relay-b").await, &relay).await;
    let others: Vec<Delivery> = others.iter().map(Delivery::from).collect();
    let late = db.store.settle_delivered(&db.outbox, &relay, &others, OnSuccess::Delete).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    db.assert_balanced().await;
}

/// The position of a row is a hint: a row that moved is settled, and the row now at its position is
/// not.
pub async fn rows_that_moved_are_settled_and_what_took_their_place_is_not(db: TestDb) {
    let appended = db.append_orders(450).await;
    let relay = db.relay("relay-a").await;
    let read = db.store.read_ids(&db.outbox, &appended).await.unwrap();
    let events: Vec<Event> = read.into_iter().map(|row| row.event).collect();
    let (mut elsewhere, moved) = (events[..150].to_vec(), events[300..].to_vec());
    for (event, other) in elsewhere.iter_mut().zip(&events[150..300]) {
        event.place = other.place;
    }
    assert_eq!(db.deliver(&relay, &elsewhere, OnSuccess::Delete).await, 150);
    let table = db.outbox.table();
    db.execute(&format!("UPDATE {table} SET event_type = 'Moved'")).await;
    db.execute(&format!("UPDATE {table} SET event_type = 'OrderPlaced'")).await;
    assert_eq!(db.deliver(&relay, &moved, OnSuccess::Delete).await, 150);
    assert_eq!(db.deliver(&relay, &moved, OnSuccess::Delete).await, 0, "the answer was lost");
    let left = db.store.read_ids(&db.outbox, &appended).await.unwrap();
    let left: Vec<i64> = left.iter().map(|row| row.event.id).collect();
    assert_eq!(left, appended[150..300]);
    db.assert_balanced().await;
}

/// If the outbox keeps them, delivered events are in the archive with all of their fields.
pub async fn archived_events_keep_their_fields(db: TestDb) {
    db.append(&[order(1).request_id("r").header("x", "ü")]).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let first = db.claim_on(&relay, 10, &mut cursor).await;
    let failures = [failure(&first[0], Duration::ZERO, "once")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    let claimed = db.claim_on(&relay, 10, &mut cursor).await;

    assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Archive).await, 1);

    assert_eq!(db.count("").await, 0);
    let record = db.event(claimed[0].id).await.unwrap();
    assert_eq!(record.status.as_str(), "COMPLETED");
    assert_eq!(record.event_id, claimed[0].event_id);
    assert_eq!(record.request_id.as_deref(), Some("r"));
    assert_eq!(record.payload.as_ref(), Some(&claimed[0].payload));
    assert_eq!(record.headers, claimed[0].headers);
    assert_eq!(record.content_hash, claimed[0].content_hash);
    assert_eq!(record.retry_count, 1);
    assert_eq!(record.created_at, claimed[0].created_at);
    assert!(record.delivered_at.unwrap() >= record.created_at);
    db.assert_balanced().await;
}

/// A destination's answer is archived with its event, and with no other.
pub async fn an_answer_is_kept_with_its_event(db: TestDb) {
    db.append_orders(3).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let longest = format!("{{\"name\": \"ü\\n'\", \"more\": \"{}\"}}", "x".repeat(65_000));
    let mut delivered: Vec<Delivery> = claimed.iter().map(Delivery::from).collect();
    delivered[0].response = Some(longest.clone());
    delivered[2].response = Some(String::new());
    let mut late = delivered.clone();
    late[0].response = Some("of another relay".to_owned());

    let settle =
        |relay, rows| db.store.settle_delivered(&db.outbox, relay, rows, OnSuccess::Archive);
    assert_eq!(settle(&relay, &delivered).await.unwrap().rows, 3);
    assert_eq!(settle(&relay, &late).await.unwrap().rows, 0, "the answer to the settle was lost");

    let mut kept = Vec::new();
    for event in &claimed {
        kept.push(db.event(event.id).await.unwrap().response);
    }
    assert_eq!(kept, [Some(longest), None, Some(String::new())]);
    db.assert_balanced().await;
}

/// A relay that lost its lease leaves no answer behind.
pub async fn an_answer_of_a_fenced_relay_is_not_kept(db: TestDb) {
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let mut delivered = [Delivery::from(&claimed[0])];
    delivered[0].response = Some("late".to_owned());
    db.fence(&db.relay("relay-b").await, &relay).await;

    let late = db.store.settle_delivered(&db.outbox, &relay, &delivered, OnSuccess::Archive).await;

    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    assert_eq!(db.event(claimed[0].id).await.unwrap().response, None);
    assert_eq!(db.count("_archive").await, 0);
}

/// A call whose answer was lost is repeated: it changes nothing twice.
pub async fn a_repeated_settle_changes_nothing(db: TestDb) {
    db.append_orders(4).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let (store, outbox) = (&db.store, &db.outbox);
    let delivered = [Delivery::from(&claimed[0])];
    let failed = [failure(&claimed[1], Duration::ZERO, "no")];
    let dead = [death(&claimed[2], DeadReason::Rejected, "no")];
    let released = [deferral(&claimed[3], Duration::ZERO)];
    let mut rows = Vec::new();
    for _ in 0..3 {
        rows.push([
            store.settle_delivered(outbox, &relay, &delivered, OnSuccess::Archive).await,
            store.settle_failed(outbox, &relay, &failed).await,
            store.settle_dead(outbox, &relay, &dead).await,
            store.release(outbox, &relay, &released).await,
        ]);
    }
    let rows: Vec<_> = rows.into_iter().map(|r| r.map(|settled| settled.unwrap().rows)).collect();
    assert_eq!(rows, [[1; 4], [0; 4], [0; 4]]);
    assert_eq!(db.count("_archive").await, 1);
    assert_eq!(db.count("_dlq").await, 1);
    assert_eq!(db.count("_attempts").await, 1);
    assert_eq!(db.event(claimed[1].id).await.unwrap().retry_count, 1);
    db.assert_balanced().await;
}

/// A settle with an outdated version changes nothing; others in the same call do.
pub async fn a_settle_with_another_version_changes_nothing(db: TestDb) {
    db.append_orders(2).await;
    let relay = db.relay("relay-a").await;
    let mut claimed = db.claim(&relay, 10).await;
    claimed[0].version += 1;
    assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Delete).await, 1, "only the right one");
    let (store, outbox, wrong) = (&db.store, &db.outbox, &claimed[0]);
    let failed = [failure(wrong, Duration::ZERO, "no")];
    assert_eq!(store.settle_failed(outbox, &relay, &failed).await.unwrap().rows, 0);
    let dead = [death(wrong, DeadReason::Crash, "no")];
    assert_eq!(store.settle_dead(outbox, &relay, &dead).await.unwrap().rows, 0);
    assert_eq!(store.mark_dead(outbox, &relay, &dead).await.unwrap().rows, 0);
    let released = [deferral(wrong, Duration::ZERO)];
    assert_eq!(store.release(outbox, &relay, &released).await.unwrap().rows, 0);
    assert_eq!(db.event(wrong.id).await.unwrap().status.as_str(), "PROCESSING");
    assert_eq!((db.count("_dlq").await, db.count("_attempts").await), (0, 0));
    db.assert_balanced().await;
}

/// Another relay's row is not changed, even with its version.
pub async fn a_relay_cannot_settle_what_another_one_holds(db: TestDb) {
    db.append_orders(1).await;
    let (owner, other) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let claimed = db.claim(&owner, 10).await;
    assert_eq!(db.deliver(&other, &claimed, OnSuccess::Delete).await, 0);
    let released = [deferral(&claimed[0], Duration::ZERO)];
    assert_eq!(db.store.release(&db.outbox, &other, &released).await.unwrap().rows, 0);
    assert_eq!(db.store.release_lost(&db.outbox, &other, &[]).await.unwrap(), 0);
    assert_eq!(db.deliver(&owner, &claimed, OnSuccess::Delete).await, 1);
}

/// An empty settle is not an error.
pub async fn an_empty_settle_changes_nothing(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let (store, outbox) = (&db.store, &db.outbox);
    for on_success in [OnSuccess::Delete, OnSuccess::Archive] {
        let settled = store.settle_delivered(outbox, &relay, &[], on_success).await;
        assert_eq!(settled.unwrap().rows, 0);
    }
    assert_eq!(store.settle_failed(outbox, &relay, &[]).await.unwrap().rows, 0);
    assert_eq!(store.settle_dead(outbox, &relay, &[]).await.unwrap().rows, 0);
    assert_eq!(store.mark_dead(outbox, &relay, &[]).await.unwrap().rows, 0);
    assert_eq!(store.release(outbox, &relay, &[]).await.unwrap().rows, 0);
}

/// One attempt is spent and recorded, and the delay is measured on the database's clock.
pub async fn a_failure_spends_an_attempt_and_waits(db: TestDb) {
    let id = db.append_orders(1).await[0];
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let failures = [failure(&claimed[0], Duration::from_secs(90), "503 Service Unavailable")];

    assert_eq!(db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap().rows, 1);

    let row = db.event(id).await.unwrap();
    assert_eq!((row.status.as_str(), row.retry_count), ("FAILED", 1));
    assert_eq!(row.last_error.as_deref(), Some("503 Service Unavailable"));
    assert_eq!((row.locked_by, row.locked_at), (None, None));
    let wait = row.next_retry_at.unwrap() - claimed[0].claimed_at;
    assert!((90..120).contains(&wait.num_seconds()), "{wait}");
    let attempts = db.store.attempts(&db.outbox, &row.event_id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].attempt, attempts[0].took_ms), (1, 12));
    assert_eq!(attempts[0].error, "503 Service Unavailable");
    assert_eq!(attempts[0].relay_id, "relay-a");
    db.assert_balanced().await;
}

/// The last twenty attempts are kept.
pub async fn the_last_twenty_attempts_are_kept(db: TestDb) {
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let mut identity = String::new();
    for number in 1..=23 {
        let claimed = db.claim_on(&relay, 10, &mut cursor).await;
        identity.clone_from(&claimed[0].event_id);
        let failures = [failure(&claimed[0], Duration::ZERO, &format!("error {number}"))];
        db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    }
    let attempts = db.store.attempts(&db.outbox, &identity).await.unwrap();
    let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, (4..=23).collect::<Vec<_>>());
    assert_eq!(attempts[19].error, "error 23");
}

/// An error message never makes a settle fail, whatever its content, length or delay.
pub async fn no_error_text_or_wait_fails_a_settle(db: TestDb) {
    let texts = [
        "nul \0 inside".to_owned(),
        "x".repeat(1_000_000),
        "🦀".repeat(100_000),
        String::new(),
        "'; DROP TABLE orders_outbox; -- \u{FFFD} \\".to_owned(),
    ];
    db.append_orders(4 * u64::try_from(texts.len()).unwrap()).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 100).await;
    let (store, outbox) = (&db.store, &db.outbox);
    for (text, events) in texts.iter().zip(claimed.chunks(4)) {
        let failures = [failure(&events[0], Duration::MAX, text)];
        assert_eq!(store.settle_failed(outbox, &relay, &failures).await.unwrap().rows, 1);
        let mut deaths = [death(&events[1], DeadReason::Exhausted, text)];
        deaths[0].detail = Some(text.clone());
        assert_eq!(store.settle_dead(outbox, &relay, &deaths).await.unwrap().rows, 1);
        let deaths = [death(&events[2], DeadReason::Exhausted, text)];
        assert_eq!(store.mark_dead(outbox, &relay, &deaths).await.unwrap().rows, 1);
        let error = Some(text.clone());
        let deferrals = [Deferral { error, ..deferral(&events[3], Duration::MAX) }];
        assert_eq!(store.release(outbox, &relay, &deferrals).await.unwrap().rows, 1);
        let kept = db.event(events[0].id).await.unwrap().last_error.unwrap();
        let expected: String =
            text.chars().filter(|c| *c != '\0').take(limits::LAST_ERROR_CHARS_MAX).collect();
        assert_eq!(kept, expected, "cleaned and cut");
    }
    assert_eq!(store.move_marked(outbox, 100).await.unwrap().len(), texts.len());
    db.assert_balanced().await;
}

/// A released event has lost nothing; the destination's error is recorded.
pub async fn a_release_spends_no_attempt(db: TestDb) {
    let appended = db.append_orders(2).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(&relay, 10, &mut cursor).await;
    let hour = Duration::from_secs(3600);
    let down = Some("connection refused".to_owned());
    let back = [
        deferral(&claimed[0], Duration::ZERO),
        Deferral { error: down, ..deferral(&claimed[1], hour) },
    ];
    assert_eq!(db.store.release(&db.outbox, &relay, &back).await.unwrap().rows, 2);

    let rows = [db.event(appended[0]).await.unwrap(), db.event(appended[1]).await.unwrap()];
    for row in &rows {
        assert_eq!((row.status.as_str(), row.retry_count), ("PENDING", 0));
        assert_eq!((row.locked_by.as_ref(), row.locked_at), (None, None));
    }
    assert_eq!(rows[0].last_error, None);
    assert_eq!(rows[1].last_error.as_deref(), Some("connection refused"));
    let again = db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(ids(&again), [appended[0]], "the other one waits an hour");
    assert_eq!(again[0].last_failed_at, None, "it was not tried");
    db.assert_balanced().await;
}

/// A death without an attempt (expired, no route) does not count one.
pub async fn a_death_without_an_attempt_counts_none(db: TestDb) {
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    let event = db.claim(&relay, 10).await.remove(0);
    let mut deaths = [death(&event, DeadReason::NoRoute, "no route takes it")];
    deaths[0].attempted = false;
    deaths[0].detail = None;
    db.store.settle_dead(&db.outbox, &relay, &deaths).await.unwrap();
    let page = postrider_store::Page::first(10);
    let letters = db.store.dead_letters(&db.outbox, &Default::default(), page).await.unwrap().rows;
    assert_eq!((letters[0].retry_count, letters[0].error_detail.as_deref()), (0, None));
}

/// A row never leaves without its dead letter; marked, it waits until the table exists again.
pub async fn without_a_dead_letter_table_the_row_stays_until_upkeep_moves_it(db: TestDb) {
    let id = db.append(&[order(1).request_id("r")]).await[0];
    let relay = db.relay("relay-a").await;
    let event = db.claim(&relay, 10).await.remove(0);
    db.execute(&format!("DROP TABLE {}_dlq", db.outbox.table())).await;
    let deaths = [death(&event, DeadReason::Rejected, "no")];

    let refused = db.store.settle_dead(&db.outbox, &relay, &deaths).await;
    assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
    let row = db.event(id).await.unwrap();
    assert_eq!((row.status.as_str(), row.locked_by.as_deref()), ("PROCESSING", Some("relay-a")));

    assert_eq!(db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap().rows, 1);
    assert_eq!(db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap().rows, 0, "once");
    let row = db.event(id).await.unwrap();
    assert_eq!((row.status.as_str(), row.retry_count), ("DEAD_LETTER", 1));
    assert_eq!(row.last_error.as_deref(), Some("no"));
    assert!(db.claim(&relay, 10).await.is_empty(), "a marked row is not delivered again");
    assert!(db.store.move_marked(&db.outbox, 10).await.is_err(), "no table yet");
    db.assert_balanced().await;

    // Migrating again restores the dropped table.
    let spec = postrider_store::OutboxSpec::new(db.outbox.clone());
    db.store.migrate(&[spec]).await.unwrap();
    assert_eq!(originals(&db.store.move_marked(&db.outbox, 10).await.unwrap()), [id]);
    assert!(db.store.move_marked(&db.outbox, 10).await.unwrap().is_empty());
    assert_eq!(db.count("").await, 0);
    let page = postrider_store::Page::first(10);
    let letters = db.store.dead_letters(&db.outbox, &Default::default(), page).await.unwrap().rows;
    assert_eq!((letters[0].original_id, letters[0].reason), (id, DeadReason::Rejected));
    assert_eq!((letters[0].retry_count, letters[0].error_message.as_str()), (1, "no"));
    assert_eq!(letters[0].content_hash, event.content_hash);
    db.assert_balanced().await;
}

/// Maintenance moves marked rows oldest first, as many as requested.
pub async fn marked_rows_are_moved_in_chunks(db: TestDb) {
    let appended = db.append_orders(3).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let deaths: Vec<_> =
        claimed.iter().map(|event| death(event, DeadReason::Rejected, "no")).collect();
    assert_eq!(db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap().rows, 3);
    let moved = db.store.move_marked(&db.outbox, 2).await.unwrap();
    assert_eq!(originals(&moved), appended[..2], "in chunks");
    db.assert_balanced().await;
    let moved = db.store.move_marked(&db.outbox, 2).await.unwrap();
    assert_eq!(originals(&moved), appended[2..]);
    assert_eq!(db.count("_dlq").await, 3);
    db.assert_balanced().await;
}
