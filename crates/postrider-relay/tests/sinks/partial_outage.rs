//! A part of a server is down or full, and the rest of it is not: what waits spends no attempts, and
//! the others go on.

use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider::store::StoreKind;
use postrider_relay::sinks::{NatsSettings, NatsSink, RedisSettings, RedisSink};
use postrider_relay::{OutboxConfig, Preset, RouteSettings, Sink};
use postrider_testkit::relay::{RunningRelay, quick_config, quick_preset};
use postrider_testkit::sinks::{Destination, NatsDestination, RabbitDestination};
use postrider_testkit::{PrivateServer, TempFolder, TestDb, eventually};
use tokio::time::Instant;

/// Set it for a longer outage than a test has time for: `POSTRIDER_TEST_OUTAGE_SECONDS=600`.
const SECONDS_VARIABLE: &str = "POSTRIDER_TEST_OUTAGE_SECONDS";
/// Rounds of healthy traffic during an outage, at least.
const ROUNDS: usize = 30;
const ROUND: usize = 200;
const WAITING: usize = 100;
/// Event type of what is delivered throughout.
const HEALTHY: &str = "OrderPlaced";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_rabbitmq_queue() {
    let test = "partial_outage::rabbitmq";
    let Some(exchange) = RabbitDestination::shared(test).await else { return };
    exchange.add_full_queue("Full", 2 * WAITING).await;
    let (delivered, waited) = outage(test, exchange.sink(), "Full", async || {
        exchange.make_room("Full").await;
    })
    .await;
    assert_eq!(exchange.arrived().await.len(), delivered);
    assert_eq!(exchange.count_in("Full").await, waited);
    exchange.remove_queue("Full").await;
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_nats_stream() {
    let test = "partial_outage::nats";
    let Some(stream) = NatsDestination::shared(test).await else { return };
    let full = stream.add_full_stream().await;
    let route = RouteSettings {
        event_type: Some("Full".to_owned()),
        to: format!("{full}.{{event_type}}"),
        ..RouteSettings::default()
    };
    let settings = NatsSettings { routes: vec![route], ..stream.settings() };
    let sink = Arc::new(NatsSink::new(settings).unwrap());
    let (delivered, waited) = outage(test, sink, "Full", async || {
        stream.make_room(&full).await;
    })
    .await;
    assert_eq!(stream.arrived().await.len(), delivered);
    assert_eq!(stream.count_in(&full).await, waited);
    stream.remove_stream(&full).await;
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_without_one_of_its_nodes() {
    let test = "partial_outage::redis";
    let server = PrivateServer::of("redis-cluster", "REDIS_CLUSTER_URL", test).await;
    let Some(server) = server else { return };
    let nodes: Vec<String> =
        server.url.replace("redis://", "").split(',').map(String::from).collect();
    for node in &nodes {
        // The rest of the cluster goes on without the part that is down.
        let set = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        ask::<()>(node, &set).await.unwrap();
    }
    let mut on_last = None;
    for number in 0.. {
        let name = format!("type-{number}");
        if ask::<i64>(&nodes[2], &["XLEN", &name]).await.is_ok() {
            on_last = Some(name);
            break;
        }
    }
    let failing = on_last.unwrap();
    // One that is on another node.
    assert!(ask::<i64>(&nodes[2], &["XLEN", HEALTHY]).await.is_err(), "move it to another node");
    let settings = RedisSettings {
        timeout: Duration::from_secs(1),
        ..RedisSettings::new("streams", &server.url, "{event_type}")
    };
    let sink = Arc::new(RedisSink::new(settings).unwrap());
    drop(ask::<()>(&nodes[2], &["SHUTDOWN", "NOSAVE"]).await);
    let (delivered, waited) = outage(test, sink, &failing, async || {
        server.restart().await;
    })
    .await;
    let mut lengths = Vec::new();
    for (name, least) in [(HEALTHY, delivered), (failing.as_str(), waited)] {
        let mut length = 0;
        for node in &nodes {
            length = length.max(ask::<usize>(node, &["XLEN", name]).await.unwrap_or(0));
        }
        lengths.push((length, least));
    }
    // At least once: an answer that was lost brings an entry again.
    assert!(lengths.iter().all(|(length, least)| length >= least), "{lengths:?}");
}

async fn ask<T: redis::FromRedisValue>(node: &str, words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://{node}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
}

/// Answers how many healthy events were delivered, and how many others once it was repaired.
async fn outage(
    test: &str,
    sink: Arc<dyn Sink>,
    failing: &str,
    repair: impl AsyncFnOnce(),
) -> (usize, usize) {
    let db = TestDb::open(StoreKind::Postgres, test).await.expect("there is a database");
    let events = |event_type: &str, count: usize| -> Vec<NewEvent> {
        let event = |n| NewEvent::new("account", format!("key-{n}"), event_type, "{}");
        (0..count).map(event).collect()
    };
    let preset = Preset { batch: 100, idle_poll: Duration::from_millis(500), ..quick_preset() };
    let (folder, outbox) = (TempFolder::new(), OutboxConfig::new(db.outbox.clone(), preset, sink));
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    let mut rounds = 0;
    let healthy = format!(" WHERE event_type = '{HEALTHY}'");
    let mut round = async || {
        db.append(&events(HEALTHY, ROUND)).await;
        relay.waker.wake();
        rounds += 1;
        let delivered = async || (db.count(&healthy).await == 0).then_some(());
        eventually("the healthy part goes on", delivered).await;
    };
    let before = Instant::now();
    for _ in 0..10 {
        round().await;
    }
    let before = before.elapsed() / 10;
    db.append(&events(failing, WAITING)).await;
    let tried = " WHERE last_error IS NOT NULL";
    eventually("it is tried", async || (db.count(tried).await > 0).then_some(())).await;
    let asked = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let (started, mut during) = (Instant::now(), 0);
    while during < ROUNDS || asked.is_some_and(|s: u64| started.elapsed().as_secs() < s) {
        round().await;
        during += 1;
    }
    println!(
        "{test}: a round of {ROUND} events took {before:?} before the outage and {:?} in its {:?}",
        started.elapsed() / u32::try_from(during).unwrap(),
        started.elapsed()
    );
    for spent in [" WHERE retry_count > 0", "_attempts"] {
        assert_eq!(db.count(spent).await, 0, "attempts were spent: {spent}");
    }
    assert_eq!(db.count("_dlq").await, 0, "what waited became dead letters");
    assert_eq!(usize::try_from(db.count("").await).unwrap(), WAITING);
    repair().await;
    eventually("all is delivered", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(db.count("_dlq").await, 0);
    db.assert_balanced().await;
    (rounds * ROUND, WAITING)
}
