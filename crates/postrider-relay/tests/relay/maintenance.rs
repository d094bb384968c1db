//! Maintenance: by one relay at a time, for all outboxes, even if one of them is broken.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{OutboxConfig, Relay, RelayConfig};
use postrider_store::{Lease, Serving, Share, Traffic};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::task::JoinHandle;

on_each_store!(
    only_the_first_that_serves_an_outbox_keeps_its_house_and_another_takes_over,
    an_outbox_that_the_oldest_relay_does_not_serve_is_kept_by_one_that_does,
    a_relay_recovers_its_own_outboxes_whoever_leads,
    stalled_rows_of_a_relay_on_no_list_return_after_their_time,
    a_broken_outbox_does_not_stop_the_upkeep_of_the_next,
);

/// Adds a row for maintenance to move: marked as dead, as the safety net leaves it when the table
/// fails.
async fn mark_one(db: &TestDb) {
    let id =
        db.append(&[order(db.next_number()).deliver_after(Duration::from_secs(3600))]).await[0];
    let mark = "UPDATE orders_outbox SET status = 'DEAD_LETTER', dead_reason = 'rejected'";
    assert_eq!(db.execute(&format!("{mark} WHERE id = {id}")).await, 1);
}

async fn until_moved(db: &TestDb, rows: i64) {
    let moved = async || (db.count("_dlq").await == rows).then_some(());
    eventually("maintenance moves the marked rows", moved).await;
}

/// Starts a relay that is older than any other, and only sends heartbeats with what it serves.
async fn elder(db: &TestDb, serving: Vec<Serving>) -> (Lease, JoinHandle<()>) {
    let elder = db.relay("0-elder").await;
    // Before the relay under test starts: it must never see the elder without what it serves.
    db.store.heartbeat(&elder, &serving).await.unwrap();
    let (store, lease) = (Arc::clone(&db.store), elder.clone());
    let beating = tokio::spawn(async move {
        while store.heartbeat(&lease, &serving).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    (elder, beating)
}

/// The leader may serve other outboxes only, and not have this one configured.
async fn a_relay_recovers_its_own_outboxes_whoever_leads(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let (_elder, beating) = elder(&db, Vec::new()).await;
    let dead = db.relay("1-dead").await;
    db.append_orders(3).await;
    assert_eq!(db.claim(&dead, 3).await.len(), 3);
    let config = RelayConfig { lease: Duration::from_secs(1), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    sink.until_delivered(3).await;
    relay.stop().await;
    beating.abort();
    db.assert_balanced().await;
}

/// The oldest relay leads: an older one that sends heartbeats keeps the others from leading.
async fn only_the_first_that_serves_an_outbox_keeps_its_house_and_another_takes_over(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let outbox = db.outbox.name().to_owned();
    let serving = Serving {
        outbox,
        epoch: 1,
        share: Share::WHOLE,
        down: Vec::new(),
        traffic: Traffic::default(),
        trouble: None,
    };
    let (elder, beating) = elder(&db, vec![serving]).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    mark_one(&db).await;
    db.append_orders(3).await;
    sink.until_delivered(3).await;
    // Several periods of maintenance that must not happen.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(db.count("_dlq").await, 0, "a relay that does not lead moves nothing");
    beating.abort();
    drop(beating.await);
    db.store.retire(&elder).await.unwrap();
    until_moved(&db, 1).await;
    relay.stop().await;
    db.assert_balanced().await;
}

/// The leader of all relays may not have this outbox configured: its marked rows would stay
/// forever.
async fn an_outbox_that_the_oldest_relay_does_not_serve_is_kept_by_one_that_does(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let (_elder, beating) = elder(&db, Vec::new()).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    mark_one(&db).await;
    until_moved(&db, 1).await;
    relay.stop().await;
    beating.abort();
}

async fn stalled_rows_of_a_relay_on_no_list_return_after_their_time(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let gone = db.relay("gone").await;
    let ids = db.append_orders(2).await;
    assert_eq!(db.claim(&gone, 2).await.len(), 2);
    db.execute("DELETE FROM postrider_relays WHERE id = 'gone'").await;
    let config = RelayConfig { stalled_after: Duration::from_secs(600), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    let condition = format!("id = {}", ids[0]);
    db.age("orders_outbox", "locked_at", Duration::from_secs(601), &condition).await;
    sink.until_delivered(1).await;
    mark_one(&db).await;
    until_moved(&db, 1).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered(), [ids[0]], "the other one has time left");
    assert_eq!(db.column(ids[1], "locked_by").await.as_deref(), Some("gone"));
}

async fn a_broken_outbox_does_not_stop_the_upkeep_of_the_next(db: TestDb) {
    let folder = TempFolder::new();
    let broken = db.add_outbox(postrider_store::Dedupe::default()).await;
    let (sink, config) = (ScriptedSink::delivering().shared(), quick_config(&folder));
    let of = |outbox| OutboxConfig::new(outbox, quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), config)
        .outbox(of(broken.clone()))
        .outbox(of(db.outbox.clone()));
    let relay = RunningRelay::start(relay);
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    db.execute(&format!("DROP TABLE {}_dlq", broken.table())).await;
    mark_one(&db).await;
    until_moved(&db, 1).await;
    relay.stop().await;
}
