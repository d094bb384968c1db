//! What operators look up: ledger, statistics and lists.

use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{Cursor, EventFilter, OnSuccess, Page, Status, TypeStatistics};

use super::steps::{failure, order};
use crate::TestDb;

const FIRST: Page = Page::first(100).within(Duration::MAX);

/// Statistics come from the ledger, by type and in total.
pub async fn statistics_add_up_from_the_ledger(db: TestDb) {
    let empty = db.store.statistics(&db.outbox).await.unwrap();
    assert_eq!(empty, Default::default(), "an empty outbox has an empty ledger");
    let event = |kind: &str| NewEvent::new("order", "1", kind, "{}");
    db.append(&["Paid", "Placed", "Placed", "Shipped", "Placed"].map(event)).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 4).await;
    db.deliver(&relay, &claimed[..2], OnSuccess::Delete).await;
    let letter = db.move_to_dlq(&relay, &claimed[3], "no").await;

    for folded in [false, true] {
        if folded {
            db.store.fold_ledger(&db.outbox, 100).await.unwrap();
        }
        let found = db.store.statistics(&db.outbox).await.unwrap();
        assert_eq!((found.appended, found.delivered, found.dead), (5, 2, 1));
        assert_eq!((found.pending, found.unresolved), (2, 1));
        assert!((0..600).contains(&found.oldest_age_s.unwrap()));
        let line = |event_type: &str, appended, delivered, dead| TypeStatistics {
            event_type: event_type.to_owned(),
            appended,
            delivered,
            dead,
        };
        let expected = [line("Paid", 1, 1, 0), line("Placed", 3, 1, 0), line("Shipped", 1, 0, 1)];
        let mut by_type = found.by_type;
        by_type.sort_by(|a, b| a.event_type.cmp(&b.event_type));
        assert_eq!(by_type, expected);
    }
    db.store.resolve(&db.outbox, letter, "op", "seen").await.unwrap();
    let resolved = db.store.statistics(&db.outbox).await.unwrap();
    assert_eq!((resolved.unresolved, resolved.dead), (0, 1));
}

/// The age of the oldest event is measured on the database's clock.
pub async fn the_oldest_age_is_that_of_the_oldest_live_event(db: TestDb) {
    db.append_orders(2).await;
    db.age(db.outbox.table(), "created_at", Duration::from_secs(7_200), "id = 1").await;
    let age = db.store.statistics(&db.outbox).await.unwrap().oldest_age_s.unwrap();
    assert!((7_190..7_800).contains(&age), "{age}");
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().oldest_age_s, None);
}

/// The simplest manipulation: one live row is deleted by hand.
pub async fn a_live_row_deleted_by_hand_unbalances_the_ledger(db: TestDb) {
    db.append_orders(3).await;
    db.assert_balanced().await;
    db.execute(&format!("DELETE FROM {} WHERE id = 2", db.outbox.table())).await;
    let ledger = db.ledger().await;
    assert!(ledger.iter().any(|window| !window.balanced()), "{ledger:#?}");
}

/// Two errors that cancel out in the count show up in the sum of ids.
pub async fn a_row_exchanged_by_hand_unbalances_the_ledger(db: TestDb) {
    db.append_orders(3).await;
    // Only the database assigns ids, so this manipulates the ledger's own table, which no program
    // may do.
    let serial = !db.store.capabilities().concurrent_writers;
    let suffix = if serial { "ledger" } else { "ledger_entries" };
    let entries = format!("{}_{suffix}", db.outbox.table());
    db.execute(&format!("UPDATE {entries} SET id_sum = id_sum + 1")).await;
    let ledger = db.ledger().await;
    assert!(ledger.iter().any(|window| !window.balanced()), "{ledger:#?}");
}

/// A row moved to another time by hand is missing in one window and extra in the other.
pub async fn a_row_moved_in_time_by_hand_unbalances_the_ledger(db: TestDb) {
    db.append_orders(3).await;
    db.age(db.outbox.table(), "created_at", Duration::from_secs(3_600), "id = 2").await;
    let ledger = db.ledger().await;
    let unbalanced = ledger.iter().filter(|window| !window.balanced()).count();
    assert_eq!(unbalanced, 2, "{ledger:#?}");
    assert_eq!(ledger.len(), 2, "in order of time: {ledger:#?}");
    assert!(ledger[0].window < ledger[1].window);
}

/// A program may set `created_at` itself; the ledger uses that time.
pub async fn a_stated_creation_time_is_recorded_in_its_own_window(db: TestDb) {
    let table = db.outbox.table();
    // Yesterday, because times older than five weeks share a window.
    let day = (chrono::Utc::now() - chrono::TimeDelta::days(1)).format("%Y-%m-%d").to_string();
    for time in ["12:34:56", "12:34:01", "12:35:00"].map(|time| format!("{day} {time}")) {
        let insert = format!(
            "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload, created_at)
             VALUES ('order', '1', 'OrderPlaced', '{{}}', {})",
            db.time(&time)
        );
        db.execute(&insert).await;
    }
    let ledger = db.ledger().await;
    let windows: Vec<_> = ledger
        .iter()
        .map(|window| (window.window.to_rfc3339(), window.appended.count, window.pending.count))
        .collect();
    let expected =
        [(format!("{day}T12:34:00+00:00"), 2, 2), (format!("{day}T12:35:00+00:00"), 1, 1)];
    assert_eq!(windows, expected);
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    db.assert_balanced().await;
    assert_eq!(db.ledger().await[0].delivered.count, 2);
}

