//! Batches of buffers are saved exactly once.

use std::time::Duration;

use postrider_store::{
    Application, BATCHES_KEPT, Batch, BatchEntry, BatchLedger, BatchState, BatchTarget, Event,
    EventTarget, StoreError, StoreKind, TableTarget,
};
use uuid::Uuid;

use crate::TestDb;

/// A table that counts are added to.
pub async fn likes(db: &TestDb) -> BatchTarget {
    db.execute("CREATE TABLE likes (post varchar(20) PRIMARY KEY, total bigint NOT NULL)").await;
    target("likes", "post", "total")
}

fn target(table: &str, key: &str, count: &str) -> BatchTarget {
    BatchTarget::Table(TableTarget::new(table, key, count).unwrap())
}

fn batch(entries: &[(&str, i64)]) -> Batch {
    let entry =
        |(field, count): &(&str, i64)| BatchEntry { field: (*field).to_owned(), count: *count };
    Batch::new("likes", Uuid::new_v4(), entries.iter().map(entry).collect())
}

async fn total(db: &TestDb, post: &str) -> i64 {
    db.integer(&format!("SELECT COALESCE(SUM(total), 0) FROM likes WHERE post = '{post}'")).await
}

/// A caller that repeats a batch, because the answer to COMMIT was lost, finds it decided.
pub async fn a_batch_is_added_to_the_rows_once_however_often_it_is_applied(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let first = batch(&[("b", 2), ("a", 1), ("c'\"`;", 3)]);
    let apply = async |batch: &Batch| db.store.apply_batch(&relay, batch, &target).await.unwrap();
    assert_eq!(apply(&first).await, Application::Applied);
    assert_eq!(apply(&first).await, Application::Known(BatchState::Applied));
    assert_eq!(apply(&batch(&[("a", 10)])).await, Application::Applied);
    assert_eq!((total(&db, "a").await, total(&db, "b").await), (11, 2));
    assert_eq!(db.integer("SELECT count(*) FROM likes").await, 3);
    let ledger = db.store.batch_ledger("likes").await.unwrap();
    assert_eq!(ledger, BatchLedger { applied: 4, ..BatchLedger::default() });
    let states = db.store.batch_states(&[first.id, Uuid::new_v4()]).await.unwrap();
    assert_eq!(states, [(first.id, BatchState::Applied)]);
}

/// Many rows take several statements on some stores, but still one transaction.
pub async fn a_large_batch_is_saved_as_a_whole_or_not_at_all(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let fields: Vec<String> = (0..2_500).map(|n| format!("post-{n}")).collect();
    let mut entries: Vec<_> = fields.iter().map(|field| (field.as_str(), 1)).collect();
    let whole = batch(&entries);
    let too_long = "z".repeat(21);
    entries.push((&too_long, 1));
    if db.store.kind() != StoreKind::Sqlite {
        let refused = db.store.apply_batch(&relay, &batch(&entries), &target).await.unwrap();
        assert!(matches!(refused, Application::Refused(_)), "{refused:?}");
        assert_eq!(db.integer("SELECT count(*) FROM likes").await, 0);
    }
    let applied = db.store.apply_batch(&relay, &whole, &target).await.unwrap();
    assert_eq!(applied, Application::Applied);
    assert_eq!(db.integer("SELECT SUM(total) FROM likes").await, 2_500);
}

/// A sum beyond 64 bits is an error, not a fraction, a wrapped number or a silent stop.
pub async fn a_sum_that_overflows_undoes_the_whole_batch(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let full = batch(&[("a", i64::MAX)]);
    let applied = db.store.apply_batch(&relay, &full, &target).await.unwrap();
    assert_eq!(applied, Application::Applied);
    let more = batch(&[("a", 1), ("b", 1)]);
    let refused = db.store.apply_batch(&relay, &more, &target).await.unwrap();
    assert!(matches!(refused, Application::Refused(_)), "{refused:?}");
    assert_eq!((total(&db, "a").await, total(&db, "b").await), (i64::MAX, 0));
    assert!(db.store.batch_states(&[more.id]).await.unwrap().is_empty(), "still undecided");
}

