//! Several relays on one outbox.

use std::time::Duration;

use postrider_relay::{OutboxConfig, RelayConfig};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    two_relays_share_the_work_and_deliver_each_event_once,
    the_rows_of_a_dead_relay_are_taken_over,
    a_dead_relay_is_noticed_also_when_heartbeats_take_longer_than_they_should,
    a_suspect_is_delivered_alone,
);

async fn two_relays_share_the_work_and_deliver_each_event_once(db: TestDb) {
    let folder = TempFolder::new();
    let pace = Duration::from_millis(1);
    let sink = ScriptedSink::delivering().paced(pace).shared();
    let relays = [(); 2].map(|()| RunningRelay::quick(&db, &folder, &sink));
    for _ in 0..10 {
        db.append_orders(50).await;
    }
    sink.until_delivered(500).await;
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!(sink.log().delivered().len(), 500, "each once");
    assert_eq!(db.count("").await, 0);
    assert_eq!(db.integer("SELECT count(*) FROM postrider_relays").await, 0);
    db.assert_balanced().await;
}

/// A relay claimed rows and then stopped sending heartbeats: the live one fences it, recovers and
/// delivers.
async fn the_rows_of_a_dead_relay_are_taken_over(db: TestDb) {
    take_over(db, Duration::from_millis(100)).await;
}

/// No database answers within a microsecond: every heartbeat is late, as on a slow disk.
async fn a_dead_relay_is_noticed_also_when_heartbeats_take_longer_than_they_should(db: TestDb) {
    take_over(db, Duration::from_micros(1)).await;
}

async fn take_over(db: TestDb, heartbeat_every: Duration) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.append_orders(5).await;
    let dead = db.relay("0-dead").await;
    assert_eq!(db.claim(&dead, 3).await.len(), 3);
    let lease = Duration::from_secs(1);
    let config = RelayConfig { lease, heartbeat_every, ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    sink.until_delivered(5).await;
    let listed = "SELECT count(*) FROM postrider_relays WHERE id = '0-dead'";
    eventually("the dead relay is removed", async || (db.integer(listed).await == 0).then_some(()))
        .await;
    relay.stop().await;
    assert_eq!(sink.log().delivered().len(), 5, "each once");
    db.assert_balanced().await;
}

/// Events that two dead relays held are sent one at a time, with nothing else in flight.
async fn a_suspect_is_delivered_alone(db: TestDb) {
    let pace = Duration::from_millis(5);
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(|_, _| Act::DELIVER).paced(pace).shared();
    // As recovery leaves them: due again, and waiting.
    let recovered: Vec<_> = (1..=4).map(|n| order(n).deliver_after(Duration::ZERO)).collect();
    let suspects = db.append(&recovered).await;
    db.execute("UPDATE orders_outbox SET crash_count = 2").await;
    db.append_orders(30).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until_delivered(34).await;
    relay.stop().await;
    let log = sink.log();
    let of_suspects: Vec<_> =
        log.calls.iter().filter(|call| call.iter().any(|id| suspects.contains(id))).collect();
    assert!(of_suspects.iter().all(|call| call.len() == 1), "{of_suspects:?}");
    assert_eq!(of_suspects.len(), 4);
}
