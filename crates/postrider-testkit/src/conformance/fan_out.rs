//! Fan-out: copies in other outboxes, in the settling transaction.

use postrider::Outbox;
use postrider_store::{Dedupe, Delivery, Event, OnSuccess, StoreError};

use super::steps::order;
use crate::TestDb;

fn to(event: &Event, branches: u64) -> Delivery {
    Delivery { branches, ..Delivery::from(event) }
}

async fn children(db: &TestDb) -> [Outbox; 2] {
    [db.add_outbox(Dedupe::default()).await, db.add_outbox(Dedupe::default()).await]
}

async fn rows(db: &TestDb, outbox: &Outbox) -> i64 {
    db.integer(&format!("SELECT count(*) FROM {}", outbox.table())).await
}

/// Each branch gets its events, with the event id, the time and the content of the original.
pub async fn copies_go_where_their_branches_lead_and_keep_their_identity(db: TestDb) {
    let [one, two] = children(&db).await;
    db.append(&[order(1).request_id("r-1").header("x", "ü"), order(2), order(3)]).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let delivered = [to(&claimed[0], 0b11), to(&claimed[1], 0b01), to(&claimed[2], 0b10)];
    let targets = [one.clone(), two.clone()];
    let settled =
        db.store.fan_out(&db.outbox, &relay, &delivered, &targets, OnSuccess::Archive).await;
    assert_eq!(settled.unwrap().rows, 3);

    assert_eq!((db.count("").await, db.count("_archive").await), (0, 3));
    db.assert_balanced().await;
    for (outbox, expected) in [(one, [0, 1]), (two, [0, 2])] {
        let db = db.clone().with_outbox(outbox);
        let copies = db.claim(&relay, 10).await;
        assert_eq!(copies.len(), 2, "in the order of the originals");
        for (copy, original) in copies.iter().zip(expected.map(|index| &claimed[index])) {
            assert_eq!(copy.event_id, original.event_id);
            assert_eq!(copy.request_id, original.request_id);
            assert_eq!(copy.key(), original.key());
            assert_eq!(copy.payload, original.payload);
            assert_eq!(copy.headers, original.headers);
            assert_eq!(copy.created_at, original.created_at);
            assert_eq!(copy.hash_matches(), original.hash_matches());
            assert_eq!(copy.retry_count, 0, "a life of its own");
        }
        db.assert_balanced().await;
    }
}

/// If the answer was lost and the call is repeated, or another relay took over, no more copies are
/// made.
pub async fn a_repeated_or_fenced_fan_out_copies_nothing_more(db: TestDb) {
    let targets = children(&db).await;
    db.append_orders(2).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    let first = [to(&claimed[0], 0b11)];
    for rows_settled in [1, 0] {
        let settled =
            db.store.fan_out(&db.outbox, &relay, &first, &targets, OnSuccess::Delete).await;
        assert_eq!(settled.unwrap().rows, rows_settled);
    }
    let observer = db.relay("relay-b").await;
    db.fence(&observer, &relay).await;
    let second = [to(&claimed[1], 0b11)];
    let refused = db.store.fan_out(&db.outbox, &relay, &second, &targets, OnSuccess::Delete).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    for child in &targets {
        assert_eq!(rows(&db, child).await, 1, "one copy of the first, none of the second");
    }
    assert_eq!(db.count("").await, 1);
    db.assert_balanced().await;
}

/// If one branch's table is missing, nothing is settled and the other branch gets no copy either.
pub async fn a_copy_that_fails_undoes_the_others_and_the_settle(db: TestDb) {
    let targets = children(&db).await;
    db.append_orders(1).await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    db.execute(&format!("DROP TABLE {}", targets[1].table())).await;
    let delivered = [to(&claimed[0], 0b11)];
    let settled = db.store.fan_out(&db.outbox, &relay, &delivered, &targets, OnSuccess::Delete);
    assert!(settled.await.is_err());
    assert_eq!((db.count("").await, rows(&db, &targets[0]).await), (1, 0));
}

/// A request id that the branch remembers belongs to another event, because the parent detects
/// repeats. Two outboxes with the same branch may use the same request id, and a parent may forget
/// it before the branch does. None of the copies is skipped.
pub async fn a_copy_is_made_although_the_branch_remembers_its_request_id(db: TestDb) {
    let [branch, other] = children(&db).await;
    let relay = db.relay("relay-a").await;
    let appended = async |outbox: &Outbox, n| {
        let db = db.clone().with_outbox(outbox.clone());
        db.execute(&format!("DELETE FROM {}_keys", outbox.table())).await;
        db.append(&[order(n).request_id("r-1")]).await;
        db.claim(&relay, 10).await.remove(0)
    };
    let settle = async |outbox: &Outbox, events: &[Event]| {
        let delivered: Vec<_> = events.iter().map(|event| to(event, 0b01)).collect();
        let branch = std::slice::from_ref(&branch);
        db.store.fan_out(outbox, &relay, &delivered, branch, OnSuccess::Delete).await
    };
    let first = appended(&db.outbox, 1).await;
    assert_eq!(settle(&db.outbox, &[first]).await.unwrap().rows, 1);
    let second = appended(&other, 2).await;
    assert_eq!(settle(&other, &[second]).await.unwrap().rows, 1, "of another outbox");
    let third = appended(&db.outbox, 3).await;
    assert_eq!(settle(&db.outbox, &[third]).await.unwrap().rows, 1, "forgotten by the parent");
    assert_eq!(rows(&db, &branch).await, 3);

    // Two events of one batch, unknown to the branch: refused together, copied one by one.
    db.execute(&format!("DELETE FROM {}_keys", branch.table())).await;
    let both = [appended(&db.outbox, 4).await, appended(&db.outbox, 5).await];
    match settle(&db.outbox, &both).await {
        Ok(settled) => assert_eq!(settled.rows, 2),
        Err(_) => {
            assert_eq!((db.count("").await, rows(&db, &branch).await), (2, 3), "nothing was done");
            for event in both {
                assert_eq!(settle(&db.outbox, &[event]).await.unwrap().rows, 1);
            }
        }
    }
    assert_eq!((db.count("").await, rows(&db, &branch).await), (0, 5));
    for outbox in [&db.outbox, &other, &branch] {
        db.clone().with_outbox(outbox.clone()).assert_balanced().await;
    }
}
