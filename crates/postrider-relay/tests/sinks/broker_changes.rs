//! Changes of a broker while a relay delivers to it: topics and streams deleted and created again,
//! memory used up, limits reached, rights revoked, certificates expired. Events wait, and all of
//! them arrive.

use std::sync::Arc;

use postrider_relay::{
    Sink,
    sinks::{
        HttpSettings, HttpSink, KafkaSink, NatsSettings, NatsSink, RabbitSettings, RabbitSink,
        RedisSettings, RedisSink,
    },
};
use postrider_store::ClaimMode;
use postrider_testkit::{
    TlsFront,
    sinks::{
        ChatDestination, Destination, HttpDestination, KafkaDestination, NatsDestination,
        RabbitDestination, RedisClusterDestination, RedisDestination, RedisStreams,
    },
};

use crate::drain::Drain;

const EVENTS: usize = 300;
const BOTH: [ClaimMode; 2] = [ClaimMode::Rows, ClaimMode::Lanes];

/// The contents of the topic are gone with it. Events that were not delivered by then go to the new
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_topic_that_is_deleted_and_made_again() {
    for mode in BOTH {
        let test = "broker_changes::kafka_topic";
        let Some(topic) = KafkaDestination::shared(test).await else { return };
        let Some(mut drain) = Drain::start(test, mode, topic.sink(), None).await else { return };
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        topic.delete_topic().await;
        drain.forget();
        drain.append(EVENTS).await;
        drain.until_refused(&topic.topic).await;
        topic.create_again().await;
        drain.until_left(0).await;
        drain.ends_with(&topic.arrived().await).await;
        topic.remove().await;
    }
}

/// The client would send it, but the topic does not accept it: one event is refused, whatever else
/// is in its batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_message_that_only_the_broker_finds_too_large() {
    for mode in BOTH {
        let test = "broker_changes::kafka_size";
        let Some(topic) = KafkaDestination::shared(test).await else { return };
        let Some(mut drain) = Drain::start(test, mode, topic.sink(), None).await else { return };
        drain.append(EVENTS).await;
        drain.append_refused("OrderPlaced", &"x".repeat(650_000)).await;
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        drain.ends_with(&topic.arrived().await).await;
        topic.remove().await;
    }
}

