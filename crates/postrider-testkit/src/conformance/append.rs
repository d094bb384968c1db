//! Appends in the application's transaction.

use std::time::Duration;

use postrider::{AppendError, NewEvent, content_hash, limits};
use postrider_store::{Cursor, OnSuccess, StoreKind};

use super::steps::order;
use crate::TestDb;

/// A committed event can be claimed with all of its fields unchanged.
pub async fn a_committed_event_is_claimable_with_all_of_its_fields(db: TestDb) {
    let identity = uuid::Uuid::new_v4();
    let event = order(1)
        .event_id(identity)
        .request_id("request-1")
        .header("x-tenant", "grün")
        .trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=b"))
        .max_retries(7)
        .expires_after(Duration::from_secs(3600));
    let id = db.append(std::slice::from_ref(&event)).await[0];
    let relay = db.relay("relay-a").await;

    let claimed = db.claim(&relay, 10).await;

    assert_eq!(claimed.len(), 1);
    let found = &claimed[0];
    assert_eq!((found.id, found.event_id.as_str()), (id, identity.to_string().as_str()));
    assert_eq!(found.request_id.as_deref(), Some("request-1"));
    assert_eq!((found.aggregate_type.as_str(), found.aggregate_id.as_str()), ("order", "order-1"));
    assert_eq!(found.event_type, "OrderPlaced");
    assert_eq!(found.payload, r#"{"order":1}"#);
    let headers = found.headers().unwrap();
    assert_eq!(headers["x-tenant"], "grün");
    assert_eq!(headers["tracestate"], "a=b");
    assert!(headers["traceparent"].starts_with("00-0af7651916cd43dd"));
    assert_eq!(found.max_retries, Some(7));
    assert_eq!((found.retry_count, found.redrive_count, found.crash_count), (0, 0, 0));
    assert_eq!(found.last_failed_at, None);
    let expected = content_hash(Some("request-1"), "OrderPlaced", r#"{"order":1}"#);
    assert_eq!(found.content_hash.as_deref(), Some(expected.as_str()));
    assert_eq!(found.hash_matches(), Some(true));
    let lifetime = found.expires_at.unwrap() - found.created_at;
    assert_eq!(lifetime.num_seconds(), 3600, "counted from the same reading of one clock");
    let clocks_apart = (chrono::Utc::now() - found.created_at).num_seconds().abs();
    assert!(clocks_apart < 600, "created_at is UTC, whatever time zone the session has");
    db.assert_balanced().await;
}

/// Both commit or neither does: no event, no remembered request id, no line in the ledger.
pub async fn a_rolled_back_transaction_leaves_no_event(db: TestDb) {
    let mut tx = db.begin().await;
    assert!(!tx.append(&db.outbox, &order(1).request_id("r")).await.unwrap().is_duplicate());
    tx.append_all(&db.outbox, &[order(2).request_id("s"), order(3)]).await.unwrap();
    tx.rollback().await.unwrap();

    let relay = db.relay("relay-a").await;
    assert!(db.claim(&relay, 10).await.is_empty());
    assert_eq!(db.count("").await, 0);
    assert_eq!(db.count("_keys").await, 0);
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 0);

    let mut tx = db.begin().await;
    let again = tx.append(&db.outbox, &order(1).request_id("r")).await.unwrap();
    assert!(!again.is_duplicate(), "a request that never happened is not remembered");
    tx.commit().await.unwrap();
}

/// Any text is allowed: all scripts, quotes, control characters, an empty payload, a large one.
pub async fn payloads_and_headers_of_any_text_come_back_unchanged(db: TestDb) {
    let large = "0123456789abcdef".repeat(64 * 1024);
    let payloads = [
        String::new(),
        "한국어 ñ 🦀 \u{10FFFF} e\u{301}".to_owned(),
        "'; DROP TABLE orders_outbox; -- \" \\ ` $1 ? %s {outbox}".to_owned(),
        "line\r\nbreak\ttab \u{1}\u{7f}".to_owned(),
        " leading and trailing blanks ".to_owned(),
        large,
    ];
    let events: Vec<_> = payloads
        .iter()
        .map(|text| {
            let event = NewEvent::new("k", "1", "T", text.clone());
            event.header("x-text", &text[..text.len().min(40_000)]).header("quo\"te", "\\")
        })
        .collect();
    db.append(&events[..3]).await;
    for event in &events[3..] {
        let mut tx = db.begin().await;
        assert!(!tx.append(&db.outbox, event).await.unwrap().is_duplicate());
        tx.commit().await.unwrap();
    }
    let relay = db.relay("relay-a").await;

    let claimed = db.claim(&relay, 10).await;

    assert_eq!(claimed.len(), payloads.len());
    for (found, expected) in claimed.iter().zip(&payloads) {
        assert!(found.payload == *expected, "a payload of {} bytes changed", expected.len());
        let headers = found.headers().unwrap();
        assert!(headers["x-text"] == expected[..expected.len().min(40_000)]);
        assert_eq!(headers["quo\"te"], "\\");
        assert_eq!(found.hash_matches(), Some(true));
    }
}

/// Limits are in characters, and a character may have four bytes.
pub async fn columns_hold_their_full_length_of_four_byte_characters(db: TestDb) {
    let wide = |count: usize| "🦀".repeat(count);
    let event = NewEvent::new(
        wide(limits::AGGREGATE_TYPE_CHARS_MAX),
        wide(limits::AGGREGATE_ID_CHARS_MAX),
        wide(limits::EVENT_TYPE_CHARS_MAX),
        "{}",
    )
    .request_id(wide(limits::REQUEST_ID_CHARS_MAX));
    db.append(&[event]).await;
    let relay = db.relay("relay-a").await;

    let claimed = db.claim(&relay, 1).await;
    assert_eq!(claimed[0].aggregate_type.chars().count(), limits::AGGREGATE_TYPE_CHARS_MAX);
    assert_eq!(claimed[0].aggregate_id.chars().count(), limits::AGGREGATE_ID_CHARS_MAX);
    assert_eq!(claimed[0].event_type.chars().count(), limits::EVENT_TYPE_CHARS_MAX);
    assert_eq!(claimed[0].hash_matches(), Some(true));
    // The same columns must hold the text wherever the event goes from here.
    db.move_to_dlq(&relay, &claimed[0], &wide(limits::ERROR_MESSAGE_CHARS_MAX)).await;
    db.store.fold_ledger(&db.outbox, 100).await.unwrap();
    db.assert_balanced().await;
}

/// An invalid event is reported and nothing is sent, so the transaction continues.
pub async fn an_invalid_event_is_refused_before_anything_is_written(db: TestDb) {
    let invalid = [
        NewEvent::new("", "1", "T", "{}"),
        NewEvent::new("k", "1", "", "{}"),
        NewEvent::new("k", "x".repeat(limits::AGGREGATE_ID_CHARS_MAX + 1), "T", "{}"),
        NewEvent::new("k", "1", "T", "a\0b"),
        NewEvent::new("k", "1", "T", "x".repeat(limits::PAYLOAD_BYTES_MAX + 1)),
        NewEvent::new("k", "1", "T", "{}").request_id(""),
        NewEvent::new("k", "1", "T", "{}").header("name", "a\0b"),
        NewEvent::new("k", "1", "T", "{}").max_retries(0),
    ];
    let mut tx = db.begin().await;
    for event in &invalid {
        let answer = tx.append(&db.outbox, event).await;
        assert!(matches!(answer, Err(AppendError::Invalid(_))), "{answer:?}");
        let answer = tx.append_all(&db.outbox, &[order(1), event.clone()]).await;
        assert!(matches!(answer, Err(AppendError::Invalid(_))), "{answer:?}");
    }
    assert!(
        tx.append_all(&db.outbox, &[]).await.unwrap().is_empty(),
        "an empty batch is not an error"
    );
    assert!(!tx.append(&db.outbox, &order(2)).await.unwrap().is_duplicate());
    tx.commit().await.unwrap();
    assert_eq!(db.count("").await, 1, "only the valid event");
    db.assert_balanced().await;
}

/// The contract for other languages: four columns, everything else comes from the database.
pub async fn a_plain_insert_of_the_required_columns_is_counted_and_claimed(db: TestDb) {
    let table = db.outbox.table();
    let insert = format!(
        "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', '1', 'OrderPlaced', '{{}}'), ('order', '2', 'OrderPlaced', '{{}}')"
    );
    assert_eq!(db.execute(&insert).await, 2);
    let relay = db.relay("relay-a").await;

    let claimed = db.claim(&relay, 10).await;

    assert_eq!(claimed.len(), 2);
    for event in &claimed {
        let identity = uuid::Uuid::parse_str(&event.event_id).expect("an identity");
        let random = (identity.get_version_num(), identity.get_variant());
        assert_eq!(random, (4, uuid::Variant::RFC4122), "{identity} shows no clock and no host");
        assert_eq!(event.hash_matches(), None, "no hash was given, so none is checked");
        assert_eq!((event.request_id.as_deref(), event.headers.as_deref()), (None, None));
        let clocks_apart = (event.claimed_at - event.created_at).num_seconds();
        assert!((0..600).contains(&clocks_apart), "one clock: {clocks_apart} s apart");
    }
    assert_ne!(claimed[0].event_id, claimed[1].event_id);
    let statistics = db.store.statistics(&db.outbox).await.unwrap();
    assert_eq!((statistics.appended, statistics.pending), (2, 2));
    db.assert_balanced().await;
    assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Delete).await, 2);
    db.assert_balanced().await;
}

