//! Transactions that commit after a larger id was read: neither lost nor out of order.

use std::time::Duration;

use postrider::NewEvent;
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_server,
    relay::{RunningRelay, ScriptedSink},
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::lanes::{of_key, use_lanes};

on_each_server!(
    an_event_that_commits_late_arrives_before_the_next_of_its_key,
    thousands_of_transactions_of_random_length_lose_nothing_and_keep_the_order_of_each_key,
);

async fn an_event_that_commits_late_arrives_before_the_next_of_its_key(db: TestDb) {
    use_lanes(&db).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = RunningRelay::quick(&db, &folder, &sink);
    for round in 0..20 {
        let key = format!("k{round}");
        let mut late = db.begin().await;
        let one = late.append(&db.outbox, &of_key(&key, "First")).await.unwrap().id();
        let other = db.append(&[of_key("other", "Moved")]).await[0];
        sink.until("the other is delivered", |log| log.tries(other) > 0).await;
        late.commit().await.unwrap();
        let three = db.append(&[of_key(&key, "Second")]).await[0];
        sink.until("both are delivered", |log| log.tries(one) > 0 && log.tries(three) > 0).await;
        assert!(one < other && other < three);
    }
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(sink.log().delivered().len(), 60, "each once");
}

/// Writers that hold their transactions open for random times; each key has one writer at a time,
/// as in an application that locks the account.
async fn thousands_of_transactions_of_random_length_lose_nothing_and_keep_the_order_of_each_key(
    db: TestDb,
) {
    use_lanes(&db).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = RunningRelay::quick(&db, &folder, &sink);
    let (writers, each) = (8, 250);
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let db = db.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = StdRng::from_rng(&mut rand::rng());
            for _ in 0..each {
                let mut tx = db.begin().await;
                let key = format!("w{writer}-{}", random.random_range(0..3));
                let event = NewEvent::new("account", key, "Moved", "{}");
                drop(tx.append(&db.outbox, &event).await.unwrap());
                if random.random_bool(0.3) {
                    let held = Duration::from_micros(random.random_range(0..15_000));
                    tokio::time::sleep(held).await;
                }
                match random.random_bool(0.05) {
                    true => tx.rollback().await.unwrap(),
                    false => tx.commit().await.unwrap(),
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    eventually("all are delivered", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    let appended = db.integer("SELECT count(*) FROM orders_outbox_keys").await;
    assert_eq!(appended, 0, "no request ids here");
    let (delivered, distinct) = (sink.log().delivered().len(), sink.log().distinct());
    assert_eq!(delivered, distinct, "each once");
    assert!(distinct > writers * each * 4 / 5, "{distinct}");
    db.assert_balanced().await;
}
