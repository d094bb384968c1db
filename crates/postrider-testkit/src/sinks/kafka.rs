//! A Kafka topic for one test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use postrider_relay::{
    Sink,
    sinks::{KafkaSettings, KafkaSink, Sasl, Tls},
};
use postrider_store::Event;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::tls::{Authority, Validity};
use crate::{PATIENCE, PrivateServer, eventually, skip};

const VARIABLE: &str = "KAFKA_BROKERS";
const PARTITIONS: i32 = 3;
/// The topic's limit is lower than the sink's, so that it is the broker that refuses.
const TOPIC_BYTES_MAX: usize = 600_000;

/// Kafka's codes for access control.
const CREATE_ACLS: u8 = 30;
const DELETE_ACLS: u8 = 31;
const TOPIC: u8 = 2;
const LITERAL: u8 = 3;
const ANY: u8 = 1;
const WRITE: u8 = 4;
const DENY: u8 = 2;

/// A topic with three partitions.
pub struct KafkaDestination {
    /// Addresses of the brokers.
    pub brokers: String,
    /// Name of the topic.
    pub topic: String,
    server: Option<PrivateServer>,
}

impl KafkaDestination {
    async fn create(brokers: String, server: Option<PrivateServer>) -> Self {
        let topic = format!("test-{}", uuid::Uuid::new_v4());
        create_topic(&brokers, &topic, TopicReplication::Fixed(1), 1).await;
        Self { brokers, topic, server }
    }

    /// Creates a new topic on two brokers of its own, each with a copy of every partition. `node-2`
    /// leads two of the three as long as it can.
    pub async fn replicated(test: &str) -> Option<Self> {
        let server = PrivateServer::of("kafka-cluster", VARIABLE, test).await?;
        let (brokers, topic) = (server.url.clone(), format!("test-{}", uuid::Uuid::new_v4()));
        let replicas = TopicReplication::Variable(&[&[2, 1], &[2, 1], &[1, 2]]);
        create_topic(&brokers, &topic, replicas, 1).await;
        let destination = Self { brokers, topic, server: Some(server) };
        destination.until_led_by([2, 2, 1]).await;
        Some(destination)
    }

    /// Stops, kills, freezes or thaws one of the brokers, and not the other.
    pub async fn to_broker(&self, node: &'static str, verb: &'static str) {
        self.server().to_process(node, verb).await;
    }

    /// Waits until these brokers lead the partitions. While `node-2` leads, also waits until
    /// `node-1` has all its data, so that it can take over.
    pub async fn until_led_by(&self, leaders: [i32; 3]) {
        let admin = admin(&self.brokers);
        eventually(&format!("the leaders are {leaders:?}"), async || {
            let metadata = admin.inner().fetch_metadata(Some(&self.topic), PATIENCE).ok()?;
            let partitions = metadata.topics().first()?.partitions();
            let led = partitions.iter().all(|partition| {
                let leader = usize::try_from(partition.id()).ok().map(|id| leaders[id]);
                Some(partition.leader()) == leader && partition.isr().contains(&1)
            });
            (led && partitions.len() == 3).then_some(())
        })
        .await;
    }

    /// Returns settings of a sink that delivers here.
    pub fn settings(&self) -> KafkaSettings {
        KafkaSettings::new(&settings_name(), &self.brokers, &self.topic)
    }

    /// Deletes the topic, and waits until the broker no longer knows it.
    pub async fn delete_topic(&self) {
        let admin = admin(&self.brokers);
        drop(admin.delete_topics(&[&self.topic], &options()).await.unwrap());
        eventually("the topic is gone", async || {
            let metadata = admin.inner().fetch_metadata(Some(&self.topic), PATIENCE).ok()?;
            metadata.topics().iter().all(|topic| topic.error().is_some()).then_some(())
        })
        .await;
    }

    /// Creates the topic again, empty.
    pub async fn create_again(&self) {
        create_topic(&self.brokers, &self.topic, TopicReplication::Fixed(1), 1).await;
    }

    /// Creates another topic on the first of two brokers, and only there.
    pub async fn beside_on_first(&self) -> Self {
        self.beside_with(&[&[1], &[1], &[1]], 1).await
    }

    /// Creates another topic on both brokers, which accepts nothing while one of them is away.
    pub async fn beside_on_both(&self) -> Self {
        self.beside_with(&[&[2, 1], &[2, 1], &[1, 2]], 2).await
    }