/// Invalid times and payloads of 16 MiB are refused in an INSERT and in an UPDATE.
pub async fn values_that_the_contract_refuses_are_refused_and_its_largest_are_not(db: TestDb) {
    let (table, kind) = (db.outbox.table(), db.store.kind());
    let insert = async |column: &str, value: &str| {
        let payload = if column == "payload" { value } else { "'{}'" };
        let (name, value) = match column {
            "payload" => (String::new(), String::new()),
            _ => (format!(", {column}"), format!(", {value}")),
        };
        let sql = format!(
            "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload{name})
             VALUES ('order', '1', 'OrderPlaced', {payload}{value})"
        );
        db.try_execute(&sql).await
    };
    let at = |day: &str| match kind {
        StoreKind::Sqlite => format!("'{day}T10:00:00.000Z'"),
        StoreKind::Postgres => format!("'{day} 10:00:00+00'"),
        StoreKind::Mysql => format!("'{day} 10:00:00'"),
    };
    let columns = ["next_retry_at", "expires_at", "created_at"];
    for column in columns {
        for day in ["0000-01-01", "0000-12-31", "2024-02-30", "2023-02-29", "2024-04-31"] {
            let refused = insert(column, &at(day)).await;
            assert!(refused.is_err(), "{column} = {day}: {refused:?}");
        }
    }
    // Two bytes per character, because the limit is in bytes.
    let payload = |bytes: u32| match kind {
        StoreKind::Sqlite => format!("replace(hex(zeroblob({})), '0', 'ü')", bytes / 4),
        StoreKind::Postgres | StoreKind::Mysql => format!("repeat('ü', {})", bytes / 2),
    };
    let refused = insert("payload", &payload(16 << 20)).await;
    assert!(refused.is_err(), "16 MiB: {refused:?}");
    assert_eq!(db.count("").await, 0);

    for column in columns {
        for day in ["0001-01-01", "2024-02-29", "2023-12-31"] {
            insert(column, &at(day)).await.unwrap();
        }
    }
    insert("payload", &payload((16 << 20) - 4)).await.unwrap();
    assert_eq!(db.count("").await, 10);
    for column in columns {
        for day in ["0000-01-01", "2024-02-30"] {
            let changed = format!("UPDATE {table} SET {column} = {}", at(day));
            assert!(db.try_execute(&changed).await.is_err(), "{changed}");
        }
        let changed = format!("UPDATE {table} SET {column} = {}", at("2024-02-29"));
        assert_eq!(db.execute(&changed).await, 10);
    }
}

/// A delayed first delivery is measured on the database's clock.
pub async fn a_held_back_event_is_not_claimable_before_its_time(db: TestDb) {
    let hour = Duration::from_secs(3600);
    let held = db.append(&[order(1).deliver_after(hour)]).await[0];
    let now = db.append(&[order(2), order(3).deliver_after(Duration::ZERO)]).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();

    let claimed = db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(super::steps::ids(&claimed), now);
    assert!(db.claim_on(&relay, 10, &mut cursor).await.is_empty());

    db.age(db.outbox.table(), "next_retry_at", hour, &format!("id = {held}")).await;
    let claimed = db.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(super::steps::ids(&claimed), [held], "its time has come");
}

/// A delay beyond all calendars counts as a long one, not as an error.
pub async fn a_wait_beyond_all_calendars_is_a_long_one(db: TestDb) {
    let forever = Duration::MAX;
    db.append(&[order(1).deliver_after(forever).expires_after(forever)]).await;
    let relay = db.relay("relay-a").await;
    assert!(db.claim(&relay, 10).await.is_empty());
    assert_eq!(db.count("").await, 1);
}
