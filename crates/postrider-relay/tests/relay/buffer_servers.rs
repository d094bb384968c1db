//! Buffers on different Redis setups: replicas, eviction, persistence, wrong keys.

use std::path::Path;
use std::time::Duration;

use postrider::buffer::{Buffer, BufferError};
use postrider_relay::{BufferConfig, Durability, Relay};
use postrider_store::StoreKind;
use postrider_testkit::{
    FaultProxy, PrivateServer, TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually,
    relay::{RunningRelay, quick_config},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// After a failover the counts would be in the buffer again, and would be counted twice.
#[tokio::test]
async fn a_batch_that_no_replica_has_is_not_saved_before_one_has_it() {
    let name = "a_batch_that_no_replica_has_is_not_saved_before_one_has_it";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(master) = PrivateServer::of("redis", "REDIS_URL", name).await else { return };
    let replica = PrivateServer::of("redis", "REDIS_URL", name).await.unwrap();
    let (test, mirror) =
        (TestBuffer::on(&db, &master.url).await, TestBuffer::on(&db, &replica.url).await);
    let address = master.url.trim_start_matches("redis://").trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').unwrap();
    let _: String = mirror.ask(&["REPLICAOF", host, port]).await;
    eventually("the replica is there", async || {
        let info: String = test.ask(&["INFO", "replication"]).await;
        info.contains("state=online").then_some(())
    })
    .await;
    let folder = TempFolder::new();
    let mut settings = test.settings();
    settings.wait_timeout = Duration::from_millis(50);
    let relay = Relay::new(db.store.clone(), quick_config(&folder));
    let relay = RunningRelay::start(relay.buffer(test.config_of(settings)));
    test.buffer.increment("a", 1).await.unwrap();
    test.until_empty().await;
    assert_eq!(saved(&db).await, 1);
    replica.kill().await;
    test.buffer.increment("a", 2).await.unwrap();
    let look = eventually("a batch waits", async || {
        let look = test.buffer.look().await.unwrap();
        (!look.batches.is_empty()).then_some(look)
    })
    .await;
    let id = look.batches[0].id;
    // The worker has asked for it again since: only that worker takes the batch over.
    let asked = async || test.ask::<String>(&["INFO", "commandstats"]).await;
    let waits = |stats: &str| stats.lines().filter(|l| l.starts_with("cmdstat_wait")).count();
    eventually("the worker waits for replicas", async || (waits(&asked().await) > 0).then_some(()))
        .await;
    assert!(db.store.batch_states(&[id]).await.unwrap().is_empty(), "undecided");
    assert_eq!(saved(&db).await, 1);
    replica.restart().await;
    let _: String = mirror.ask(&["REPLICAOF", host, port]).await;
    test.until_empty().await;
    assert_eq!(saved(&db).await, 3);
    relay.stop().await;
    test.assert_balanced(&db).await;
}

/// A replica that no longer follows may have been promoted, with the counts in its hash: what the
/// old master gives away now would be saved a second time from there.
#[tokio::test]
async fn a_master_whose_replica_left_does_not_save_alone() {
    let name = "a_master_whose_replica_left_does_not_save_alone";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(pair) = Pair::start(name, &db).await else { return };
    let worker = Buffer::new(pair.master.settings()).unwrap();
    worker.check().await.unwrap();
    worker.increment("a", 1).await.unwrap();
    assert!(worker.move_batch(Uuid::new_v4(), "me", 10).await.unwrap().confirmed);
    worker.increment("b", 5).await.unwrap();
    pair.promote().await;
    eventually("the master is alone", async || {
        let info: String = pair.master.ask(&["INFO", "replication"]).await;
        info.contains("connected_slaves:0").then_some(())
    })
    .await;
    worker.check().await.unwrap();
    let batch = worker.move_batch(Uuid::new_v4(), "me", 10).await.unwrap();
    assert_eq!(batch.fields, [(b"b".to_vec(), b"5".to_vec())]);
    assert!(!batch.confirmed, "the promoted replica has these counts in its hash");
}

/// Kills the master while batches are moved and saved, and promotes its replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_in_the_middle_saves_each_count_once() {
    let name = "a_failover_in_the_middle_saves_each_count_once";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(pair) = Pair::start(name, &db).await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&pair.master.url).await;
    let mut settings = pair.master.settings();
    (settings.url, settings.wait_timeout) = (url, Duration::from_millis(50));
    let (counts, fields_max) = (1_000, 5);
    let fields: Vec<String> = (0..counts).map(|number| format!("post-{number}")).collect();
    let by_one: Vec<(&str, i64)> = fields.iter().map(|field| (field.as_str(), 1)).collect();
    pair.master.buffer.increment_all(&by_one).await.unwrap();
    pair.until_in_step().await;
    let folder = TempFolder::new();
    let config = BufferConfig { fields_max, ..pair.master.config_of(settings) };
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).buffer(config);
    let relay = RunningRelay::start(relay);
    eventually("it saves", async || (saved(&db).await > 0).then_some(())).await;
    pair.servers[0].kill().await;
    assert!(saved(&db).await < counts, "it was in the middle");
    pair.promote().await;
    proxy.lead_to(address(&pair.replica));
    // The promoted server waits for a replica of its own.
    pair.servers[0].restart().await;
    follow(&pair.master, &pair.replica).await;
    pair.replica.until_empty().await;
    assert_eq!(saved(&db).await, counts, "none is lost, and none is saved twice");
    relay.stop().await;
    pair.replica.assert_balanced(&db).await;
}