/// An existing row whose count is still NULL counts from zero.
pub async fn a_row_whose_count_is_null_is_counted_from_zero(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.execute("CREATE TABLE views (post varchar(20) PRIMARY KEY, total bigint)").await;
    db.execute("INSERT INTO views (post) VALUES ('a'), ('untouched')").await;
    let target = target("views", "post", "total");
    for sum in [3, 6] {
        let counted = batch(&[("a", 3), ("b", 3)]);
        let applied = db.store.apply_batch(&relay, &counted, &target).await.unwrap();
        assert_eq!(applied, Application::Applied);
        let both = format!("SELECT count(*) FROM views WHERE total = {sum}");
        assert_eq!(db.integer(&both).await, 2, "the row that was there, and the one that was not");
    }
    let untouched = "SELECT count(*) FROM views WHERE post = 'untouched' AND total IS NULL";
    assert_eq!(db.integer(untouched).await, 1);
}

/// Compensation and saving exclude each other, in either order.
pub async fn a_cancelled_batch_is_never_saved_and_a_saved_one_never_cancelled(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let (cancelled, saved) = (batch(&[("a", 1)]), batch(&[("a", 2)]));
    for _ in 0..2 {
        let state = db.store.cancel_batch("likes", cancelled.id, 1).await.unwrap();
        assert_eq!(state, BatchState::Cancelled);
    }
    let known = db.store.apply_batch(&relay, &cancelled, &target).await.unwrap();
    assert_eq!(known, Application::Known(BatchState::Cancelled));
    db.store.apply_batch(&relay, &saved, &target).await.unwrap();
    let state = db.store.cancel_batch("likes", saved.id, 1).await.unwrap();
    assert_eq!(state, BatchState::Applied);
    assert_eq!(total(&db, "a").await, 2);
    let ledger = db.store.batch_ledger("likes").await.unwrap();
    assert_eq!((ledger.applied, ledger.cancelled), (1, 1));
}

/// An import from the backup file accepts dead batches only.
pub async fn only_a_dead_batch_is_imported_and_only_once(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let dead = batch(&[("a", 5)]);
    let import = async || db.store.import_batch(&dead, &target, "ann").await;
    assert!(matches!(import().await, Err(StoreError::Refused(_))), "unknown");
    db.store.cancel_batch("likes", dead.id, 1).await.unwrap();
    assert!(matches!(import().await, Err(StoreError::Refused(_))), "its counts are elsewhere");
    for _ in 0..2 {
        let state = db.store.mark_batch_dead(&relay, "likes", dead.id).await.unwrap();
        assert_eq!(state, BatchState::Dead);
    }
    assert_eq!(import().await.unwrap(), Application::Applied);
    assert_eq!(import().await.unwrap(), Application::Known(BatchState::Imported));
    assert_eq!(total(&db, "a").await, 5);
    let trail: Vec<_> = db.trail().await.into_iter().map(|e| (e.operator, e.action)).collect();
    assert_eq!(trail, [("ann".to_owned(), "buffer.import".to_owned())]);
    let ledger = db.store.batch_ledger("likes").await.unwrap();
    assert_eq!(ledger, BatchLedger { applied: 0, cancelled: 1, dead: 1, imported: 1 });
}

/// Another worker has its batches by then.
pub async fn a_fenced_worker_saves_nothing_and_moves_nothing_to_the_dlq(db: TestDb) {
    let (fenced, observer) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let target = likes(&db).await;
    db.fence(&observer, &fenced).await;
    let late = batch(&[("a", 1)]);
    let refused = db.store.apply_batch(&fenced, &late, &target).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    db.store.cancel_batch("likes", late.id, 1).await.unwrap();
    let refused = db.store.mark_batch_dead(&fenced, "likes", late.id).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    assert_eq!(total(&db, "a").await, 0);
}

