//! Named locks that end with the transaction.

use std::sync::Arc;
use std::time::Duration;

use postrider::LockError;

use crate::{PATIENCE, TestDb};

/// Whole seconds, because one of the stores counts in seconds.
const SHORT: Duration = Duration::from_secs(1);

/// The second transaction waits, and gets the lock when the first one ends in any way.
pub async fn a_lock_is_had_by_one_transaction_until_it_ends(db: TestDb) {
    for commits in [true, false] {
        let mut first = db.begin().await;
        for _ in 0..2 {
            first.lock("guest-1", PATIENCE).await.expect("taking it again does nothing");
        }
        let begin = db.begin_later();
        let second = tokio::spawn(async move {
            let mut tx = begin.await;
            tx.lock("guest-1", PATIENCE).await.unwrap();
            tx.commit().await.unwrap();
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!second.is_finished(), "there is no signal for `it waits`: time passes");
        match commits {
            true => first.commit().await.unwrap(),
            false => first.rollback().await.unwrap(),
        }
        second.await.unwrap();
    }
}

/// The error of a timeout names the lock and says what to do.
pub async fn a_lock_that_is_not_free_in_time_is_named_with_its_cure(db: TestDb) {
    let mut first = db.begin().await;
    first.lock("guest-1", SHORT).await.unwrap();
    if !db.store.capabilities().concurrent_writers {
        // The lock is the transaction's own: the second one waits when it begins.
        let second = tokio::time::timeout(Duration::from_millis(200), db.begin()).await;
        assert!(second.is_err(), "no second transaction that writes");
        return;
    }
    let mut second = db.begin().await;
    let error = second.lock("guest-1", SHORT).await.unwrap_err();
    assert!(matches!(&error, LockError::Timeout { name, .. } if name == "guest-1"), "{error:?}");
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(text.contains("`guest-1`") && text.contains("try again"), "{text}");
    second.rollback().await.unwrap();
    first.rollback().await.unwrap();
}

/// A lock on one guest does not lock another, even if the names are similar.
pub async fn different_names_do_not_wait_where_writers_are_concurrent(db: TestDb) {
    let mut first = db.begin().await;
    first.lock("guest-1", SHORT).await.unwrap();
    if db.store.capabilities().concurrent_writers {
        let mut second = db.begin().await;
        for name in ["guest-2", "Guest-1", "guest-1 ", &"ü".repeat(200)] {
            second.lock(name, SHORT).await.unwrap();
        }
        second.rollback().await.unwrap();
    }
    first.rollback().await.unwrap();
}

/// Nothing is sent; the transaction continues.
pub async fn names_that_no_column_holds_are_refused(db: TestDb) {
    let mut tx = db.begin().await;
    for wrong in ["", "a\0b", &"x".repeat(201)] {
        let answer = tx.lock(wrong, SHORT).await;
        assert!(matches!(answer, Err(LockError::Name(_))), "{answer:?}");
    }
    tx.lock("right", SHORT).await.unwrap();
    tx.commit().await.unwrap();
}

/// The typical use of a lock: read, compute, write. The read after the lock sees the previous
/// holder's write, under the database's own isolation level too.
pub async fn fifty_transactions_that_read_and_write_under_a_lock_lose_no_update(db: TestDb) {
    db.execute("CREATE TABLE points (balance bigint)").await;
    db.execute("INSERT INTO points VALUES (0)").await;
    let db = Arc::new(db);
    let writers: Vec<_> = (0..5)
        .map(|_| {
            let db = Arc::clone(&db);
            tokio::spawn(async move {
                for _ in 0..10 {
                    let mut tx = db.begin().await;
                    tx.lock("points", PATIENCE).await.unwrap();
                    let balance = tx.integer("SELECT balance FROM points").await.unwrap();
                    let update = format!("UPDATE points SET balance = {}", balance + 1);
                    tx.execute(&update).await.unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(db.integer("SELECT balance FROM points").await, 50);
}
