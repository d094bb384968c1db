//! Leases: which relays live, and that dead relays write nothing.

use std::time::Duration;

use postrider_store::{DeadReason, Delivery, OnSuccess, Recovery, Settled, StoreError, StoreKind};

use super::steps::{death, deferral, failure, ids};
use crate::TestDb;

/// Heartbeats increase a counter, and every relay sees all others.
pub async fn a_heartbeat_moves_the_pulse_that_others_see(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let before = db.pulse(&b, &a).await;
    assert!(!before.fenced);
    assert_eq!((before.epoch, before.host.as_str()), (a.epoch, "test-host"));
    assert!(before.age < Duration::from_secs(60), "{:?}", before.age);
    let pulses = db.store.heartbeat(&a, &[]).await.unwrap();
    assert_eq!(pulses.len(), 2, "itself included");
    let after = db.pulse(&b, &a).await;
    assert_eq!(after.heartbeat, before.heartbeat + 1);
    db.store.retire(&a).await.unwrap();
    assert_eq!(
        db.store.heartbeat(&b, &[]).await.unwrap().len(),
        1,
        "retired relays are off the list"
    );
}

/// A heartbeat that changed since the observation belongs to a living relay.
pub async fn a_relay_whose_heart_beats_is_not_fenced(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let seen = db.pulse(&b, &a).await;
    db.store.heartbeat(&a, &[]).await.unwrap();
    assert!(!db.store.fence(&seen).await.unwrap(), "it moved");
    db.store.heartbeat(&a, &[]).await.expect("and still has its lease");
}

/// A repeated fence, even with the older observation, returns that the relay is fenced and has no
/// further effect.
pub async fn fencing_again_answers_the_same(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let seen = db.pulse(&b, &a).await;
    assert!(db.store.fence(&seen).await.unwrap());
    let fenced = db.pulse(&b, &a).await;
    assert!(fenced.fenced && fenced.epoch > seen.epoch);
    assert!(db.store.fence(&seen).await.unwrap(), "a repeated call, its first answer lost");
    assert!(db.store.fence(&fenced).await.unwrap(), "an observer that came later");
    assert_eq!(db.pulse(&b, &a).await.epoch, fenced.epoch, "raised once");
}

/// After the fence, no write with the old lease succeeds, and nothing changes.
pub async fn no_write_of_a_fenced_relay_succeeds(db: TestDb) {
    let appended = db.append_orders(2).await;
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let claimed = db.claim(&dead, 10).await;
    db.fence(&live, &dead).await;

    let (store, outbox) = (&db.store, &db.outbox);
    let delivered: Vec<_> = claimed.iter().map(Delivery::from).collect();
    let failed = [failure(&claimed[0], Duration::ZERO, "no")];
    let deaths = [death(&claimed[0], DeadReason::Rejected, "no")];
    let back = [deferral(&claimed[0], Duration::ZERO)];
    let lost = |answer: Result<Settled, StoreError>| {
        assert!(matches!(answer, Err(StoreError::LeaseLost)), "{answer:?}");
    };
    lost(store.settle_delivered(outbox, &dead, &delivered, OnSuccess::Delete).await);
    lost(store.settle_delivered(outbox, &dead, &delivered, OnSuccess::Archive).await);
    lost(store.settle_failed(outbox, &dead, &failed).await);
    lost(store.settle_dead(outbox, &dead, &deaths).await);
    lost(store.mark_dead(outbox, &dead, &deaths).await);
    lost(store.release(outbox, &dead, &back).await);
    let released = store.release_lost(outbox, &dead, &[]).await;
    assert!(matches!(released, Err(StoreError::LeaseLost) | Ok(0)), "{released:?}");
    let beat = store.heartbeat(&dead, &[]).await;
    assert!(matches!(beat, Err(StoreError::LeaseLost)), "{beat:?}");

    for id in appended {
        let row = db.event(id).await.unwrap();
        assert_eq!(row.status.as_str(), "PROCESSING");
        assert_eq!(row.locked_by.as_deref(), Some("relay-a"));
    }
    assert_eq!((db.count("_dlq").await, db.count("_attempts").await), (0, 0));
    db.assert_balanced().await;
}

