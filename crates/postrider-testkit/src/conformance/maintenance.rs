//! Maintenance: folding the ledger, removing old rows.

use std::sync::Arc;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use postrider_store::{
    Cleaned, Cursor, DeadReason, Dedupe, DlqFilter, JobState, JobWork, LedgerWindow, NewJob,
    OnSuccess, Retention, StoreKind,
};

use super::steps::{death, failure, order, originals};
use crate::TestDb;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Number of attempts to catch a race between an error and the release of its locks.
const FAILURES_IN_A_ROW: usize = 100;

/// Keeps everything for a week, and removes in chunks of two.
fn a_week() -> Retention {
    let week = 7 * DAY;
    Retention { archive: week, resolved: week, dedupe: Dedupe::Window(week), chunk: 2 }
}

/// Returns a job that is done at its first step.
fn retry_nothing() -> NewJob {
    let filter = DlqFilter { event_type: Some("Unknown".to_owned()), ..DlqFilter::default() };
    let work = JobWork::DlqResolve { filter };
    let (operator, note) = ("op".to_owned(), String::new());
    NewJob { work, operator, note, rate: None, canary: None, request_key: None }
}

/// Folding shrinks the ledger and changes no sum.
pub async fn folding_the_ledger_keeps_the_sums(db: TestDb) {
    let relay = db.relay("relay-a").await;
    for _ in 0..5 {
        db.append_orders(2).await;
        let claimed = db.claim(&relay, 1).await;
        db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    }
    let before = (db.ledger().await, db.store.statistics(&db.outbox).await.unwrap());
    if !db.store.capabilities().concurrent_writers {
        // A store with one writer at a time updates the sums directly.
        assert_eq!(db.store.fold_ledger(&db.outbox, 3).await.unwrap(), 0);
        return db.assert_balanced().await;
    }
    let entries = db.count("_ledger_entries").await;
    assert!(entries >= 10, "an entry per statement: {entries}");

    let folded = db.store.fold_ledger(&db.outbox, 3).await.unwrap();

    assert_eq!(i64::try_from(folded).unwrap(), entries, "all of them, though the chunk is small");
    assert_eq!(db.count("_ledger_entries").await, 0);
    let mut after = (db.ledger().await, db.store.statistics(&db.outbox).await.unwrap());
    // The only number that changes with time.
    after.1.oldest_age_s = before.1.oldest_age_s;
    assert_eq!(after, before);
    assert_eq!(db.store.fold_ledger(&db.outbox, 3).await.unwrap(), 0);
    db.append_orders(1).await;
    assert_eq!(db.store.fold_ledger(&db.outbox, 3).await.unwrap(), 1, "onto the folded ones");
    db.assert_balanced().await;
}

/// Minutes older than five weeks become one line per type and kind: the cost of statistics and
/// reconciliation does not grow with the age of the outbox, and no sum changes, including live rows
/// of those minutes.
pub async fn old_minutes_of_the_ledger_become_one_sum(db: TestDb) {
    let (relay, table) = (db.relay("relay-a").await, db.outbox.table().to_owned());
    let now = Utc::now();
    for days in [100, 90, 80, 70, 2, 1] {
        let at = (now - TimeDelta::days(days)).format("%Y-%m-%d %H:%M:%S").to_string();
        for kind in ["Paid", "Placed"] {
            db.execute(&format!(
                "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload, created_at)
                 VALUES ('order', '1', '{kind}', '{{}}', {})",
                db.time(&at)
            ))
            .await;
        }
    }
    let claimed = db.claim(&relay, 5).await;
    db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    let last = db.claim(&relay, 1).await;
    db.move_to_dlq(&relay, &last[0], "no").await;
    let look = async || {
        let mut statistics = db.store.statistics(&db.outbox).await.unwrap();
        statistics.oldest_age_s = None;
        (db.ledger().await, statistics)
    };
    let before = look().await;
    assert_eq!(before.0.len(), 3, "all old minutes are one window: {:#?}", before.0);
    assert_eq!((before.0[0].appended.count, before.0[0].pending.count), (8, 2));
    assert!(before.0.iter().all(LedgerWindow::balanced), "{:#?}", before.0);

    while db.store.fold_ledger(&db.outbox, 3).await.unwrap() > 0 {}

    assert_eq!(look().await, before);
    let old = format!("SELECT count(*) FROM {table}_ledger WHERE minute <");
    let old = format!("{old} {}", db.time("2000-01-01 00:00:00"));
    assert_eq!(db.integer(&old).await, 5, "appended and delivered of two types, one dead");
    // Events that were appended then and are delivered only now are added to the sum.
    let rest = db.claim(&relay, 10).await;
    db.deliver(&relay, &rest, OnSuccess::Delete).await;
    db.assert_balanced().await;
    while db.store.fold_ledger(&db.outbox, 3).await.unwrap() > 0 {}
    assert_eq!(db.integer(&old).await, 5);
    assert_eq!(db.ledger().await[0].delivered.count, 7);
    db.assert_balanced().await;
}

