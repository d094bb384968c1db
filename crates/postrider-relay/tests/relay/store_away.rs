//! The database is unreachable, or its dead-letter table is locked: operators are alerted, and the
//! backup file has what waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Relay, RelayConfig, delivery::backup::read};
use postrider_store::{ConnectOptions, Database, Event, StoreKind, connect};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually, on_each_server,
    relay::{Act, RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_server!(
    dead_letters_that_wait_for_a_locked_table_are_in_the_file_once,
    dead_letters_that_wait_for_the_store_are_in_the_file_once,
    a_store_that_says_nothing_keeps_no_dead_letter_from_the_file,
    a_stop_leaves_no_waiting_dead_letter_without_a_copy,
    a_redis_that_is_away_is_told_and_so_is_its_return,
    a_start_waits_for_a_database_that_went_away,
    a_start_that_waits_for_its_database_can_be_stopped,
);

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(300);

fn rejecting() -> Arc<ScriptedSink> {
    ScriptedSink::scripted(|_: &Event, _| Act::reject("HTTP 422")).gated().shared()
}

struct Scene {
    folder: TempFolder,
    sink: Arc<ScriptedSink>,
    alerts: RecordedAlerts,
    relay: RunningRelay,
    proxy: FaultProxy,
    id: i64,
}

impl Scene {
    /// Starts with one event in flight, which will be rejected as soon as the sink opens.
    async fn start(db: &TestDb, change: impl Fn(RelayConfig) -> RelayConfig) -> Self {
        let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
        let options = ConnectOptions { connections_max: 8, create: false };
        let store: Arc<dyn Database> = connect(&url, &options).await.unwrap();
        let (folder, sink) = (TempFolder::new(), rejecting());
        let quick =
            RelayConfig { unreachable_after: SOON, backup_after: SOON, ..quick_config(&folder) };
        let id = db.append(&[NewEvent::new("order", "order-1", "Bad", "secret")]).await[0];
        let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
        let alerts = RecordedAlerts::new(false);
        let relay =
            Relay::new(store, change(quick)).outbox(outbox).alert_channel(alerts.subscribed());
        let relay = RunningRelay::start(relay);
        sink.until("the event is in flight", |log| log.calls_now == 1).await;
        Self { folder, sink, alerts, relay, proxy, id }
    }

    fn file(&self) -> PathBuf {
        quick_config(&self.folder).backup_folder.join("dead-letters.jsonl")
    }

    async fn until_filed(&self) {
        eventually("the file has the event", async || {
            let contents = read(&self.file()).ok()?;
            let ids: Vec<_> = contents.open.iter().map(|(_, event)| event.original_id).collect();
            (ids == [self.id]).then_some(())
        })
        .await;
        self.alerts.until("is in the backup file").await;
    }

    /// Waits until the table has the event and the file says so: one dead line and one closed line.
    async fn until_closed(&self, db: &TestDb) {
        eventually("the table has it", async || (db.count("_dlq").await == 1).then_some(())).await;
        eventually("the file says so", async || {
            (read(&self.file()).unwrap().closed == 1).then_some(())
        })
        .await;
        assert_eq!(lines(&self.file()), 2);
    }
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}

async fn dead_letters_that_wait_for_a_locked_table_are_in_the_file_once(db: TestDb) {
    let scene = Scene::start(&db, |config| config).await;
    let mut locking = db.begin().await;
    let lock = match db.store.kind() {
        StoreKind::Postgres => "LOCK TABLE orders_outbox_dlq IN ACCESS EXCLUSIVE MODE",
        _ => "LOCK TABLES orders_outbox_dlq WRITE",
    };
    locking.execute(lock).await.unwrap();
    scene.sink.open();
    scene.until_filed().await;
    assert_eq!(db.count("").await, 1, "the row keeps its place");

    if db.store.kind() == StoreKind::Mysql {
        locking.execute("UNLOCK TABLES").await.unwrap();
    }
    locking.commit().await.unwrap();
    scene.until_closed(&db).await;
    scene.relay.stop().await;
    assert_eq!(scene.sink.log().tries(scene.id), 1);
    db.assert_balanced().await;
}

async fn dead_letters_that_wait_for_the_store_are_in_the_file_once(db: TestDb) {
    let scene = Scene::start(&db, |config| config).await;
    scene.proxy.cut();
    scene.sink.open();
    scene.until_filed().await;
    let told = scene.alerts.until("The store has not answered").await;
    assert_eq!(told.kind, "store-unreachable");
    assert_eq!(db.count("").await, 1, "the row keeps its place");

    scene.proxy.pass();
    let over = scene.alerts.until_resolved("The store answers again").await;
    assert_eq!(over.kind, "store-unreachable");
    scene.until_closed(&db).await;
    scene.relay.stop().await;
    db.assert_balanced().await;
}

/// No error is returned either: the call itself hangs.
async fn a_store_that_says_nothing_keeps_no_dead_letter_from_the_file(db: TestDb) {
    let scene = Scene::start(&db, |config| RelayConfig { stop_timeout: SOON, ..config }).await;
    scene.proxy.blackhole();
    scene.sink.open();
    scene.until_filed().await;
    scene.alerts.until("The store has not answered").await;
    let file = scene.file();
    assert_eq!((lines(&file), db.count("").await), (1, 1));
    // Its connections stay silent; what it held is recovered like that of any dead relay.
    scene.relay.stop().await;
    assert_eq!(lines(&file), 1);
    db.assert_balanced().await;
}

async fn a_stop_leaves_no_waiting_dead_letter_without_a_copy(db: TestDb) {
    let late = |config| RelayConfig { backup_after: HOUR, stop_timeout: SOON, ..config };
    let scene = Scene::start(&db, late).await;
    scene.proxy.cut();
    scene.sink.open();
    scene.alerts.until("The store has not answered").await;
    let file = scene.file();
    assert!(!file.exists(), "it may still wait");
    scene.relay.stop().await;
    let contents = read(&file).unwrap();
    assert_eq!(contents.open.len(), 1);
    assert_eq!(contents.open[0].1.payload, "secret");
    assert_eq!(db.count("").await, 1, "and the row is where it was");
    db.assert_balanced().await;
}

async fn a_redis_that_is_away_is_told_and_so_is_its_return(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "store_away").await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&test.url).await;
    let mut settings = test.settings();
    settings.url = url;
    let (folder, alerts) = (TempFolder::new(), RecordedAlerts::new(false));
    let config = RelayConfig { unreachable_after: SOON, ..quick_config(&folder) };
    let relay = Relay::new(db.store.clone(), config)
        .buffer(test.config_of(settings))
        .alert_channel(alerts.subscribed());
    let relay = RunningRelay::start(relay);
    test.buffer.increment("a", 1).await.unwrap();
    eventually("it is saved", async || (saved(&db).await == 1).then_some(())).await;

    proxy.cut();
    let told = alerts.until("has not answered").await;
    assert_eq!(told.kind, format!("redis-unreachable/{}", test.buffer.name()));
    test.buffer.increment("a", 2).await.unwrap();
    proxy.pass();
    alerts.until_resolved("answers again").await;
    eventually("all is saved", async || (saved(&db).await == 3).then_some(())).await;
    relay.stop().await;
    test.assert_balanced(&db).await;
}