/// A master and its replica, and the same buffer on both.
struct Pair {
    servers: [PrivateServer; 2],
    master: TestBuffer,
    replica: TestBuffer,
}

impl Pair {
    async fn start(test: &str, db: &TestDb) -> Option<Self> {
        let master = PrivateServer::of("redis", "REDIS_URL", test).await?;
        let replica = PrivateServer::of("redis", "REDIS_URL", test).await?;
        let on_master = TestBuffer::on(db, &master.url).await;
        let on_replica = on_master.elsewhere(&replica.url);
        follow(&on_replica, &on_master).await;
        Some(Self { servers: [master, replica], master: on_master, replica: on_replica })
    }

    async fn promote(&self) {
        let _: String = self.replica.ask(&["REPLICAOF", "NO", "ONE"]).await;
    }

    /// Waits until the replica has everything.
    async fn until_in_step(&self) {
        let fields = async |buffer: &TestBuffer| buffer.buffer.look().await.unwrap().fields;
        let wanted = fields(&self.master).await;
        let same = async || (fields(&self.replica).await == wanted).then_some(());
        eventually("the replica has everything", same).await;
    }
}

fn address(server: &TestBuffer) -> &str {
    server.url.trim_start_matches("redis://").trim_end_matches('/')
}

/// Makes a server the replica of another one.
async fn follow(replica: &TestBuffer, master: &TestBuffer) {
    let (host, port) = address(master).rsplit_once(':').unwrap();
    let _: String = replica.ask(&["REPLICAOF", host, port]).await;
    eventually("the replica is in step", async || {
        let info: String = replica.ask(&["INFO", "replication"]).await;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

/// A machine that crashes loses what Redis has written but not synced to disk: here a move. The
/// counts are then in the buffer again, and would be saved twice if they had been saved before.
#[tokio::test]
async fn a_move_that_a_crash_of_the_machine_undoes_is_saved_once() {
    let name = "a_move_that_a_crash_of_the_machine_undoes_is_saved_once";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(server) = PrivateServer::of("redis-new", "REDIS_NEW_URL", name).await else { return };
    let test = TestBuffer::on(&db, &server.url).await;
    let set = async |name: &str, value: &str| {
        let _: String = test.ask(&["CONFIG", "SET", name, value]).await;
    };
    set("appendfsync", "always").await;
    test.buffer.increment("a", 1_000).await.unwrap();
    // From here on nothing is synced to disk: while a snapshot is written, Redis does not fsync.
    set("appendfsync", "everysec").await;
    set("no-appendfsync-on-rewrite", "yes").await;
    set("rdb-key-save-delay", "60000000").await;
    let _: String = test.ask(&["BGSAVE"]).await;
    let (file, on_disk) = (server.data().join("appendonlydir"), server.data().join("on-disk"));
    copy_folder(&file, &on_disk);

    let mut settings = test.settings();
    (settings.wait_timeout, settings.timeout) =
        (Duration::from_millis(50), Duration::from_millis(600));
    let folder = TempFolder::new();
    let relay = Relay::new(db.store.clone(), quick_config(&folder));
    let relay = RunningRelay::start(relay.buffer(test.config_of(settings)));
    eventually("the batch has waited for the disk, or was saved", async || {
        let stats: String = test.ask(&["INFO", "commandstats"]).await;
        (calls(&stats, "waitaof") >= 2 || saved(&db).await > 0).then_some(())
    })
    .await;
    server.kill().await;
    std::fs::remove_dir_all(&file).unwrap();
    std::fs::rename(&on_disk, &file).unwrap();
    server.restart().await;
    test.until_empty().await;
    assert_eq!(saved(&db).await, 1_000);
    relay.stop().await;
    test.assert_balanced(&db).await;
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Returns how often the server received a command.
fn calls(stats: &str, command: &str) -> u64 {
    let start = format!("cmdstat_{command}:calls=");
    let count = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// The relay says what is wrong, and starts only if it is configured to accept that.
#[tokio::test]
async fn a_redis_that_evicts_or_does_not_persist_is_refused() {
    let name = "a_redis_that_evicts_or_does_not_persist_is_refused";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(server) = PrivateServer::of("redis", "REDIS_URL", name).await else { return };
    let test = TestBuffer::on(&db, &server.url).await;
    let folder = TempFolder::new();
    let start = async |config: BufferConfig| {
        let relay = Relay::new(db.store.clone(), quick_config(&folder)).buffer(config);
        let stop = CancellationToken::new();
        stop.cancel();
        relay.run(stop).await
    };
    start(test.config()).await.expect("as dev/services sets it up");
    let set = async |name: &str, value: &str| {
        let _: String = test.ask(&["CONFIG", "SET", name, value]).await;
    };
    set("maxmemory", "100mb").await;
    set("maxmemory-policy", "allkeys-lru").await;
    let error = start(test.config()).await.unwrap_err().to_string();
    assert!(error.contains("evict") && error.contains(test.buffer.name()), "{error}");
    set("maxmemory-policy", "noeviction").await;
    set("appendonly", "no").await;
    let error = start(test.config()).await.unwrap_err().to_string();
    assert!(error.contains("does not persist") && error.contains("durability"), "{error}");
    start(BufferConfig { durability: Durability::Warn, ..test.config() }).await.unwrap();
    set("save", "3600 1").await;
    let error = start(test.config()).await.unwrap_err().to_string();
    assert!(error.contains("snapshots only") && error.contains("durability"), "{error}");
    start(BufferConfig { durability: Durability::Warn, ..test.config() }).await.unwrap();
}

/// Scripts check everything before they write, so a wrong key changes nothing.
#[tokio::test]
async fn a_key_of_another_kind_is_refused_and_nothing_is_changed() {
    let name = "a_key_of_another_kind_is_refused_and_nothing_is_changed";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", name).await else { return };
    let (buffer, key) = (&test.buffer, test.buffer.key().to_owned());
    buffer.increment("a", 5).await.unwrap();
    let (id, ledger) = (Uuid::new_v4(), format!("{key}:ledger"));
    let _: String = test.ask(&["SET", &ledger, "a string"]).await;
    let error = buffer.move_batch(id, "me", 10).await.unwrap_err();
    assert!(matches!(&error, BufferError::Refused(text) if text.contains(&ledger)), "{error}");
    let _: i64 = test.ask(&["DEL", &ledger]).await;
    let taken = format!("{key}:sync:{id}");
    let _: i64 = test.ask(&["HSET", &taken, "b", "9"]).await;
    let error = buffer.move_batch(id, "me", 10).await.unwrap_err();
    assert!(error.to_string().contains("not overwritten"), "{error}");
    let _: i64 = test.ask(&["HSET", &ledger, "moved", "many"]).await;
    let error = buffer.move_batch(Uuid::new_v4(), "me", 10).await.unwrap_err();
    assert!(error.to_string().contains("moved = many"), "{error}");
    let left: String = test.ask(&["HGET", &key, "a"]).await;
    assert_eq!(left, "5");
    let _: i64 = test.ask(&["DEL", &ledger]).await;
    let empty = buffer.move_batch(Uuid::new_v4(), "me", 1).await.unwrap();
    assert_eq!(empty.fields.len(), 1);
    let empty = buffer.move_batch(Uuid::new_v4(), "me", 1).await.unwrap();
    assert!(empty.fields.is_empty(), "an absent buffer is an empty batch");
    assert_eq!(buffer.look().await.unwrap().batches.len(), 1, "of which nothing is kept");
}

/// A count that does not fit into 64 bits is refused when it is added.
#[tokio::test]
async fn a_count_that_would_overflow_is_refused_by_name() {
    let name = "a_count_that_would_overflow_is_refused_by_name";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", name).await else { return };
    test.buffer.increment("a", i64::MAX).await.unwrap();
    let error = test.buffer.increment("a", 1).await.unwrap_err();
    assert!(matches!(error, BufferError::Overflow(_)), "{error}");
    let error = test.buffer.increment_all(&[("b", 1), ("a", 1)]).await.unwrap_err();
    assert!(matches!(error, BufferError::Overflow(_)), "{error}");
    assert_eq!(test.buffer.look().await.unwrap().fields, 1, "all or none");
}