/// A settle holds its relay's row until it commits, and the fence waits for that: with a mere check
/// of the epoch, the settle would write after the take-over.
pub async fn a_fence_waits_for_a_settle_that_is_under_way(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let pulse = db.pulse(&b, &a).await;
    // The lock that a running settle holds. SQLite has one writer at a time, so the transaction
    // itself.
    let mut settle = db.begin().await;
    let row = "FROM postrider_relays WHERE id = 'relay-a'";
    match db.store.kind() {
        StoreKind::Postgres => settle.execute(&format!("SELECT 1 {row} FOR KEY SHARE")).await,
        StoreKind::Mysql => settle.execute(&format!("SELECT 1 {row} LOCK IN SHARE MODE")).await,
        StoreKind::Sqlite => settle.execute(&format!("SELECT 1 {row}")).await,
    }
    .unwrap();
    let fencing = {
        let (store, pulse) = (std::sync::Arc::clone(&db.store), pulse.clone());
        tokio::spawn(async move { store.fence(&pulse).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    match fencing.is_finished() {
        // Failing immediately is as good as waiting, as long as the relay is not fenced.
        true => assert!(matches!(fencing.await.unwrap(), Err(StoreError::Busy(_)))),
        false => {
            settle.commit().await.unwrap();
            assert!(fencing.await.unwrap().unwrap());
            return;
        }
    }
    settle.commit().await.unwrap();
    assert!(db.store.fence(&pulse).await.unwrap());
}

/// The opposite: during a fence, a settle of that relay waits, and then finds that it lost the
/// lease. Its rows are unchanged.
pub async fn a_settle_waits_for_a_fence_that_is_under_way(db: TestDb) {
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let mut fence = db.begin().await;
    let row = "FROM postrider_relays WHERE id = 'relay-a'";
    if db.store.kind() != StoreKind::Sqlite {
        fence.execute(&format!("SELECT 1 {row} FOR UPDATE")).await.unwrap();
    }
    let raise = "UPDATE postrider_relays SET epoch = epoch + 1 WHERE id = 'relay-a'";
    fence.execute(raise).await.unwrap();
    let settling = {
        let (store, outbox, lease) =
            (std::sync::Arc::clone(&db.store), db.outbox.clone(), relay.clone());
        let delivered = [Delivery::from(&claimed[0])];
        tokio::spawn(async move {
            store.settle_delivered(&outbox, &lease, &delivered, OnSuccess::Delete).await
        })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    if settling.is_finished() {
        let answer = settling.await.unwrap();
        assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
        fence.commit().await.unwrap();
    } else {
        fence.commit().await.unwrap();
        let answer = settling.await.unwrap();
        assert!(matches!(answer, Err(StoreError::LeaseLost)), "{answer:?}");
    }
    assert_eq!(db.event(claimed[0].id).await.unwrap().status.as_str(), "PROCESSING");
    db.assert_balanced().await;
}

/// Only a fenced relay is removed; a living one stays on the list.
pub async fn only_a_fenced_relay_is_removed(db: TestDb) {
    let (a, b) = (db.relay("relay-a").await, db.relay("relay-b").await);
    db.store.remove_relay("relay-a").await.unwrap();
    db.store.heartbeat(&a, &[]).await.expect("alive, so not removed");
    db.fence(&b, &a).await;
    db.store.remove_relay("relay-a").await.unwrap();
    assert_eq!(db.store.heartbeat(&b, &[]).await.unwrap().len(), 1);
    db.store.remove_relay("relay-a").await.expect("again is not an error");
    db.store.remove_relay("nobody").await.expect("nor is an unknown one");
}

/// Recovered rows belong to the relay that claims them next; a late settle of the old owner changes
/// nothing.
pub async fn a_late_settle_after_recovery_changes_nothing(db: TestDb) {
    let appended = db.append_orders(1).await;
    let (dead, live) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let before = db.claim(&dead, 10).await;
    db.fence(&live, &dead).await;
    let recovery = Recovery {
        dead: &["relay-a".to_owned()],
        live: &["relay-b".to_owned()],
        stalled_after: Duration::from_secs(300),
    };
    assert_eq!(db.store.recover(&db.outbox, &recovery).await.unwrap(), 1);
    let after = db.claim(&live, 10).await;
    assert_eq!(ids(&after), appended);
    let late = [Delivery::from(&before[0])];
    let answer = db.store.settle_delivered(&db.outbox, &dead, &late, OnSuccess::Delete).await;
    assert!(matches!(answer, Err(StoreError::LeaseLost)), "{answer:?}");
    assert_eq!(db.deliver(&live, &before, OnSuccess::Delete).await, 0, "an old version");
    assert_eq!(db.deliver(&live, &after, OnSuccess::Delete).await, 1);
    db.assert_balanced().await;
}