/// Folding in several tasks, during appends and settles, neither loses nor doubles entries.
pub async fn the_ledger_balances_while_it_is_folded(db: TestDb) {
    let db = Arc::new(db);
    let relay = db.relay("relay-a").await;
    let mut folders = Vec::new();
    for _ in 0..2 {
        let db = Arc::clone(&db);
        folders.push(tokio::spawn(async move {
            for _ in 0..20 {
                match db.store.fold_ledger(&db.outbox, 5).await {
                    Ok(_) => db.assert_balanced().await,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        }));
    }
    let mut cursor = Cursor::new();
    for _ in 0..20 {
        db.append_orders(3).await;
        let claimed = db.claim_on(&relay, 2, &mut cursor).await;
        db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    }
    for folder in folders {
        folder.await.unwrap();
    }
    db.store.fold_ledger(&db.outbox, 100).await.unwrap();
    db.assert_balanced().await;
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 60);
}

/// Archived events, resolved dead letters, keys and attempts are removed when they are old, and
/// only then.
pub async fn only_what_is_older_than_its_retention_is_removed(db: TestDb) {
    let (table, relay) = (db.outbox.table().to_owned(), db.relay("relay-a").await);
    let events: Vec<_> = (1..=5).map(|n| order(n).request_id(format!("archived-{n}"))).collect();
    db.append(&events).await;
    let claimed = db.claim(&relay, 10).await;
    let failures: Vec<_> =
        claimed.iter().map(|event| failure(event, Duration::ZERO, "once")).collect();
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Archive).await;
    db.append_orders(5).await;
    let mut letters = Vec::new();
    for event in db.claim(&relay, 10).await {
        letters.push(db.move_to_dlq(&relay, &event, "no").await);
    }
    for id in &letters[1..] {
        db.store.resolve(&db.outbox, *id, "op", "done").await.unwrap();
    }
    let done = db.taken_job(&retry_nothing()).await;
    db.step(&done, "runner-a", 1).await.unwrap();
    assert_eq!(db.step(&done, "runner-a", 1).await.unwrap().state, JobState::Done);
    let stopped = db.taken_job(&retry_nothing()).await;
    db.store.stop_job(stopped.id, "op", "later").await.unwrap();
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap(), Cleaned::default());

    // Three of the five rows of each kind are ten days old, and so is the unresolved dead letter.
    let old = 10 * DAY;
    let three = format!("id <= {}", claimed[2].id);
    db.age(&format!("{table}_archive"), "delivered_at", old, &three).await;
    db.age(&format!("{table}_keys"), "created_at", old, &three).await;
    let unresolved = format!("id <= {}", letters[3]);
    db.age(&format!("{table}_dlq"), "resolved_at", old, &unresolved).await;
    db.age(&format!("{table}_dlq"), "failed_at", old, &unresolved).await;
    db.age(&format!("{table}_dlq"), "created_at", old, &unresolved).await;
    let identities = format!("event_id <> '{}'", claimed[0].event_id);
    db.age(&format!("{table}_attempts"), "failed_at", old, &identities).await;

    db.age("postrider_jobs", "updated_at", old, "1 = 1").await;

    let cleaned = db.store.clean_up(&db.outbox, &a_week()).await.unwrap();

    let expected = Cleaned { archived: 3, dead_letters: 3, keys: 3, attempts: 4, jobs: 1 };
    assert_eq!(cleaned, expected, "all that is old, though the chunk is two");
    assert_eq!(db.count("_archive").await, 2);
    assert_eq!(db.count("_keys").await, 2);
    assert_eq!(db.count("_dlq").await, 2);
    assert!(db.store.job(stopped.id).await.unwrap().is_some(), "it can still be resumed");
    let kept = db.store.dead_letter(&db.outbox, letters[0]).await.unwrap();
    assert!(!kept.expect("an unresolved dead letter is never removed").resolved);
    db.assert_balanced().await;
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap(), Cleaned::default());
}

