//! Everything at once: writers, a database that becomes unreachable, workers that are killed, a
//! slot that moves. The sum in the table must be the sum that was written.

use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::Buffer;
use postrider_store::{ConnectOptions, Database, StoreKind};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually,
    relay::quick_config,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

const WRITERS: i64 = 8;
/// Increments per writer: 200,000 in total, or as many as the variable `POSTRIDER_BUFFER_STORM`
/// says.
const EACH: i64 = 25_000;
const FIELDS: i64 = 500;
/// How long the database is unreachable.
const AWAY: Duration = Duration::from_secs(10);

fn each() -> i64 {
    let each = std::env::var("POSTRIDER_BUFFER_STORM").ok();
    each.and_then(|text| text.parse::<i64>().ok()).map_or(EACH, |all| all / WRITERS)
}

/// Starts writers with a connection each; returns the sum that they wrote.
fn write(test: &TestBuffer) -> JoinHandle<i64> {
    let buffers: Vec<_> = (0..WRITERS).map(|_| Buffer::new(test.settings()).unwrap()).collect();
    tokio::spawn(async move {
        let mut writers = JoinSet::new();
        for (writer, buffer) in (0..WRITERS).zip(buffers) {
            writers.spawn(async move {
                let mut sum = 0;
                for n in 0..each() {
                    let by = n % 3 + 1;
                    let field = format!("post-{}", (n * 7 + writer) % FIELDS);
                    buffer.increment(&field, by).await.unwrap();
                    sum += by;
                }
                sum
            });
        }
        writers.join_all().await.into_iter().sum()
    })
}

/// A relay that can be killed: its tasks end where they are, and nothing is cleaned up.
struct Killable {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Killable {
    /// Starts it in a runtime of its own, so that everything that it spawned dies with it.
    fn start(test: &TestBuffer, url: &str, folder: &TempFolder) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (settings, config) = (test.settings(), quick_config(folder));
        let mut buffer = test.config_of(settings);
        buffer.fields_max = 200;
        let url = url.to_owned();
        runtime.spawn(async move {
            let options = ConnectOptions { connections_max: 3, create: false };
            // The database may be unreachable at this moment.
            let store: Arc<dyn Database> = loop {
                match postrider_store::connect(&url, &options).await {
                    Ok(store) => break store,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            let relay = postrider_relay::Relay::new(store, config).buffer(buffer);
            relay.run(CancellationToken::new()).await
        });
        Self { runtime: Some(runtime) }
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn until_moved(test: &TestBuffer, entries: u64) {
    eventually("batches are moved", async || {
        (test.buffer.look().await.ok()?.ledger.moved >= entries).then_some(())
    })
    .await;
}

async fn storm(kind: StoreKind, variable: &str, name: &str, moves_slot: bool) {
    let Some(db) = TestDb::open(kind, name).await else { return };
    let Some(test) = TestBuffer::open(&db, variable, name).await else { return };
    let folder = TempFolder::new();
    let (proxy, url) = match kind {
        StoreKind::Sqlite => (None, db.url.clone()),
        StoreKind::Postgres | StoreKind::Mysql => {
            let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
            (Some(proxy), url)
        }
    };
    let mut workers: Vec<_> = (0..2).map(|_| Killable::start(&test, &url, &folder)).collect();
    let writing = write(&test);
    until_moved(&test, 1_000).await;
    let faults = async {
        // Killed at any point, in turn, three times each.
        for round in 0..6 {
            workers[round % 2].kill();
            let moved = test.buffer.look().await.unwrap().ledger.moved;
            workers[round % 2] = Killable::start(&test, &url, &folder);
            until_moved(&test, moved + 200).await;
        }
        if let Some(proxy) = &proxy {
            proxy.cut();
            tokio::time::sleep(AWAY).await;
            proxy.pass();
        }
    };
    let disturbing = async {
        while moves_slot && !writing.is_finished() {
            move_slot(&test).await;
        }
    };
    tokio::join!(faults, disturbing);
    let written = writing.await.unwrap();
    let look = test.until_empty().await;
    assert_eq!(saved(&db).await, written, "{look:?}");
    for mut worker in workers {
        worker.kill();
    }
    test.assert_balanced(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_saved_is_the_sum_written_on_postgres() {
    let name = "the_sum_saved_is_the_sum_written_on_postgres";
    storm(StoreKind::Postgres, "REDIS_URL", name, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_saved_is_the_sum_written_on_mysql() {
    let name = "the_sum_saved_is_the_sum_written_on_mysql";
    storm(StoreKind::Mysql, "REDIS_URL", name, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_saved_is_the_sum_written_on_sqlite() {
    let name = "the_sum_saved_is_the_sum_written_on_sqlite";
    storm(StoreKind::Sqlite, "REDIS_URL", name, false).await;
}

/// With a cluster whose nodes move the buffer's slot around all the time.
#[tokio::test(flavor = "multi_thread")]
async fn the_sum_saved_is_the_sum_written_while_a_cluster_moves_the_slot() {
    let name = "the_sum_saved_is_the_sum_written_while_a_cluster_moves_the_slot";
    storm(StoreKind::Postgres, "REDIS_CLUSTER_URL", name, true).await;
}

/// Moves the buffer's slot to the next node, key by key, as `redis-cli --cluster reshard` does.
async fn move_slot(test: &TestBuffer) {
    let nodes: Vec<&str> = test.url.strip_prefix("redis://").unwrap().split(',').collect();
    let ask = async |node: &str, words: &[&str]| {
        let client = redis::Client::open(format!("redis://{node}")).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let asked = redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await;
        asked.unwrap_or_else(|error: redis::RedisError| panic!("{words:?}: {error}"))
    };
    let slot: redis::Value = ask(nodes[0], &["CLUSTER", "KEYSLOT", test.buffer.key()]).await;
    let redis::Value::Int(slot) = slot else { panic!("{slot:?}") };
    let slot = slot.to_string();
    let mut ids = Vec::new();
    let mut from = 0;
    for (index, node) in nodes.iter().enumerate() {
        let id: redis::Value = ask(node, &["CLUSTER", "MYID"]).await;
        let redis::Value::BulkString(id) = id else { panic!("{id:?}") };
        ids.push(String::from_utf8(id).unwrap());
        // Only the owner of the slot answers without a redirect.
        let client = redis::Client::open(format!("redis://{node}")).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let exists: redis::RedisResult<i64> =
            redis::cmd("EXISTS").arg(test.buffer.key()).query_async(&mut connection).await;
        if exists.is_ok() {
            from = index;
        }
    }
    let to = (from + 1) % nodes.len();
    let (host, port) = nodes[to].rsplit_once(':').unwrap();
    let _ = ask(nodes[to], &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]).await;
    let _ = ask(nodes[from], &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]).await;
    loop {
        let keys = ask(nodes[from], &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await;
        let redis::Value::Array(keys) = keys else { panic!("{keys:?}") };
        let Some(redis::Value::BulkString(key)) = keys.into_iter().next() else { break };
        let key = String::from_utf8(key).unwrap();
        let _ = ask(nodes[from], &["MIGRATE", host, port, &key, "0", "5000"]).await;
    }
    for node in [nodes[to], nodes[from]] {
        let _ = ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]).await;
    }
}