    async fn beside_with(&self, replicas: &[&[i32]], in_sync_min: u8) -> Self {
        let (brokers, topic) = (self.brokers.clone(), format!("test-{}", uuid::Uuid::new_v4()));
        create_topic(&brokers, &topic, TopicReplication::Variable(replicas), in_sync_min).await;
        Self { brokers, topic, server: None }
    }

    /// Creates another topic on the same broker.
    pub async fn beside(&self) -> Self {
        Self::create(self.brokers.clone(), None).await
    }

    /// Returns the number of messages in the topic.
    pub async fn count(&self) -> usize {
        let (brokers, topic) = (self.brokers.clone(), self.topic.clone());
        let counted = tokio::task::spawn_blocking(move || {
            let reader = reader(&brokers);
            let count = |partition| {
                let (low, high) = watermarks(&reader, &topic, partition);
                high - low
            };
            (0..PARTITIONS).map(count).sum::<i64>()
        });
        usize::try_from(counted.await.unwrap()).unwrap()
    }

    /// Revokes the permission to write to the topic, for all users.
    pub async fn deny_writes(&self) {
        let name = self.topic.as_bytes();
        let entry = [&[TOPIC], &text(name)[..], &[LITERAL], &text(b"User:*"), &text(b"*")].concat();
        let answer = self.ask(CREATE_ACLS, &[&entry[..], &[WRITE, DENY]].concat()).await;
        assert_eq!(answer[8..10], [0, 0], "the broker took it: {answer:?}");
    }

    /// Restores the permission.
    pub async fn allow_writes(&self) {
        let (name, any) = (self.topic.as_bytes(), [0xff, 0xff]);
        let entry = [&[TOPIC], &text(name)[..], &[LITERAL], &any, &any].concat();
        let answer = self.ask(DELETE_ACLS, &[&entry[..], &[ANY, ANY]].concat()).await;
        assert_eq!(answer[8..10], [0, 0], "the broker took it: {answer:?}");
    }

    /// Sends a request of version 1 about one rule; the client library does not support them.
    async fn ask(&self, request: u8, entry: &[u8]) -> Vec<u8> {
        let header = [0, request, 0, 1, 0, 0, 0, 7, 0xff, 0xff];
        let body = [&header[..], &[0, 0, 0, 1], entry].concat();
        let length = u32::try_from(body.len()).unwrap();
        let mut stream = tokio::net::TcpStream::connect(&self.brokers).await.unwrap();
        stream.write_u32(length).await.unwrap();
        stream.write_all(&body).await.unwrap();
        let length = stream.read_u32().await.unwrap();
        let mut answer = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut answer).await.unwrap();
        // The number of answers follows after the request id and the throttle time.
        answer.drain(..4);
        answer
    }

    /// Gives the broker a certificate that is signed by an authority, and restarts it. Returns the
    /// settings of a sink that delivers here through TLS and a login.
    pub async fn with_authority(&self) -> KafkaSettings {
        let data = self.server().data();
        let ca = Some(Authority::make(&data.join("tls")).file());
        self.renew().await;
        let settings = std::fs::read_to_string(data.join("server.properties")).unwrap();
        let listener = settings.split("SASL_SSL://").nth(1).unwrap().split(',').next().unwrap();
        KafkaSettings {
            brokers: listener.to_owned(),
            tls: Some(Tls { ca, ..Tls::default() }),
            sasl: Some(Sasl {
                mechanism: "PLAIN".to_owned(),
                username: "postrider".to_owned(),
                password: "postrider".to_owned(),
                without_tls: false,
            }),
            ..self.settings()
        }
    }

    /// Restarts the broker with a certificate that expired.
    pub async fn expire(&self) {
        self.restart_with(Validity::Expired).await;
    }

    /// Restarts the broker with a new certificate.
    pub async fn renew(&self) {
        self.restart_with(Validity::Current).await;
    }

    async fn restart_with(&self, validity: Validity) {
        let folder = self.server().data().join("tls");
        let certificate = Authority::of(&folder).sign("server.key", validity);
        let texts = [folder.join("server.key"), certificate].map(std::fs::read_to_string);
        let texts: String = texts.into_iter().map(Result::unwrap).collect();
        self.server().stop().await;
        std::fs::write(folder.join("server.pem"), texts).unwrap();
        self.server().restart().await;
    }

    fn server(&self) -> &PrivateServer {
        self.server.as_ref().expect("only a private server may be disturbed")
    }
}

