//! A part of a server is down or full, and the rest is not: waiting events spend no attempts, and
//! the others keep their rate.
//!
//! Two outboxes deliver to the healthy part in turn: one does nothing else, the other also has
//! events that wait for the failing part. A busy machine slows both, so their rates are compared.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{
    OutboxConfig, Preset, RouteSettings, Sink,
    sinks::{
        ChatSettings, ChatSink, HttpSettings, HttpSink, KafkaSettings, KafkaSink, NatsSettings,
        NatsSink, RedisSettings, RedisSink,
    },
};
use postrider_store::{ClaimMode, StoreKind};
use postrider_testkit::{
    PrivateServer, TempFolder, TestDb, eventually,
    relay::{RunningRelay, quick_config, quick_preset},
    sinks::{
        Arrived, ChatDestination, Destination, HttpDestination, KafkaDestination, NatsDestination,
        RabbitDestination,
    },
};
use tokio::time::Instant;

/// Set it to measure: `POSTRIDER_TEST_OUTAGE_SECONDS=600` makes the outage that long and the rounds
/// larger, and checks the rate. Without it, a test only checks that everything continues.
const SECONDS_VARIABLE: &str = "POSTRIDER_TEST_OUTAGE_SECONDS";
/// Minimum number of rounds of healthy traffic during an outage.
const ROUNDS: u32 = 4;
/// Events per round, in a test and in a measurement.
const ROUND: (usize, usize) = (500, 4_000);
const WAITING: usize = 1_200;
/// Interval between rounds of a long outage: a broker keeps what it gets.
const PACE: Duration = Duration::from_secs(3);
/// Event type of the events that are delivered throughout.
const HEALTHY: &str = "OrderPlaced";
const FULL: &str = "Full";
/// Share of its rate that the outbox with the failing part must keep.
const RATE_KEPT_MIN: f64 = 0.9;
/// How much longer a round of the outbox alone may take during the outage than before it.
const BASELINE_SLOWDOWN_MAX: f64 = 1.5;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_rabbitmq_queue_in_rows() {
    a_full_rabbitmq_queue(ClaimMode::Rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_rabbitmq_queue_in_lanes() {
    a_full_rabbitmq_queue(ClaimMode::Lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_nats_stream_in_rows() {
    a_full_nats_stream(ClaimMode::Rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_nats_stream_in_lanes() {
    a_full_nats_stream(ClaimMode::Lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_topic_without_rights_in_rows() {
    a_kafka_topic_without_rights(ClaimMode::Rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_topic_without_rights_in_lanes() {
    a_kafka_topic_without_rights(ClaimMode::Lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_topic_with_too_few_replicas_in_rows() {
    a_kafka_topic_with_too_few_replicas(ClaimMode::Rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_topic_with_too_few_replicas_in_lanes() {
    a_kafka_topic_with_too_few_replicas(ClaimMode::Lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_receivers_in_rows() {
    one_of_two_receivers(ClaimMode::Rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_receivers_in_lanes() {
    one_of_two_receivers(ClaimMode::Lanes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_webhooks_of_a_chat() {
    let test = "partial_outage::chat".to_owned();
    let Some(webhook) = ChatDestination::shared(&test).await else { return };
    let Some(failing) = ChatDestination::shared(&test).await else { return };
    let routes = vec![failing_route(&failing.url())];
    let settings = ChatSettings { routes, ..webhook.settings() };
    let sink = || Arc::new(ChatSink::discord(settings.clone()).unwrap()) as Arc<dyn Sink>;
    one_of_two(test, ClaimMode::Lanes, sink, &webhook, &failing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_without_one_of_its_nodes_in_rows() {
    a_redis_cluster_without_one_of_its_nodes(ClaimMode::Rows, Loss::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_without_one_of_its_nodes_in_lanes() {
    a_redis_cluster_without_one_of_its_nodes(ClaimMode::Lanes, Loss::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_with_a_frozen_node_in_rows() {
    a_redis_cluster_without_one_of_its_nodes(ClaimMode::Rows, Loss::Frozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_with_a_frozen_node_in_lanes() {
    a_redis_cluster_without_one_of_its_nodes(ClaimMode::Lanes, Loss::Frozen).await;
}

/// How a node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It refuses connections.
    Stopped,
    /// It accepts connections and does not answer.
    Frozen,
}

async fn a_full_rabbitmq_queue(mode: ClaimMode) {
    let test = format!("partial_outage::rabbitmq::{mode:?}");
    let Some(exchange) = RabbitDestination::shared(&test).await else { return };
    exchange.add_full_queue(FULL, 2 * WAITING).await;
    let outage = Outage { test, mode, failing: FULL.to_owned(), keeps_rate: true };
    let delivered = outage.run(|| exchange.sink(), async || exchange.make_room(FULL).await).await;
    assert_eq!(exchange.count().await, delivered);
    assert_eq!(exchange.count_in(FULL).await, WAITING);
    exchange.remove_queue(FULL).await;
    exchange.remove().await;
}

async fn a_full_nats_stream(mode: ClaimMode) {
    let test = format!("partial_outage::nats::{mode:?}");
    let Some(stream) = NatsDestination::shared(&test).await else { return };
    let full = stream.add_full_stream().await;
    let routes = vec![failing_route(&format!("{full}.{{event_type}}"))];
    let settings = NatsSettings { routes, ..stream.settings() };
    let sink = || Arc::new(NatsSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    let outage = Outage { test, mode, failing: FULL.to_owned(), keeps_rate: true };
    let delivered = outage.run(sink, async || stream.make_room(&full).await).await;
    assert_eq!(stream.count().await, delivered);
    assert_eq!(stream.count_in(&full).await, WAITING);
    stream.remove_stream(&full).await;
    stream.remove().await;
}

/// One topic of a broker no longer accepts the relay's messages.
async fn a_kafka_topic_without_rights(mode: ClaimMode) {
    let test = format!("partial_outage::kafka::{mode:?}");
    let Some(topic) = KafkaDestination::private(&test).await else { return };
    let failing = topic.beside().await;
    failing.deny_writes().await;
    let routes = vec![failing_route(&failing.topic)];
    let settings = KafkaSettings { routes, ..topic.settings() };
    let sink = || Arc::new(KafkaSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    let outage = Outage { test, mode, failing: FULL.to_owned(), keeps_rate: true };
    let delivered = outage.run(sink, async || failing.allow_writes().await).await;
    // At least once: a message that was given up at a deadline may have arrived.
    let arrived = [topic.count().await, failing.count().await];
    assert!(arrived[0] >= delivered && arrived[1] >= WAITING, "{arrived:?}, {delivered}");
}

/// With `acks=all`, a topic accepts nothing while fewer replicas than `min.insync.replicas` are in
/// sync. The client repeats such a message by itself, so that its answer never comes.
async fn a_kafka_topic_with_too_few_replicas(mode: ClaimMode) {
    let test = format!("partial_outage::kafka_replicas::{mode:?}");
    let Some(brokers) = KafkaDestination::replicated(&test).await else { return };
    let (topic, failing) = (brokers.beside_on_first().await, brokers.beside_on_both().await);
    brokers.to_broker("node-2", "stop").await;
    failing.until_led_by([1, 1, 1]).await;
    let routes = vec![failing_route(&failing.topic)];
    let settings = KafkaSettings { routes, ..topic.settings() };
    let sink = || Arc::new(KafkaSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    let outage = Outage { test, mode, failing: FULL.to_owned(), keeps_rate: true };
    let delivered = outage.run(sink, async || brokers.start().await).await;
    failing.until_led_by([2, 2, 1]).await;
    let arrived = [topic.count().await, failing.count().await];
    assert!(arrived[0] >= delivered && arrived[1] >= WAITING, "{arrived:?}, {delivered}");
}

async fn one_of_two_receivers(mode: ClaimMode) {
    let test = format!("partial_outage::http::{mode:?}");
    let Some(receiver) = HttpDestination::shared(&test).await else { return };
    let Some(failing) = HttpDestination::shared(&test).await else { return };
    let sink = || {
        let routes = vec![failing_route(&failing.url())];
        let settings = HttpSettings { routes, ..HttpSettings::new("receivers", receiver.url()) };
        Arc::new(HttpSink::new(settings).unwrap()) as Arc<dyn Sink>
    };
    one_of_two(test, mode, sink, &receiver, &failing).await;
}

/// One of them refuses connections.
async fn one_of_two<D: Destination>(
    test: String,
    mode: ClaimMode,
    sink: impl Fn() -> Arc<dyn Sink>,
    healthy: &D,
    failing: &D,
) {
    failing.stop().await;
    // One request per event: each event that is looked at costs more here than where one call takes
    // many.
    let outage = Outage { test, mode, failing: FULL.to_owned(), keeps_rate: false };
    let delivered = outage.run(sink, async || failing.start().await).await;
    // At least once: a request that was given up at its deadline may have arrived.
    let events = |arrived: Vec<Arrived>| {
        arrived.into_iter().map(|message| message.event_id).collect::<HashSet<_>>().len()
    };
    let arrived = [events(healthy.arrived().await), events(failing.arrived().await)];
    assert_eq!(arrived, [delivered, WAITING]);
}

fn failing_route(to: &str) -> RouteSettings {
    let event_type = Some(FULL.to_owned());
    RouteSettings { event_type, to: to.to_owned(), ..RouteSettings::default() }
}

async fn a_redis_cluster_without_one_of_its_nodes(mode: ClaimMode, loss: Loss) {
    let test = format!("partial_outage::redis::{loss:?}::{mode:?}");
    let server = PrivateServer::of("redis-cluster", "REDIS_CLUSTER_URL", &test).await;
    let Some(server) = server else { return };
    let nodes: Vec<String> =
        server.url.replace("redis://", "").split(',').map(String::from).collect();
    for node in &nodes {
        // The rest of the cluster continues without the part that is down.
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
    // The healthy stream must be on another node.
    assert!(ask::<i64>(&nodes[2], &["XLEN", HEALTHY]).await.is_err(), "move it to another node");
    let settings = RedisSettings {
        timeout: Duration::from_secs(1),
        ..RedisSettings::new("streams", &server.url, "{event_type}")
    };
    let sink = || Arc::new(RedisSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    let info = ask::<String>(&nodes[2], &["INFO", "server"]).await.unwrap();
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    match loss {
        Loss::Stopped => drop(ask::<()>(&nodes[2], &["SHUTDOWN", "NOSAVE"]).await),
        Loss::Frozen => signal(process, "-STOP"),
    }
    let outage = Outage { test, mode, failing: failing.clone(), keeps_rate: true };
    let repair = async || match loss {
        Loss::Stopped => server.restart().await,
        Loss::Frozen => signal(process, "-CONT"),
    };
    let delivered = outage.run(sink, repair).await;
    let mut lengths = Vec::new();
    for (name, least) in [(HEALTHY, delivered), (failing.as_str(), WAITING)] {
        let mut length = 0;
        for node in &nodes {
            length = length.max(ask::<usize>(node, &["XLEN", name]).await.unwrap_or(0));
        }
        lengths.push((length, least));
    }
    // At least once: a lost answer leads to a second entry.
    assert!(lengths.iter().all(|(length, least)| length >= least), "{lengths:?}");
}

fn signal(process: &str, signal: &str) {
    let sent = std::process::Command::new("kill").args([signal, process.trim()]).status();
    assert!(sent.unwrap().success());
}

async fn ask<T: redis::FromRedisValue>(node: &str, words: &[&str]) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://{node}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await
}

/// An outbox with its relay, and the healthy events that went through it.
struct Side {
    db: TestDb,
    relay: RunningRelay,
    round: usize,
    delivered: usize,
    rounds: Vec<Duration>,
    _folder: TempFolder,
}

/// Returns how long the outage to be measured lasts.
fn seconds_asked() -> Option<u64> {
    std::env::var(SECONDS_VARIABLE).ok().and_then(|text| text.parse().ok())
}

impl Side {
    async fn start(test: &str, mode: ClaimMode, sink: Arc<dyn Sink>) -> Self {
        let db = TestDb::open(StoreKind::Postgres, test).await.expect("there is a database");
        db.store.set_mode(&db.outbox, mode, "test").await.unwrap();
        // As in the preset `broker`.
        let preset = Preset { batch: 500, idle_poll: Duration::from_secs(1), ..quick_preset() };
        let outbox = OutboxConfig {
            deliver_timeout: Duration::from_secs(5),
            ..OutboxConfig::new(db.outbox.clone(), preset, sink)
        };
        let folder = TempFolder::new();
        let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
        let round = seconds_asked().map_or(ROUND.0, |_| ROUND.1);
        Self { db, relay, round, delivered: 0, rounds: Vec::new(), _folder: folder }
    }

    /// Appends healthy events and waits until they are delivered.
    async fn round(&mut self) {
        let started = Instant::now();
        self.db.append(&events(HEALTHY, "key", self.round)).await;
        self.relay.waker.wake();
        let waiting = format!(" WHERE event_type = '{HEALTHY}'");
        let delivered = async || (self.db.count(&waiting).await == 0).then_some(());
        eventually("the healthy part goes on", delivered).await;
        self.delivered += self.round;
        self.rounds.push(started.elapsed());
    }

    /// Returns the average seconds of a round since the last call, without the shortest and longest
    /// tenth.
    fn seconds(&mut self) -> f64 {
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.sort();
        let kept = &rounds[rounds.len() / 10..rounds.len() - rounds.len() / 10];
        kept.iter().sum::<Duration>().as_secs_f64() / kept.len() as f64
    }
}

fn events(event_type: &str, key: &str, count: usize) -> Vec<NewEvent> {
    let event = |n| NewEvent::new("account", format!("{key}-{n}"), event_type, "{}");
    (0..count).map(event).collect()
}

/// The failing part, and the claim mode.
struct Outage {
    test: String,
    mode: ClaimMode,
    /// Event type of the events that wait.
    failing: String,
    /// Whether the healthy part must keep its rate.
    keeps_rate: bool,
}

impl Outage {
    /// Runs the outage. Returns how many healthy events were delivered in total.
    async fn run(&self, sink: impl Fn() -> Arc<dyn Sink>, repair: impl AsyncFnOnce()) -> usize {
        let mut alone = Side::start(&self.test, self.mode, sink()).await;
        let mut beside = Side::start(&self.test, self.mode, sink()).await;
        for _ in 0..ROUNDS {
            alone.round().await;
            beside.round().await;
        }
        let before = (alone.seconds(), beside.seconds());
        let db = beside.db.clone();
        db.append(&events(&self.failing, "waiting", WAITING)).await;
        let tried = " WHERE last_error IS NOT NULL";
        eventually("it is tried", async || (db.count(tried).await > 0).then_some(())).await;
        let asked = seconds_asked();
        let (started, mut rounds) = (Instant::now(), 0);
        let mut pace = tokio::time::interval(PACE);
        while rounds < ROUNDS || asked.is_some_and(|asked| started.elapsed().as_secs() < asked) {
            alone.round().await;
            beside.round().await;
            rounds += 1;
            if asked.is_some() {
                pace.tick().await;
            }
        }
        if asked.is_some() {
            // A mean hides a few rounds that hang, and the sequence of rounds shows what was only
            // noise.
            println!("{}: rounds alone {:.2?}", self.test, alone.rounds);
            println!("{}: rounds beside {:.2?}", self.test, beside.rounds);
        }
        let during = (alone.seconds(), beside.seconds());
        let kept = during.0 / during.1;
        println!(
            "{}: a round of {} events alone and beside took {before:.3?} s before the outage, \
             {during:.3?} s in its {:.0?}: {:.0} % of the rate is kept",
            self.test,
            beside.round,
            started.elapsed(),
            kept * 100.0
        );
        for spent in [" WHERE retry_count > 0", "_attempts"] {
            assert_eq!(db.count(spent).await, 0, "attempts were spent: {spent}");
        }
        assert_eq!(db.count("_dlq").await, 0, "what waited became dead letters");
        assert_eq!(usize::try_from(db.count("").await).unwrap(), WAITING);
        let measures = self.keeps_rate && asked.is_some();
        // Otherwise a baseline that slows down by itself would look like a rate that is kept.
        let is_comparable = during.0 < BASELINE_SLOWDOWN_MAX * before.0;
        assert!(!measures || is_comparable, "the outbox alone slowed down: {before:?}, {during:?}");
        assert!(!measures || kept >= RATE_KEPT_MIN, "{kept:.2} of the rate is kept");
        repair().await;
        eventually("all is delivered", async || (db.count("").await == 0).then_some(())).await;
        let delivered = alone.delivered + beside.delivered;
        for side in [alone, beside] {
            side.relay.stop().await;
            assert_eq!(side.db.count("_dlq").await, 0);
            side.db.assert_balanced().await;
        }
        delivered
    }
}
