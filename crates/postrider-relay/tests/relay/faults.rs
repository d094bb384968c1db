//! The network between a relay and its database fails.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{OutboxConfig, Preset, RelayConfig};
use postrider_store::{ConnectOptions, Database, OnSuccess, StoreKind, connect};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_server,
    relay::{RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_server!(
    a_frozen_relay_is_fenced_and_comes_back_under_another_name,
    a_claim_whose_answer_is_lost_is_given_back_and_delivered,
    a_suspect_does_not_hide_a_claim_whose_answer_was_lost,
    a_settle_whose_answer_is_lost_is_not_delivered_twice,
    a_row_that_is_changed_by_hand_in_flight_is_not_held_for_ever,
    an_outage_of_the_database_is_waited_through,
    answers_lost_at_random_lose_no_event,
);

const HELD: &str = "SELECT count(*) FROM orders_outbox WHERE status = 'PROCESSING'";
const HOUR: Duration = Duration::from_secs(3600);
/// Polls are 1.28 s apart by then.
const POLLS_ARE_RARE: Duration = Duration::from_millis(1_500);

/// Connects to the same database through a proxy, with pools of `connections` connections.
async fn through_a_proxy(db: &TestDb, connections: u32) -> (FaultProxy, Arc<dyn Database>) {
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let options = ConnectOptions { connections_max: connections, create: false };
    (proxy, connect(&url, &options).await.unwrap())
}

/// Configures a relay that sends nothing to the database by itself, so that the next request is the
/// intended one.
fn silent_config(folder: &TempFolder) -> RelayConfig {
    RelayConfig {
        lease: HOUR,
        heartbeat_every: HOUR,
        recover_every: HOUR,
        fold_every: HOUR,
        move_marked_every: HOUR,
        ..quick_config(folder)
    }
}

/// Returns bytes of the request that commits a claim or a settle. PostgreSQL does each in one
/// statement, which names the relay; MariaDB in a transaction.
fn commit_marker(db: &TestDb) -> &'static [u8] {
    match db.store.kind() {
        StoreKind::Postgres => b"@test-host",
        _ => b"COMMIT",
    }
}

async fn a_frozen_relay_is_fenced_and_comes_back_under_another_name(db: TestDb) {
    let folder = TempFolder::new();
    let config = || RelayConfig { lease: Duration::from_secs(3), ..quick_config(&folder) };
    let outbox = |sink: &Arc<ScriptedSink>| {
        OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let (proxy, store) = through_a_proxy(&db, 4).await;
    let frozen_sink = ScriptedSink::delivering().gated().shared();
    db.append_orders(10).await;
    let frozen = RunningRelay::on(&store, config(), outbox(&frozen_sink));
    frozen_sink.until("the batch is in flight", |log| log.calls_now == 1).await;
    let old_id = db.text("SELECT min(id) FROM postrider_relays").await.unwrap();

    proxy.blackhole();
    let other_sink = ScriptedSink::delivering().shared();
    let other = RunningRelay::on(&db.store, config(), outbox(&other_sink));
    other_sink.until_delivered(10).await;
    eventually("the other settled", async || (db.count("").await == 0).then_some(())).await;
    assert_eq!(db.integer("SELECT count(*) FROM orders_outbox_dlq").await, 0);

    // The frozen relay delivers as well, too late, and thaws: its settle changes nothing.
    frozen_sink.open();
    frozen_sink.until_delivered(10).await;
    proxy.pass();
    other.stop().await;
    let listed = "SELECT count(*) FROM postrider_relays WHERE id <> ".to_owned();
    eventually("it is registered under another name", async || {
        (db.integer(&format!("{listed}'{old_id}'")).await == 1).then_some(())
    })
    .await;
    db.append_orders(5).await;
    frozen_sink.until_delivered(15).await;
    frozen.stop().await;
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().delivered, 15, "each counted once");
    assert_eq!((db.count("").await, db.integer(HELD).await), (0, 0));
    db.assert_balanced().await;
}

/// A relay with one connection, on which all statements are prepared, that waits to be woken.
struct Quiet {
    proxy: FaultProxy,
    sink: Arc<ScriptedSink>,
    relay: RunningRelay,
    _folder: TempFolder,
}

async fn quiet_relay(db: &TestDb, heartbeat_every: Duration) -> Quiet {
    let folder = TempFolder::new();
    let sink = ScriptedSink::delivering().shared();
    let (proxy, store) = through_a_proxy(db, 1).await;
    let preset = Preset { idle_poll: HOUR, on_success: OnSuccess::Archive, ..quick_preset() };
    let outbox = OutboxConfig {
        batches_max: 1,
        ..OutboxConfig::new(db.outbox.clone(), preset, sink.clone())
    };
    let config = RelayConfig { heartbeat_every, ..silent_config(&folder) };
    let relay = RunningRelay::on(&store, config, outbox);
    for round in 1..=2 {
        db.append_orders(1).await;
        relay.waker.wake();
        sink.until_delivered(round).await;
    }
    eventually("both are settled", async || (db.count("").await == 0).then_some(())).await;
    tokio::time::sleep(POLLS_ARE_RARE).await;
    Quiet { proxy, sink, relay, _folder: folder }
}