/// An operator must restore them; until then every event waits.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_rights_that_are_taken_away() {
    let test = "broker_changes::kafka_rights";
    let Some(broker) = KafkaDestination::private(test).await else { return };
    for mode in BOTH {
        let topic = broker.beside().await;
        let Some(mut drain) = Drain::start(test, mode, topic.sink(), None).await else { return };
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        topic.deny_writes().await;
        drain.append(EVENTS).await;
        drain.until_refused("authorization failed").await;
        topic.allow_writes().await;
        drain.until_left(0).await;
        drain.ends_with(&topic.arrived().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jetstream_stream_that_is_deleted_and_made_again() {
    for mode in BOTH {
        let test = "broker_changes::nats_stream";
        let Some(stream) = NatsDestination::shared(test).await else { return };
        let subject = Some(format!("{}.orders", stream.name));
        let fixed = NatsSettings { subject, ..stream.settings() };
        for settings in [fixed, stream.settings()] {
            let sink = Arc::new(NatsSink::new(settings).unwrap());
            let Some(mut drain) = Drain::start(test, mode, sink, None).await else { return };
            drain.append(EVENTS).await;
            drain.until_left(0).await;
            stream.delete_stream().await;
            drain.forget();
            drain.append(EVENTS).await;
            drain.until_refused(&stream.name).await;
            stream.create_again().await;
            drain.until_left(0).await;
            drain.ends_with(&stream.arrived().await).await;
        }
        stream.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_out_of_memory() {
    let redis = RedisDestination::private("broker_changes::redis_memory").await;
    out_of_memory(redis).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_that_is_out_of_memory() {
    let redis = RedisClusterDestination::private("broker_changes::cluster_memory").await;
    out_of_memory(redis).await;
}

async fn out_of_memory<const CLUSTER: bool>(redis: Option<RedisStreams<CLUSTER>>) {
    let (Some(redis), test) = (redis, "broker_changes::memory") else { return };
    for mode in BOTH {
        let Some(mut drain) = Drain::start(test, mode, redis.sink(), None).await else { return };
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        redis.limit_memory(1_000_000).await;
        drain.append(EVENTS).await;
        drain.until_refused("OOM").await;
        redis.limit_memory(0).await;
        drain.until_left(0).await;
        drain.ends_with(&redis.arrived().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_asks_for_a_pause() {
    let Some(receiver) = HttpDestination::shared("broker_changes::pause").await else { return };
    pause("broker_changes::pause", &receiver, |is_limited| receiver.limit(is_limited)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_asks_for_a_pause() {
    let Some(chat) = ChatDestination::shared("broker_changes::chat_pause").await else { return };
    pause("broker_changes::chat_pause", &chat, |is_limited| chat.limit(is_limited)).await;
}

async fn pause(test: &str, destination: &impl Destination, limit: impl Fn(bool)) {
    for mode in BOTH {
        let drain = Drain::start(test, mode, destination.sink(), None).await;
        let Some(mut drain) = drain else { return };
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        limit(true);
        drain.append(EVENTS).await;
        drain.until_refused("429").await;
        limit(false);
        drain.until_left(0).await;
        drain.ends_with(&destination.arrived().await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rabbitmq_certificate_that_expires() {
    let Some(exchange) = RabbitDestination::shared("broker_changes::rabbitmq").await else {
        return;
    };
    let (front, url) = behind_tls(&exchange.url, "amqp://", "amqps://").await;
    let settings = RabbitSettings { url, ca: Some(front.ca()), ..exchange.settings() };
    let sink = || Arc::new(RabbitSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    front_expires("broker_changes::rabbitmq", &front, sink, &exchange).await;
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_certificate_that_expires() {
    let Some(redis) = RedisDestination::shared("broker_changes::redis").await else { return };
    let (front, url) = behind_tls(&redis.url, "redis://", "rediss://").await;
    let settings = RedisSettings { url, ca: Some(front.ca()), ..redis.settings() };
    let sink = || Arc::new(RedisSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    front_expires("broker_changes::redis", &front, sink, &redis).await;
    redis.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receivers_certificate_that_expires() {
    let Some(receiver) = HttpDestination::shared("broker_changes::http").await else { return };
    let (front, url) = behind_tls(&receiver.url(), "http://", "https://").await;
    let settings = || {
        let settings = HttpSettings::new("under-test", &url);
        HttpSettings { ca: Some(front.ca()), ..settings }
    };
    let sink = || Arc::new(HttpSink::new(settings()).unwrap()) as Arc<dyn Sink>;
    front_expires("broker_changes::http", &front, sink, &receiver).await;
}

/// NATS greets before TLS begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_nats_certificate_that_expires() {
    let Some(stream) = NatsDestination::shared("broker_changes::nats").await else { return };
    let front = TlsFront::after_greeting(stream.url.trim_start_matches("nats://")).await;
    let url = format!("tls://{}", front.address());
    let settings = NatsSettings { url, ca: Some(front.ca()), ..stream.settings() };
    let sink = || Arc::new(NatsSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    front_expires("broker_changes::nats", &front, sink, &stream).await;
    stream.remove().await;
}

/// Clients go to the address that the broker names, and not through a front.
#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_certificate_that_expires() {
    let test = "broker_changes::kafka_tls";
    let Some(broker) = KafkaDestination::private(test).await else { return };
    let settings = broker.with_authority().await;
    let sink = || Arc::new(KafkaSink::new(settings.clone()).unwrap()) as Arc<dyn Sink>;
    let expire = async || broker.expire().await;
    let renew = async || broker.renew().await;
    expires(test, sink, &broker, expire, renew).await;
}

/// Starts a TLS front in front of the server of a URL, and returns the URL that leads through it.
async fn behind_tls(url: &str, plain: &str, secure: &str) -> (TlsFront, String) {
    let rest = url.strip_prefix(plain).unwrap();
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let front = TlsFront::before(address).await;
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let url = format!("{secure}{login}{}/{path}", front.address());
    (front, url)
}

async fn front_expires(
    test: &str,
    front: &TlsFront,
    sink: impl Fn() -> Arc<dyn Sink>,
    destination: &impl Destination,
) {
    expires(test, sink, destination, async || front.expire(), async || front.renew()).await;
}

async fn expires(
    test: &str,
    sink: impl Fn() -> Arc<dyn Sink>,
    destination: &impl Destination,
    expire: impl AsyncFn(),
    renew: impl AsyncFn(),
) {
    for mode in BOTH {
        let Some(mut drain) = Drain::start(test, mode, sink(), None).await else { return };
        drain.append(EVENTS).await;
        drain.until_left(0).await;
        expire().await;
        drain.append(EVENTS).await;
        // The error must not only say that the connection failed: an operator has to renew the
        // certificate.
        drain.until_refused("expired").await;
        renew().await;
        drain.until_left(0).await;
        drain.ends_with(&destination.arrived().await).await;
    }
}
