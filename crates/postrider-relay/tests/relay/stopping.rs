//! A stop finishes what is in flight, or releases it; nothing is left `PROCESSING`.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{OutboxConfig, Relay, RelayConfig};
use postrider_store::{ConnectOptions, connect};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb, eventually, on_each_server, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

on_each_store!(
    a_stop_finishes_what_is_in_flight,
    a_stop_under_load_leaves_nothing_held,
    the_stop_deadline_gives_back_what_hangs,
    a_relay_that_is_dropped_gives_back_what_it_holds,
    a_sink_that_outboxes_share_is_closed_once,
);

mod silent_database {
    use super::*;
    on_each_server!(a_stop_ends_also_when_the_database_is_silent);
}

const HELD: &str = "SELECT count(*) FROM orders_outbox WHERE status = 'PROCESSING'";
const RELAYS: &str = "SELECT count(*) FROM postrider_relays";

async fn a_stop_finishes_what_is_in_flight(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    db.append_orders(10).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until("a batch is in flight", |log| log.calls_now == 1).await;
    relay.ask_to_stop();
    sink.open();
    relay.stop().await;
    db.append_orders(1).await;
    assert_eq!(sink.log().delivered().len(), 10, "what was in flight");
    assert_eq!((db.count("").await, db.integer(HELD).await), (1, 0));
    assert_eq!((db.integer(RELAYS).await, sink.log().closed), (0, 1));
    db.assert_balanced().await;
}

async fn a_stop_under_load_leaves_nothing_held(db: TestDb) {
    let folder = TempFolder::new();
    db.append_orders(400).await;
    let mut rounds = 0;
    while db.count("").await > 0 {
        let sink = ScriptedSink::delivering().paced(Duration::from_millis(1)).shared();
        let relay = RunningRelay::quick(&db, &folder, &sink);
        let enough = if rounds < 3 { 30 } else { usize::try_from(db.count("").await).unwrap() };
        sink.until("some are delivered", |log| log.answers.len() >= enough.min(400)).await;
        relay.stop().await;
        assert_eq!(db.integer(HELD).await, 0);
        assert_eq!(db.integer(RELAYS).await, 0);
        rounds += 1;
    }
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().delivered, 400);
    db.assert_balanced().await;
}

async fn the_stop_deadline_gives_back_what_hangs(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(|_, _| Act::Hang).shared());
    let ids = db.append_orders(3).await;
    let stop_timeout = Duration::from_millis(200);
    let config = RelayConfig { stop_timeout, ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    sink.until("the sink hangs", |log| log.calls_now == 1).await;
    relay.stop().await;
    for id in ids {
        assert_eq!(db.column(id, "status").await.as_deref(), Some("PENDING"));
        assert_eq!(db.column(id, "retry_count").await.as_deref(), Some("0"));
    }
    assert_eq!((db.integer(RELAYS).await, sink.log().calls_now), (0, 0));
    db.assert_balanced().await;
}

/// An embedding program may drop the future instead of stopping it: no part keeps running.
async fn a_relay_that_is_dropped_gives_back_what_it_holds(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    db.append_orders(3).await;
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder)).outbox(outbox);
    let task = tokio::spawn(relay.run(CancellationToken::new()));
    sink.until("a batch is in flight", |log| log.calls_now == 1).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    eventually("the rows are given back", async || (db.integer(HELD).await == 0).then_some(()))
        .await;
    let heartbeat = "SELECT max(heartbeat) FROM postrider_relays";
    eventually("its heartbeat stops", async || {
        let before = db.integer(heartbeat).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        (db.integer(heartbeat).await == before).then_some(())
    })
    .await;
    assert_eq!((db.count("").await, sink.log().answers.len()), (3, 0));
}

async fn a_sink_that_outboxes_share_is_closed_once(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let second = db.add_outbox(postrider_store::Dedupe::default()).await;
    let config = |outbox| OutboxConfig::new(outbox, quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(config(db.outbox.clone()))
        .outbox(config(second));
    let relay = RunningRelay::start(relay);
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    relay.stop().await;
    assert_eq!(sink.log().closed, 1);
}

/// A process manager does not wait forever: a silent database must not delay the stop. The relay
/// stays on the list, so that another one notices and recovers what it held.
async fn a_stop_ends_also_when_the_database_is_silent(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    db.append_orders(3).await;
    let stop_timeout = Duration::from_millis(200);
    let config = RelayConfig { stop_timeout, ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&store, config, outbox);
    sink.until("a batch is in flight", |log| log.calls_now == 1).await;
    proxy.blackhole();
    sink.open();
    let started = Instant::now();
    relay.stop().await;
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(db.integer(RELAYS).await, 1, "others must see it die");
    assert_eq!(db.integer(HELD).await, 3, "and recover what it held");
}