/// A claim, a release and another claim raise the version by three. Repeated until the lost answer
/// is that of the intended claim, and not of a poll in between.
async fn a_claim_whose_answer_is_lost_is_given_back_and_delivered(db: TestDb) {
    let Quiet { proxy, sink, relay, _folder } = quiet_relay(&db, HOUR).await;
    let mut delivered = 2;
    eventually("a claim's answer is lost", async || {
        sink.shut();
        let lost = proxy.answers_lost();
        let mut tx = db.begin().await;
        let id = tx.append(&db.outbox, &order(9)).await.unwrap().id();
        proxy.lose_answer_to(commit_marker(&db));
        tx.commit().await.unwrap();
        relay.waker.wake();
        eventually("an answer is lost", async || (proxy.answers_lost() > lost).then_some(())).await;
        sink.until("it is in flight", |log| log.calls_now == 1).await;
        let version: i64 = db.column(id, "version").await.unwrap().parse().unwrap();
        sink.open();
        delivered += 1;
        sink.until_delivered(delivered).await;
        assert_eq!(sink.log().tries(id), 1);
        let settled = async || (db.count("").await == 0).then_some(());
        eventually("it is settled", settled).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        (version >= 3).then_some(())
    })
    .await;
    relay.stop().await;
    let archived = i64::try_from(delivered).unwrap();
    assert_eq!((db.count("").await, db.count("_archive").await), (0, archived));
    db.assert_balanced().await;
}

/// The suspect is due right after a claim whose answer is lost, so that the next claim is its own.
/// Five rounds, because now and then the lost answer is that of a poll or of a heartbeat.
async fn a_suspect_does_not_hide_a_claim_whose_answer_was_lost(db: TestDb) {
    let Quiet { proxy, sink, relay, _folder } = quiet_relay(&db, Duration::from_millis(50)).await;
    for round in 1..=5 {
        let mut tx = db.begin().await;
        let soon = order(9).deliver_after(Duration::from_millis(80));
        let suspect = tx.append(&db.outbox, &soon).await.unwrap().id();
        let becomes = format!("UPDATE orders_outbox SET crash_count = 2 WHERE id = {suspect}");
        tx.execute(&becomes).await.unwrap();
        for _ in 0..4 {
            let _ = tx.append(&db.outbox, &order(9)).await.unwrap();
        }
        tx.commit().await.unwrap();
        let lost = proxy.answers_lost();
        proxy.lose_answer_to(commit_marker(&db));
        relay.waker.wake();
        eventually("an answer is lost", async || (proxy.answers_lost() > lost).then_some(())).await;
        eventually("all are settled", async || (db.count("").await == 0).then_some(())).await;
        sink.until_delivered(2 + 5 * round).await;
        tokio::time::sleep(POLLS_ARE_RARE).await;
    }
    relay.stop().await;
    db.assert_balanced().await;
}

async fn a_settle_whose_answer_is_lost_is_not_delivered_twice(db: TestDb) {
    let Quiet { proxy, sink, relay, _folder } = quiet_relay(&db, HOUR).await;
    sink.shut();
    let id = db.append_orders(1).await[0];
    relay.waker.wake();
    sink.until("it is in flight", |log| log.calls_now == 1).await;
    proxy.lose_answer_to(commit_marker(&db));
    sink.open();
    eventually("the answer is lost", async || (proxy.answers_lost() == 1).then_some(())).await;
    assert_eq!(db.count("").await, 0, "the database did settle");
    db.append_orders(1).await;
    relay.waker.wake();
    sink.until_delivered(4).await;
    relay.stop().await;
    assert_eq!(sink.log().tries(id), 1, "not delivered again");
    assert_eq!((db.count("").await, db.count("_archive").await), (0, 4));
    db.assert_balanced().await;
}

/// A restart, as the relay sees it: all connections break, and new ones are refused for longer than
/// its lease.
async fn an_outage_of_the_database_is_waited_through(db: TestDb) {
    let (folder, pace) = (TempFolder::new(), Duration::from_millis(5));
    let sink = ScriptedSink::delivering().paced(pace).shared();
    let (proxy, store) = through_a_proxy(&db, 4).await;
    let config = RelayConfig { lease: Duration::from_secs(1), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&store, config, outbox);
    db.append_orders(200).await;
    sink.until_delivered(20).await;
    proxy.cut();
    // Nothing is waited for but time: the lease runs out on the clock of the relay alone.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    db.append_orders(50).await;
    proxy.pass();
    sink.until_delivered(250).await;
    relay.stop().await;
    assert_eq!((db.count("").await, db.count("_dlq").await, db.integer(HELD).await), (0, 0, 0));
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().delivered, 250);
    db.assert_balanced().await;
}

/// Twelve times, the answer to the next request is lost.
async fn answers_lost_at_random_lose_no_event(db: TestDb) {
    let folder = TempFolder::new();
    let sink = ScriptedSink::delivering().paced(Duration::from_millis(2)).shared();
    let (proxy, store) = through_a_proxy(&db, 4).await;
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&store, quick_config(&folder), outbox);
    for lost in 1..=12 {
        db.append_orders(25).await;
        match lost % 2 {
            0 => proxy.lose_next_answer(),
            _ => proxy.lose_answer_to(commit_marker(&db)),
        }
        eventually("an answer is lost", async || (proxy.answers_lost() >= lost).then_some(()))
            .await;
    }
    sink.until_delivered(300).await;
    relay.stop().await;
    assert_eq!((db.count("").await, db.count("_dlq").await, db.integer(HELD).await), (0, 0, 0));
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().delivered, 300);
    db.assert_balanced().await;
}

/// The contract forbids it, but object mappers that count versions do it. The settle does not find
/// the row, and the relay that holds it lives.
async fn a_row_that_is_changed_by_hand_in_flight_is_not_held_for_ever(db: TestDb) {
    let folder = TempFolder::new();
    let sink = ScriptedSink::delivering().shared();
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.shut();
    let id = db.append_orders(1).await[0];
    sink.until("it is in flight", |log| log.calls_now == 1).await;
    db.execute(&format!("UPDATE orders_outbox SET version = version + 1 WHERE id = {id}")).await;
    sink.open();
    eventually("it is settled", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(sink.log().tries(id), 2, "it is delivered again");
    db.assert_balanced().await;
}