/// Returns a relay whose sessions are cut before its first request.
async fn cut_off(db: &TestDb) -> (FaultProxy, Arc<ScriptedSink>, RecordedAlerts, Relay) {
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    proxy.cut();
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let config = RelayConfig { unreachable_after: SOON, ..quick_config(&folder) };
    let alerts = RecordedAlerts::new(false);
    let relay = Relay::new(store, config).outbox(outbox).alert_channel(alerts.subscribed());
    (proxy, sink, alerts, relay)
}

async fn a_start_waits_for_a_database_that_went_away(db: TestDb) {
    let (proxy, sink, alerts, relay) = cut_off(&db).await;
    db.append_orders(1).await;
    let relay = RunningRelay::start(relay);
    let told = alerts.until("The store has not answered").await;
    assert_eq!(told.kind, "store-unreachable");
    proxy.pass();
    sink.until_delivered(1).await;
    alerts.until_resolved("The store answers again").await;
    relay.stop().await;
    db.assert_balanced().await;
}

async fn a_start_that_waits_for_its_database_can_be_stopped(db: TestDb) {
    let (_proxy, _sink, alerts, relay) = cut_off(&db).await;
    let relay = RunningRelay::start(relay);
    alerts.until("The store has not answered").await;
    relay.stop().await;
}
