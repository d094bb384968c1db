//! The round trip of an event through dead letter, backup file and import, back into the outbox:
//! nothing of it is lost, and no resolved event comes back.

use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use postrider_store::{
    Cursor, DeadLetter, DeadReason, Dedupe, DlqFilter, Edit, Event, ImportEntry, Imported, Lease,
    OnSuccess, Page, Retention, StoreKind,
};

use super::steps::{death, failure, order, originals};
use crate::TestDb;

const DAY: Duration = Duration::from_secs(24 * 3600);
const FIRST: Page = Page::first(100).within(Duration::MAX);

/// The content of an event for its producer and its receivers. All of it must come back.
#[derive(Debug, Clone, PartialEq)]
struct Content {
    event_id: String,
    request_id: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    payload: String,
    headers: Option<String>,
    content_hash: Option<String>,
    expires_at: Option<DateTime<Utc>>,
    max_retries: Option<i32>,
}

/// Names every field of an event, so that a new field does not compile until it is handled here.
fn content(event: &Event) -> Content {
    let Event {
        // A dead letter and a retry store these in another form; other checks cover them one by
        // one.
        id: _,
        defect: _,
        created_at: _,
        retry_count: _,
        redrive_count: _,
        // These concern the last attempt of this row and end with it.
        crash_count: _,
        last_failed_at: _,
        claimed_at: _,
        version: _,
        place: _,
        event_id,
        request_id,
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        headers,
        content_hash,
        expires_at,
        max_retries,
    } = event.clone();
    Content {
        event_id,
        request_id,
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        headers,
        content_hash,
        expires_at,
        max_retries,
    }
}

/// Like [`content`], for a line in a backup file.
fn filed(entry: &ImportEntry) -> Content {
    let ImportEntry {
        original_id: _,
        reason: _,
        error_message: _,
        error_detail: _,
        failed_at: _,
        retry_count: _,
        redrive_count: _,
        created_at: _,
        event_id,
        request_id,
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        headers,
        content_hash,
        max_retries,
        expires_at,
    } = entry.clone();
    Content {
        event_id,
        request_id,
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        headers,
        content_hash,
        expires_at,
        max_retries,
    }
}

/// Appends and claims an event with every optional field, after a failed attempt and two retries.
async fn whole_event(db: &TestDb, relay: &Lease) -> Event {
    let event = order(1).request_id("r").header("x", "ü").max_retries(9);
    let id = db.append(&[event.expires_after(DAY)]).await[0];
    let table = db.outbox.table();
    db.execute(&format!("UPDATE {table} SET redrive_count = 2 WHERE id = {id}")).await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(relay, 10, &mut cursor).await;
    let failures = [failure(&claimed[0], Duration::ZERO, "first")];
    db.store.settle_failed(&db.outbox, relay, &failures).await.unwrap();
    let event = db.claim_on(relay, 10, &mut cursor).await.remove(0);
    let Content { request_id, headers, content_hash, expires_at, max_retries, .. } =
        content(&event);
    assert!(request_id.is_some() && headers.is_some() && content_hash.is_some());
    assert!(expires_at.is_some() && max_retries.is_some());
    event
}

async fn only_letter(db: &TestDb) -> DeadLetter {
    let found = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await.unwrap().rows;
    assert_eq!(found.len(), 1, "{found:#?}");
    db.store.dead_letter(&db.outbox, found[0].id).await.unwrap().unwrap()
}

async fn import(db: &TestDb, entry: &ImportEntry) -> Imported {
    db.store.import(&db.outbox, entry, "ann").await.unwrap()
}

/// The dead letter has all data of the event, and the row is gone, in one transaction.
pub async fn a_dead_letter_holds_all_of_the_event(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    let deaths = [death(&event, DeadReason::Exhausted, "second")];

    assert_eq!(db.store.settle_dead(&db.outbox, &relay, &deaths).await.unwrap().rows, 1);

    assert!(db.event(event.id).await.is_none());
    let letter = only_letter(&db).await;
    let listed = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await.unwrap();
    assert_eq!(DeadLetter { payload: None, ..letter.clone() }, listed.rows[0]);
    assert_eq!(filed(&ImportEntry::of(letter.clone()).unwrap()), content(&event));
    assert_eq!((letter.original_id, letter.event_created_at), (event.id, event.created_at));
    assert_eq!((letter.reason, letter.error_message.as_str()), (DeadReason::Exhausted, "second"));
    assert_eq!(letter.error_detail.as_deref(), Some("the body of the answer"));
    assert_eq!((letter.retry_count, letter.redrive_count), (2, 2), "both attempts count");
    assert!(letter.failed_at >= event.claimed_at);
    assert!(!letter.resolved);
    assert_eq!((letter.resolved_at, letter.resolved_by), (None, None));
    assert_eq!((letter.resolution_note, letter.retried_as), (None, None));
    db.assert_balanced().await;
}