#[async_trait(?Send)]
impl Destination for KafkaDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 500_000, recognises_repeats: false };

    async fn shared(test: &str) -> Option<Self> {
        let Ok(brokers) = std::env::var(VARIABLE) else {
            skip(test, &format!("the variable {VARIABLE} is not set"));
            return None;
        };
        Some(Self::create(brokers, None).await)
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of("kafka", VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server)).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(KafkaSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { payload: "x".repeat(TOPIC_BYTES_MAX + 50_000), ..event }
    }

    /// Larger than the sink's own limit, which is above the topic's.
    fn oversize(&self, event: Event) -> Option<Event> {
        let payload = "x".repeat(self.settings().message_bytes_max + 1);
        Some(Event { payload, ..event })
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let (brokers, topic) = (self.brokers.clone(), self.topic.clone());
        tokio::task::spawn_blocking(move || read_topic(&brokers, &topic)).await.unwrap()
    }

    async fn stop(&self) {
        self.server().stop().await;
    }

    async fn kill(&self) {
        self.server().kill().await;
    }

    async fn start(&self) {
        self.server().restart().await;
    }

    async fn freeze(&self) {
        self.server().freeze().await;
    }

    async fn thaw(&self) {
        self.server().thaw().await;
    }

    async fn remove(self) {
        if self.server.is_none() {
            let removed = admin(&self.brokers).delete_topics(&[&self.topic], &options()).await;
            drop(removed);
        }
    }
}

/// Creates a topic and waits until the broker serves it. It accepts messages while at least
/// `in_sync_min` of its replicas are in sync.
async fn create_topic(
    brokers: &str,
    name: &str,
    replication: TopicReplication<'_>,
    in_sync_min: u8,
) {
    let (bytes_max, in_sync_min) = (TOPIC_BYTES_MAX.to_string(), in_sync_min.to_string());
    let topic = NewTopic::new(name, PARTITIONS, replication)
        .set("max.message.bytes", &bytes_max)
        .set("min.insync.replicas", &in_sync_min);
    let admin = admin(brokers);
    let created = admin.create_topics(&[topic], &options()).await.unwrap();
    created.into_iter().next().unwrap().unwrap();
    eventually("the topic has a leader for each partition", async || {
        let metadata = admin.inner().fetch_metadata(Some(name), PATIENCE).ok()?;
        let partitions = metadata.topics().first()?.partitions();
        (partitions.len() == 3 && partitions.iter().all(|p| p.leader() >= 0)).then_some(())
    })
    .await;
}

/// Encodes a text as in the protocol.
fn text(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE))
}

fn reader(brokers: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "nobody");
    config.set("enable.auto.commit", "false").create().unwrap()
}

/// Reads everything up to the current end of each partition.
fn read_topic(brokers: &str, topic: &str) -> Vec<Arrived> {
    let consumer = reader(brokers);
    let (mut assignment, mut left) = (TopicPartitionList::new(), 0);
    for partition in 0..PARTITIONS {
        let (low, high) = watermarks(&consumer, topic, partition);
        left += high - low;
        assignment.add_partition_offset(topic, partition, Offset::Offset(low)).unwrap();
    }
    consumer.assign(&assignment).unwrap();
    let mut arrived = Vec::new();
    while left > 0 {
        let message = consumer.poll(PATIENCE).expect("a message in time").unwrap();
        arrived.push(read_message(&message));
        left -= 1;
    }
    arrived
}

/// Returns the first offset and the end. Shortly after a change, a broker may say that it is not
/// the leader.
fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> (i64, i64) {
    let until = Instant::now() + PATIENCE;
    loop {
        match consumer.fetch_watermarks(topic, partition, PATIENCE) {
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::NotLeaderForPartition))
                if Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            found => return found.unwrap(),
        }
    }
}

fn read_message(message: &BorrowedMessage<'_>) -> Arrived {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers: BTreeMap<String, String> = message
        .headers()
        .into_iter()
        .flat_map(Headers::iter)
        .map(|header| (header.key.to_lowercase(), text(header.value.unwrap_or_default())))
        .collect();
    let key = message.key().map(text);
    assert_eq!(key.as_ref(), headers.get("postrider-aggregate-id"), "the key is the aggregate id");
    Arrived {
        event_id: headers["postrider-event-id"].clone(),
        headers,
        payload: message.payload().map(text).unwrap_or_default(),
    }
}
