//! Changes of the claim mode under traffic.

use std::time::Duration;

use postrider_relay::{OutboxConfig, Relay};
use postrider_store::{ClaimMode, Share};
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_store,
    relay::{RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio_util::sync::CancellationToken;

use crate::lanes::{Traffic, in_turn};

on_each_store!(
    a_change_of_mode_under_traffic_loses_nothing_and_delivers_nothing_twice,
    a_relay_configured_for_another_mode_refuses_to_start,
    a_relay_configured_for_the_old_mode_stops_serving_and_says_so,
    shares_of_the_rows_are_disjoint_and_complete,
);

async fn a_change_of_mode_under_traffic_loses_nothing_and_delivers_nothing_twice(db: TestDb) {
    let (folder, pace) = (TempFolder::new(), Duration::from_micros(300));
    let sink = ScriptedSink::delivering().paced(pace).shared();
    let relays = [(); 2].map(|()| RunningRelay::quick(&db, &folder, &sink));
    let traffic = Traffic::start(&db, &sink);
    for (claim, delivered) in
        [(ClaimMode::Lanes, 300), (ClaimMode::Rows, 700), (ClaimMode::Lanes, 1_100)]
    {
        sink.until_delivered(delivered).await;
        db.store.set_mode(&db.outbox, claim, "olga").await.unwrap();
    }
    let appended = traffic.stop().await;
    sink.until_delivered(appended).await;
    // In the last mode, order is kept.
    let from = sink.log().delivered().len();
    eventually("all are settled", async || (db.count("").await == 0).then_some(())).await;
    let lanes = "SELECT count(*) FROM postrider_lanes WHERE owner IS NOT NULL";
    eventually("lanes have owners", async || (db.integer(lanes).await == 64).then_some(())).await;
    db.append(&in_turn(10, 20)).await;
    sink.until_delivered(appended + 200).await;
    for relay in relays {
        relay.stop().await;
    }
    let log = sink.log();
    assert_eq!(log.delivered().len(), appended + 200, "each once");
    let late: Vec<i64> = log.out_of_order();
    assert!(late.iter().all(|id| !log.delivered()[from..].contains(id)), "{late:?}");
    db.assert_balanced().await;
}

async fn a_relay_configured_for_another_mode_refuses_to_start(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let outbox = OutboxConfig {
        claim: Some(ClaimMode::Lanes),
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink)
    };
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).outbox(outbox);
    let error = relay.run(CancellationToken::new()).await.unwrap_err().to_string();
    assert!(error.contains("claim mode `rows`"), "{error}");
    assert!(error.contains("postrider outbox set-claim orders lanes"), "{error}");
}

async fn a_relay_configured_for_the_old_mode_stops_serving_and_says_so(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let alerts = RecordedAlerts::new(false);
    let outbox = OutboxConfig {
        claim: Some(ClaimMode::Rows),
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).outbox(outbox);
    let stubborn = RunningRelay::start(relay.alert_channel(alerts.subscribed()));
    db.append_orders(3).await;
    sink.until_delivered(3).await;
    db.store.set_mode(&db.outbox, ClaimMode::Lanes, "olga").await.unwrap();
    alerts.until("Outbox orders is not served by this relay").await;
    // Another relay, which follows the database, does not have to wait for it.
    let other = ScriptedSink::delivering().shared();
    let willing = RunningRelay::quick(&db, &folder, &other);
    db.append_orders(5).await;
    other.until_delivered(5).await;
    stubborn.stop().await;
    willing.stop().await;
    assert_eq!(sink.log().delivered().len(), 3);
}

async fn shares_of_the_rows_are_disjoint_and_complete(db: TestDb) {
    let folder = TempFolder::new();
    let sinks = [(); 3].map(|()| ScriptedSink::delivering().shared());
    let ids = db.append_orders(60).await;
    let mut relays = Vec::new();
    for (index, sink) in (0..).zip(&sinks) {
        let outbox = OutboxConfig {
            share: Share { of: 3, index },
            ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
        };
        relays.push(RunningRelay::on(&db.store, quick_config(&folder), outbox));
    }
    eventually("all are delivered", async || (db.count("").await == 0).then_some(())).await;
    for relay in relays {
        relay.stop().await;
    }
    let mut delivered = Vec::new();
    for (index, sink) in (0..).zip(&sinks) {
        let taken = sink.log().delivered();
        assert!(taken.iter().all(|id| id % 3 == index), "share {index}: {taken:?}");
        delivered.extend(taken);
    }
    delivered.sort_unstable();
    assert_eq!(delivered, ids, "each once");
}