/// Dead letter, line of a file, import and retry: the delivered event is the original one.
pub async fn an_event_comes_back_whole_from_a_file(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    db.move_to_dlq(&relay, &event, "no").await;
    let dead = only_letter(&db).await;
    let line = serde_json::to_string(&ImportEntry::of(dead.clone()).unwrap()).unwrap();
    db.execute(&format!("DELETE FROM {}_dlq", db.outbox.table())).await;

    let entry: ImportEntry = serde_json::from_str(&line).unwrap();
    assert_eq!(import(&db, &entry).await, Imported::Restored);

    let restored = only_letter(&db).await;
    assert_eq!(ImportEntry::of(restored.clone()), ImportEntry::of(dead));
    db.store.retry(&db.outbox, restored.id, "ann", "").await.unwrap();
    let again = db.claim(&relay, 10).await.remove(0);
    assert_eq!(content(&again), content(&event));
    assert_eq!((again.retry_count, again.redrive_count), (0, 3), "a fresh budget");
    // A line of a program that did not know the field yet.
    let mut old: serde_json::Value = serde_json::from_str(&line).unwrap();
    old.as_object_mut().unwrap().remove("expires_at").unwrap();
    let old: ImportEntry = serde_json::from_value(old).unwrap();
    assert_eq!(old.expires_at, None);
    db.assert_balanced().await;
}

/// Imports years that a driver's own time type may not hold.
pub async fn times_of_any_year_survive_an_import(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    db.move_to_dlq(&relay, &event, "no").await;
    let entry = ImportEntry::of(only_letter(&db).await).unwrap();
    db.execute(&format!("DELETE FROM {}_dlq", db.outbox.table())).await;
    for (number, year) in [(1, 1001), (2, 1969), (3, 2039), (4, 9999)] {
        let time = Utc.with_ymd_and_hms(year, 7, 1, 12, 0, 0).unwrap();
        let old = ImportEntry {
            original_id: entry.original_id + number,
            failed_at: time,
            created_at: time,
            expires_at: Some(time),
            ..entry.clone()
        };
        assert_eq!(import(&db, &old).await, Imported::Restored, "{year}");
        let since = Some(time - DAY);
        let filter = DlqFilter { since, until: Some(time + DAY), ..DlqFilter::default() };
        let found = db.store.dead_letters(&db.outbox, &filter, FIRST).await.unwrap().rows;
        let [found] = &found[..] else { panic!("{year}: {found:#?}") };
        let times = (found.failed_at, found.event_created_at, found.expires_at);
        assert_eq!(times, (time, time, Some(time)), "{year}");
    }
}

/// The same for a marked row, whose dead letter maintenance creates.
pub async fn a_marked_row_becomes_a_letter_with_all_of_the_event(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    let deaths = [death(&event, DeadReason::Rejected, "no")];
    db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap();
    let moved = db.store.move_marked(&db.outbox, 10).await.unwrap();
    assert_eq!(originals(&moved), [event.id]);
    assert_eq!(moved[0].event_id, event.event_id);
    let letter = only_letter(&db).await;
    assert_eq!(filed(&ImportEntry::of(letter).unwrap()), content(&event));
    db.assert_balanced().await;
}

/// A retry keeps an expiry time in the future, and drops one that has passed, because the retried
/// event must not expire immediately. Bulk retries and edited events do the same.
pub async fn a_retry_drops_a_time_to_expire_that_has_passed(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dlq = format!("{}_dlq", db.outbox.table());
    let edit = Edit { payload: Some("{\"edited\":true}".to_owned()), ..Edit::default() };
    for passed in [false, true] {
        let (mut letters, mut expected) = (Vec::new(), Vec::new());
        for number in 0..2 {
            db.append(&[order(number).expires_after(DAY)]).await;
            let event = db.claim(&relay, 10).await.remove(0);
            letters.push(db.move_to_dlq(&relay, &event, "no").await);
            expected.push(event.expires_at.filter(|_| !passed));
        }
        if passed {
            db.age(&dlq, "expires_at", 2 * DAY, "1 = 1").await;
        }
        db.store.retry(&db.outbox, letters[0], "ann", "").await.unwrap();
        db.store.resend(&db.outbox, letters[1], &edit, "ann", "").await.unwrap();
        let again = db.claim(&relay, 10).await;
        let times: Vec<_> = again.iter().map(|event| event.expires_at).collect();
        assert_eq!(times, expected, "passed: {passed}");
        db.deliver(&relay, &again, OnSuccess::Delete).await;
    }
    db.assert_balanced().await;
}