/// Lists are filtered by state, type and aggregate; live and archived events separately.
pub async fn events_are_listed_by_state_type_and_aggregate(db: TestDb) {
    let event = |key: &str, kind: &str| NewEvent::new("order", key, kind, "{}");
    let appended = db
        .append(&[
            event("1", "Placed"),
            event("2", "Placed"),
            event("1", "Paid"),
            NewEvent::new("invoice", "1", "Paid", "{}"),
        ])
        .await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(&relay, 2, &mut cursor).await;
    db.deliver(&relay, &claimed[..1], OnSuccess::Archive).await;
    let failures = [failure(&claimed[1], Duration::from_secs(60), "no")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    db.claim_on(&relay, 1, &mut cursor).await;

    let list = async |filter: EventFilter| {
        let found = db.store.events(&db.outbox, &filter, FIRST).await.unwrap().rows;
        found.iter().map(|event| event.id).collect::<Vec<_>>()
    };
    let all = EventFilter::default;
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(list(all()).await, [appended[3], appended[2], appended[1]], "newest first");
    let of = |status| EventFilter { status: Some(status), ..all() };
    assert_eq!(list(of(Status::Pending)).await, [appended[3]]);
    assert_eq!(list(of(Status::Processing)).await, [appended[2]]);
    assert_eq!(list(of(Status::Failed)).await, [appended[1]]);
    assert_eq!(list(of(Status::Completed)).await, [appended[0]], "from the archive");
    assert!(list(of(Status::DeadLetter)).await.is_empty());
    let paid = EventFilter { event_type: some("Paid"), ..all() };
    assert_eq!(list(paid.clone()).await, [appended[3], appended[2]]);
    let paid_orders = EventFilter { aggregate_type: some("order"), ..paid };
    assert_eq!(list(paid_orders).await, [appended[2]]);
    let first = EventFilter { aggregate_id: some("1"), ..all() };
    assert_eq!(list(first.clone()).await, [appended[3], appended[2]]);
    let archived = EventFilter { status: Some(Status::Completed), ..first };
    assert_eq!(list(archived).await, [appended[0]]);
}

/// The next page continues below the last id, without gap or overlap.
pub async fn pages_of_events_neither_overlap_nor_leave_gaps(db: TestDb) {
    let appended = db.append_orders(7).await;
    let mut seen = Vec::new();
    let mut page = Page::first(3).within(Duration::MAX);
    loop {
        let found = db.store.events(&db.outbox, &EventFilter::default(), page).await.unwrap().rows;
        let Some(last) = found.last() else { break };
        page.before_id = Some(last.id);
        seen.push(found.iter().map(|event| event.id).collect::<Vec<_>>());
    }
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    let mut all = seen.concat();
    all.reverse();
    assert_eq!(all, appended);
    assert!(db.event(appended[6] + 1).await.is_none());
    assert!(db.event(0).await.is_none());
    assert!(db.event(i64::MAX).await.is_none());
}

/// Text in a filter is only compared, whatever it looks like.
pub async fn injection_text_in_a_filter_finds_nothing_and_breaks_nothing(db: TestDb) {
    db.append(&[order(1)]).await;
    for text in ["' OR '1'='1", "\"; DROP TABLE orders_outbox; --", "%", "_", "\\", "{outbox}", ""]
    {
        let text = Some(text.to_owned());
        for filter in [
            EventFilter { event_type: text.clone(), ..Default::default() },
            EventFilter { aggregate_type: text.clone(), ..Default::default() },
            EventFilter { aggregate_id: text.clone(), ..Default::default() },
        ] {
            let found = db.store.events(&db.outbox, &filter, FIRST).await.unwrap().rows;
            assert!(found.is_empty(), "{filter:?}");
        }
        let attempts = db.store.attempts(&db.outbox, text.as_deref().unwrap()).await.unwrap();
        assert!(attempts.is_empty(), "an identity that is none has no attempts");
    }
    assert_eq!(db.count("").await, 1);
}

/// The relay's check detects a manipulated row.
pub async fn a_tampered_payload_no_longer_fits_its_hash(db: TestDb) {
    let appended = db.append(&[order(1).request_id("r"), order(2)]).await;
    let table = db.outbox.table();
    db.execute(&format!("UPDATE {table} SET payload = 'more' WHERE id = {}", appended[0])).await;
    let relay = db.relay("relay-a").await;
    for event in db.claim(&relay, 10).await {
        assert_eq!(event.hash_matches(), Some(event.id != appended[0]));
    }
}
