//! Claim mode `lanes` with several relays: fair shares, hand-over, death.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{OutboxConfig, Relay, RelayConfig};
use postrider_store::StoreKind;
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_server, on_each_store,
    relay::{RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

use crate::lanes::{Traffic, in_turn, use_lanes};

mod each_server {
    use super::*;
    on_each_server!(
        relays_that_join_and_leave_share_fairly_and_break_no_order,
        a_relay_that_never_gives_up_its_lanes_keeps_what_is_in_flight_there,
        lanes_that_a_restored_server_gives_to_another_relay_are_left_to_it,
    );
    use super::{
        a_relay_that_never_gives_up_its_lanes_keeps_what_is_in_flight_there,
        lanes_that_a_restored_server_gives_to_another_relay_are_left_to_it,
        relays_that_join_and_leave_share_fairly_and_break_no_order,
    };
}

on_each_store!(the_lanes_of_a_dead_relay_are_taken_over_and_the_crash_is_counted);

/// Returns the number of lanes of each owner, ascending.
async fn owned(db: &TestDb) -> Vec<i64> {
    let mut counts = Vec::new();
    for rank in 0..5 {
        let count = db
            .integer(&format!(
                "SELECT coalesce((SELECT count(*) FROM postrider_lanes WHERE owner IS NOT NULL \
                 GROUP BY owner ORDER BY owner LIMIT 1 OFFSET {rank}), 0)"
            ))
            .await;
        if count > 0 {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    counts
}

async fn until_owned(db: &TestDb, shares: &[i64]) {
    let what = format!("the lanes are shared as {shares:?}");
    eventually(&what, async || (owned(db).await == shares).then_some(())).await;
}

async fn relays_that_join_and_leave_share_fairly_and_break_no_order(db: TestDb) {
    use_lanes(&db).await;
    let (folder, pace) = (TempFolder::new(), Duration::from_micros(200));
    let sink = ScriptedSink::delivering().paced(pace).shared();
    let traffic = Traffic::start(&db, &sink);
    let first = RunningRelay::quick(&db, &folder, &sink);
    until_owned(&db, &[64]).await;
    let second = RunningRelay::quick(&db, &folder, &sink);
    until_owned(&db, &[32, 32]).await;
    let third = RunningRelay::quick(&db, &folder, &sink);
    until_owned(&db, &[21, 21, 22]).await;
    first.stop().await;
    until_owned(&db, &[32, 32]).await;
    second.stop().await;
    until_owned(&db, &[64]).await;
    let appended = traffic.stop().await;
    sink.until_delivered(appended).await;
    third.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(sink.log().delivered().len(), appended, "a hand-over delivers nothing twice");
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

/// The old owner's delivery hangs: the new relay gets the other lanes, and the event waits.
async fn a_relay_that_never_gives_up_its_lanes_keeps_what_is_in_flight_there(db: TestDb) {
    use_lanes(&db).await;
    let folder = TempFolder::new();
    let stuck = ScriptedSink::delivering().gated().shared();
    let ids = db.append(&in_turn(1, 3)).await;
    let first = RunningRelay::quick(&db, &folder, &stuck);
    stuck.until("a call is under way", |log| log.calls_now > 0).await;
    let free = ScriptedSink::delivering().shared();
    let second = RunningRelay::quick(&db, &folder, &free);
    eventually("the second has lanes", async || (owned(&db).await.len() == 2).then_some(())).await;
    assert_eq!(free.log().delivered(), [0; 0], "the key is still in flight at the first");
    stuck.open();
    stuck.until_delivered(1).await;
    eventually("all are delivered", async || (db.count("").await == 0).then_some(())).await;
    first.stop().await;
    second.stop().await;
    let (one, two) = (stuck.log().delivered(), free.log().delivered());
    assert_eq!([one, two].concat(), ids, "in order, each once, whoever delivered it");
}

/// A failover or a restored backup may undo the ownership of lanes, without lost ids that would
/// reveal it.
async fn lanes_that_a_restored_server_gives_to_another_relay_are_left_to_it(db: TestDb) {
    use_lanes(&db).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let alerts = RecordedAlerts::new(false);
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), Arc::clone(&sink) as _);
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).outbox(outbox);
    let relay = RunningRelay::start(relay.alert_channel(alerts.subscribed()));
    until_owned(&db, &[64]).await;
    let other = db.relay("other").await;
    let (store, lease) = (db.store.clone(), other.clone());
    let living = tokio::spawn(async move {
        while store.heartbeat(&lease, &[]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });

    let of_relay = format!(
        "(SELECT min(owner) FROM (SELECT owner FROM postrider_lanes) AS l WHERE owner <> '{}')",
        other.relay_id
    );
    db.execute(&format!("UPDATE postrider_lanes SET owner = '{}' WHERE lane < 32", other.relay_id))
        .await;
    alerts.until("went back to an earlier state").await;
    let ids = db.append(&in_turn(200, 1)).await;
    let lane = match db.store.kind() {
        StoreKind::Postgres => "postrider_lane(aggregate_type, aggregate_id)",
        StoreKind::Mysql | StoreKind::Sqlite => "lane",
    };
    let theirs = db.count(&format!(" WHERE {lane} < 32")).await;
    assert!(theirs > 0);
    let kept = || async { (db.count("").await == theirs).then_some(()) };
    eventually("its own lanes are delivered", kept).await;

    db.execute(&format!("UPDATE postrider_lanes SET owner = {of_relay}")).await;
    sink.until_delivered(ids.len()).await;
    living.abort();
    relay.stop().await;
    assert_eq!(sink.log().delivered().len(), ids.len(), "each once");
}

async fn the_lanes_of_a_dead_relay_are_taken_over_and_the_crash_is_counted(db: TestDb) {
    use_lanes(&db).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let ids = db.append(&in_turn(5, 10)).await;
    let dead = db.relay("0-dead").await;
    assert_eq!(db.store.take_lanes(&db.outbox, &dead, 64).await.unwrap().len(), 64);
    let config = RelayConfig { lease: Duration::from_secs(1), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), Arc::clone(&sink) as _);
    let relay = RunningRelay::on(&db.store, config, outbox);
    sink.until_delivered(ids.len()).await;
    let crashes = "SELECT count(*) FROM postrider_lanes WHERE crash_count > 0";
    eventually("the crash is forgotten when what was in flight is behind", async || {
        (db.integer(crashes).await == 0).then_some(())
    })
    .await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(db.count("").await, 0);
}