/// A key is kept while its event is in the outbox, however old it is.
pub async fn a_key_outlives_its_window_while_its_event_is_live(db: TestDb) {
    let id = db.append(&[order(1).request_id("r")]).await[0];
    let relay = db.relay("relay-a").await;
    db.age(&format!("{}_keys", db.outbox.table()), "created_at", 10 * DAY, "1 = 1").await;
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap().keys, 0);
    assert_eq!(db.append(&[order(2).request_id("r")]).await, [id], "still a duplicate");

    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    assert_eq!(db.store.clean_up(&db.outbox, &a_week()).await.unwrap().keys, 1);
    let again = db.append(&[order(3).request_id("r")]).await[0];
    assert!(again > id, "past the window it is a new request");
    db.assert_balanced().await;
}

/// "Forever" is a valid retention too.
pub async fn a_retention_without_end_removes_nothing(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append(&[order(1).request_id("r")]).await;
    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Archive).await;
    let table = db.outbox.table();
    db.age(&format!("{table}_archive"), "delivered_at", 365 * DAY, "1 = 1").await;
    db.age(&format!("{table}_keys"), "created_at", 365 * DAY, "1 = 1").await;
    let forever = Retention {
        archive: Duration::MAX,
        resolved: Duration::MAX,
        dedupe: Dedupe::Window(Duration::MAX),
        chunk: 100,
    };
    assert_eq!(db.store.clean_up(&db.outbox, &forever).await.unwrap(), Cleaned::default());
    assert_eq!((db.count("_archive").await, db.count("_keys").await), (1, 1));
}

/// Several relays may clean up at once: old rows are removed once, and no relay fails.
pub async fn a_clean_up_from_several_relays_at_once_is_safe(db: TestDb) {
    let db = Arc::new(db);
    let relay = db.relay("relay-a").await;
    db.append_orders(40).await;
    let claimed = db.claim(&relay, 100).await;
    db.deliver(&relay, &claimed, OnSuccess::Archive).await;
    let table = format!("{}_archive", db.outbox.table());
    db.age(&table, "delivered_at", 10 * DAY, "1 = 1").await;
    let mut cleaners = Vec::new();
    for _ in 0..3 {
        let db = Arc::clone(&db);
        cleaners.push(tokio::spawn(async move {
            loop {
                match db.store.clean_up(&db.outbox, &a_week()).await {
                    Ok(cleaned) => return cleaned.archived,
                    // Maintenance can wait: if others hold the locks, it tries again later.
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
        }));
    }
    let mut removed = 0;
    for cleaner in cleaners {
        removed += cleaner.await.unwrap();
    }
    assert!(removed <= 40, "counted once at most: {removed}");
    assert_eq!(db.count("_archive").await, 0);
}

/// A row that the dead-letter table refuses stays in the outbox, and the others are moved.
pub async fn a_marked_row_that_cannot_be_moved_keeps_no_others(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let ids = db.append_orders(4).await;
    let claimed = db.claim(&relay, 10).await;
    let deaths: Vec<_> =
        claimed.iter().map(|event| death(event, DeadReason::Rejected, "no")).collect();
    db.store.mark_dead(&db.outbox, &relay, &deaths).await.unwrap();
    let dlq = format!("{}_dlq", db.outbox.table());
    let (refuse, allow) = match db.store.kind() {
        StoreKind::Sqlite => (
            format!(
                "CREATE TRIGGER no_second BEFORE INSERT ON {dlq} WHEN NEW.original_id = {}
                 BEGIN SELECT RAISE(ABORT, 'no'); END",
                ids[1]
            ),
            "DROP TRIGGER no_second".to_owned(),
        ),
        _ => (
            format!("ALTER TABLE {dlq} ADD CONSTRAINT no_second CHECK (original_id <> {})", ids[1]),
            format!("ALTER TABLE {dlq} DROP CONSTRAINT no_second"),
        ),
    };
    db.execute(&refuse).await;
    let moved = db.store.move_marked(&db.outbox, 10).await.unwrap();
    assert_eq!(originals(&moved), [ids[0], ids[2], ids[3]]);
    // Each attempt starts after the previous one failed: its locks must be released by then, or the
    // row would be skipped and the result would be "nothing to move".
    for _ in 0..FAILURES_IN_A_ROW {
        let moved = db.store.move_marked(&db.outbox, 10).await;
        assert!(moved.is_err(), "nothing but that one is left: {moved:?}");
    }
    db.execute(&allow).await;
    assert_eq!(originals(&db.store.move_marked(&db.outbox, 10).await.unwrap()), [ids[1]]);
    db.assert_balanced().await;
}