/// A time that the server accepts but no program can read must not break the list of dead letters.
pub async fn a_time_to_expire_that_nobody_can_read_is_none(db: TestDb) {
    let odd = match db.store.kind() {
        StoreKind::Postgres => vec!["'infinity'", "'-infinity'", "'200000-01-01Z'"],
        StoreKind::Mysql => vec!["'9999-12-31 23:59:59.999999'"],
        StoreKind::Sqlite => vec!["'soon'", "x'00ff'", "'+12026-01-01'"],
    };
    let relay = db.relay("relay-a").await;
    let table = db.outbox.table();
    for value in odd {
        db.append_orders(2).await;
        let claimed = db.claim(&relay, 10).await;
        let mut writing = db.begin().await;
        let spoil =
            format!("UPDATE {table} SET expires_at = {value} WHERE id >= {}", claimed[0].id);
        match writing.execute(&spoil).await {
            Ok(_) => writing.commit().await.unwrap(),
            // The table has a constraint against it.
            Err(_) => drop(writing),
        }
        db.move_to_dlq(&relay, &claimed[0], "no").await;
        let deaths = [death(&claimed[1], DeadReason::Rejected, "no")];
        db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap();
        assert_eq!(db.store.move_marked(&db.outbox, 10).await.unwrap().len(), 1);
        let listed = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await;
        assert!(listed.unwrap().rows.len() >= 2, "{value}");
    }
}

/// The dead letter was resolved, and later cleaned up. An old backup file does not restore it,
/// whichever relay wrote the file.
pub async fn what_was_resolved_and_cleaned_up_is_not_imported_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    let deaths = [death(&event, DeadReason::Rejected, "no")];
    db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap();
    db.store.move_marked(&db.outbox, 10).await.unwrap();
    let letter = only_letter(&db).await;
    let entry = ImportEntry::of(letter.clone()).unwrap();
    db.store.resolve(&db.outbox, letter.id, "ann", "called the customer").await.unwrap();
    assert_eq!(import(&db, &entry).await, Imported::Known);

    let table = db.outbox.table();
    db.age(&format!("{table}_dlq"), "resolved_at", 10 * DAY, "1 = 1").await;
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap().dead_letters, 1);
    assert_eq!(db.count("_dlq").await, 0);

    assert_eq!(import(&db, &entry).await, Imported::Known);
    assert_eq!(db.count("_dlq").await, 0);
    let other = ImportEntry { original_id: entry.original_id + 1_000, ..entry.clone() };
    assert_eq!(import(&db, &other).await, Imported::Restored, "another death of the same event");
    // The closed dead letters are remembered for a limited time.
    db.age(&format!("{table}_closed"), "closed_at", 300 * DAY, "1 = 1").await;
    db.store.clean_up(&db.outbox, &a_week()).await.unwrap();
    assert_eq!(db.count("_closed").await, 1);
    db.age(&format!("{table}_closed"), "closed_at", 100 * DAY, "1 = 1").await;
    db.store.clean_up(&db.outbox, &a_week()).await.unwrap();
    assert_eq!(db.count("_closed").await, 0);
    db.assert_balanced().await;
}

/// The dead letter was retried and delivered, and later cleaned up. An earlier export does not
/// restore it, although nothing is left of the event.
pub async fn what_was_retried_and_cleaned_up_is_not_imported_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = whole_event(&db, &relay).await;
    db.move_to_dlq(&relay, &event, "no").await;
    let letter = only_letter(&db).await;
    let exported = ImportEntry::of(letter.clone()).unwrap();
    db.store.retry(&db.outbox, letter.id, "ann", "").await.unwrap();
    let again = db.claim(&relay, 10).await;
    db.deliver(&relay, &again, OnSuccess::Delete).await;
    db.age(&format!("{}_dlq", db.outbox.table()), "resolved_at", 10 * DAY, "1 = 1").await;
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap().dead_letters, 1);

    assert_eq!(import(&db, &exported).await, Imported::Known);
    assert!(db.store.was_closed(&db.outbox, &exported).await.unwrap(), "a dry run says so too");
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    db.assert_balanced().await;
}

fn a_week() -> Retention {
    let week = 7 * DAY;
    Retention { archive: week, resolved: week, dedupe: Dedupe::Window(week), chunk: 2 }
}

/// The relay that wrote the line died before it could mark the row; the next one delivered it.
pub async fn what_was_delivered_after_all_is_not_imported(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dead = whole_event(&db, &relay).await;
    db.move_to_dlq(&relay, &dead, "no").await;
    let entry = ImportEntry::of(only_letter(&db).await).unwrap();
    let id = db.append_orders(1).await[0];
    let claimed = db.claim(&relay, 10).await;
    let event_id = claimed[0].event_id.clone();
    db.deliver(&relay, &claimed, OnSuccess::Archive).await;

    let delivered = ImportEntry { original_id: id, event_id, ..entry.clone() };
    assert_eq!(import(&db, &delivered).await, Imported::Known);
    let foreign = ImportEntry { original_id: id, ..entry };
    assert_eq!(import(&db, &foreign).await, Imported::Restored, "another event with that id");
    db.assert_balanced().await;
}
