//! The path of events from commit to delivery, on each store.

use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Preset};
use postrider_store::OnSuccess;
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::time::Instant;

on_each_store!(
    what_is_committed_is_delivered_and_what_is_rolled_back_is_not,
    a_backlog_drains_at_once_however_long_the_idle_poll,
    no_more_is_in_flight_than_allowed,
    a_batch_is_limited_in_bytes,
    what_must_not_be_delivered_is_dead_at_once,
    a_failed_attempt_is_repeated_until_it_succeeds,
    delivered_events_are_archived_where_asked,
);

async fn commit_and_roll_back(db: &TestDb) -> i64 {
    let mut tx = db.begin().await;
    let kept = tx.append(&db.outbox, &order(1)).await.unwrap().id();
    tx.commit().await.unwrap();
    let mut tx = db.begin().await;
    let _undone = tx.append(&db.outbox, &order(2)).await.unwrap();
    tx.rollback().await.unwrap();
    kept
}

async fn what_is_committed_is_delivered_and_what_is_rolled_back_is_not(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = RunningRelay::quick(&db, &folder, &sink);
    let kept = commit_and_roll_back(&db).await;
    sink.until_delivered(1).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered(), [kept]);
    assert_eq!(sink.log().closed, 1);
    assert_eq!(db.count("").await, 0);
    assert_eq!(db.integer("SELECT count(*) FROM postrider_relays").await, 0, "retired");
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().delivered, 1);
    db.assert_balanced().await;
}

/// 5,000 events in batches of 100 take 51 claims: with an idle poll of 30 s, only a relay that
/// polls again at once after a full batch finishes before the test times out.
async fn a_backlog_drains_at_once_however_long_the_idle_poll(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    for _ in 0..5 {
        db.append_orders(1_000).await;
    }
    let idle_poll = Duration::from_secs(30);
    let preset = Preset { batch: 100, idle_poll, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    sink.until_delivered(5_000).await;
    relay.stop().await;
    let log = sink.log();
    assert_eq!(log.delivered().len(), 5_000, "each once");
    assert!(log.calls.iter().all(|ids| ids.len() <= 100 && ids.is_sorted()));
    drop(log);
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

async fn no_more_is_in_flight_than_allowed(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    db.append_orders(200).await;
    let config = OutboxConfig {
        batches_max: 3,
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), config);
    sink.until("three batches are in flight", |log| log.calls_now == 3).await;
    let held = "SELECT count(*) FROM orders_outbox WHERE status = 'PROCESSING'";
    // The time of three heartbeats, for a fourth claim that must not happen.
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_millis(300) {
        assert!(db.integer(held).await <= 30, "no more is held than is delivered");
    }
    sink.open();
    sink.until_delivered(200).await;
    relay.stop().await;
    let log = sink.log();
    assert!(log.calls_max == 3 && log.events_max == 30, "{}, {}", log.calls_max, log.events_max);
    assert_eq!(log.delivered().len(), 200);
}

async fn a_batch_is_limited_in_bytes(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let sized = |number: u64, bytes: usize| {
        NewEvent::new("order", format!("order-{number}"), "OrderPlaced", "x".repeat(bytes))
    };
    let small: Vec<_> = (0..20).map(|number| sized(number, 1_000)).collect();
    db.append(&small).await;
    let large = db.append(&[sized(20, 50_000)]).await[0];
    let config = OutboxConfig {
        batch_bytes_max: 4_000,
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), config);
    sink.until_delivered(21).await;
    relay.stop().await;
    for call in &sink.log().calls {
        assert!(call.len() <= 3, "3 × 1,256 bytes fit into 4,000: {call:?}");
        assert!(!call.contains(&large) || call.len() == 1, "the large one travels alone: {call:?}");
    }
}

async fn what_must_not_be_delivered_is_dead_at_once(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let ids = db.append(&[order(1), order(2), order(3).expires_after(Duration::ZERO)]).await;
    db.execute(&format!("UPDATE orders_outbox SET payload = '{{}}' WHERE id = {}", ids[1])).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    eventually("the outbox is empty", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered(), [ids[0]]);
    assert_eq!(sink.log().calls.concat(), [ids[0]], "the others never reached the sink");
    for (id, reason) in [(ids[1], "integrity"), (ids[2], "expired")] {
        let query = format!("SELECT reason FROM orders_outbox_dlq WHERE original_id = {id}");
        assert_eq!(db.text(&query).await.as_deref(), Some(reason));
    }
    let attempts = "SELECT sum(retry_count) FROM orders_outbox_dlq";
    assert_eq!(db.integer(attempts).await, 0, "nothing was tried");
    db.assert_balanced().await;
}

async fn a_failed_attempt_is_repeated_until_it_succeeds(db: TestDb) {
    let script = |_: &_, tries| if tries < 3 { Act::retry("not yet") } else { Act::DELIVER };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let ids = db.append_orders(5).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until_delivered(5).await;
    relay.stop().await;
    let log = sink.log();
    assert!(ids.iter().all(|id| log.tries(*id) == 3), "{:?}", log.calls);
    drop(log);
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    assert_eq!(db.count("_attempts").await, 10, "two failures each are on record");
    db.assert_balanced().await;
}

async fn delivered_events_are_archived_where_asked(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.append_orders(12).await;
    let preset = Preset { on_success: OnSuccess::Archive, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    sink.until_delivered(12).await;
    relay.stop().await;
    assert_eq!((db.count("").await, db.count("_archive").await), (0, 12));
    db.assert_balanced().await;
}