/// If two workers have the same batch, one saves it, and the other waits and finds it decided.
pub async fn a_batch_that_two_apply_at_once_is_saved_once(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let target = likes(&db).await;
    for _ in 0..10 {
        let same = batch(&[("a", 1), ("b", 1)]);
        let (one, two) = tokio::join!(
            db.store.apply_batch(&a, &same, &target),
            db.store.apply_batch(&b, &same, &target)
        );
        let both = [one.unwrap(), two.unwrap()];
        assert!(both.contains(&Application::Applied), "{both:?}");
        assert!(both.contains(&Application::Known(BatchState::Applied)), "{both:?}");
    }
    assert_eq!((total(&db, "a").await, total(&db, "b").await), (10, 10));
}

/// An unusable target is reported before the first flush.
pub async fn a_target_that_counts_cannot_be_added_to_is_named(db: TestDb) {
    let usable = likes(&db).await;
    db.execute("CREATE TABLE bare (post varchar(20), total bigint)").await;
    db.store.check_target(&usable).await.unwrap();
    for (wrong, named) in [
        (target("nowhere", "post", "total"), "nowhere"),
        (target("likes", "nobody", "total"), "nobody"),
        (target("likes", "post", "nothing"), "nothing"),
        (target("bare", "post", "total"), "bare"),
    ] {
        let error = db.store.check_target(&wrong).await.unwrap_err();
        assert!(matches!(error, StoreError::Schema(_)), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// Decided batches are kept for 30 days; dead ones until they are imported.
pub async fn old_batches_are_forgotten_but_no_dead_ones(db: TestDb) {
    let (relay, target) = (db.relay("relay-a").await, likes(&db).await);
    let (old, dead, young) = (batch(&[("a", 1)]), batch(&[("a", 2)]), batch(&[("a", 4)]));
    db.store.apply_batch(&relay, &old, &target).await.unwrap();
    db.store.cancel_batch("likes", dead.id, 1).await.unwrap();
    db.store.mark_batch_dead(&relay, "likes", dead.id).await.unwrap();
    let age = BATCHES_KEPT + Duration::from_secs(60);
    db.age("postrider_buffer_batches", "recorded_at", age, "1 = 1").await;
    db.store.apply_batch(&relay, &young, &target).await.unwrap();
    assert_eq!(db.store.clean_batches("other", 1).await.unwrap(), 0);
    assert_eq!(db.store.clean_batches("likes", 1).await.unwrap(), 1);
    let left = db.store.batch_states(&[old.id, dead.id, young.id]).await.unwrap();
    assert_eq!(left.len(), 2);
    assert!(!left.iter().any(|(id, _)| *id == old.id));
    assert_eq!(db.store.batch_ledger("likes").await.unwrap().applied, 2, "the ledger stays");
}

/// The other kind of target: one event per entry, in the same transaction as the batch's id.
pub async fn entries_become_events_once(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let target = BatchTarget::Events(EventTarget {
        outbox: db.outbox.clone(),
        aggregate_type: "post".to_owned(),
        event_type: "Liked".to_owned(),
    });
    let saved = batch(&[("p-1", 3), ("p-2", 4)]);
    for _ in 0..2 {
        db.store.apply_batch(&relay, &saved, &target).await.unwrap();
    }
    let events = db.claim(&relay, 10).await;
    let key = |event: &Event| (event.aggregate_type.clone(), event.aggregate_id.clone());
    let keys: Vec<_> = events.iter().map(key).collect();
    assert_eq!(keys, ["p-1", "p-2"].map(|post| ("post".to_owned(), post.to_owned())));
    assert!(events[0].payload.contains("\"count\":3"), "{}", events[0].payload);
    let too_long = "x".repeat(300);
    let refused = db.store.apply_batch(&relay, &batch(&[(&too_long, 1)]), &target).await.unwrap();
    assert!(matches!(refused, Application::Refused(_)), "{refused:?}");
}
