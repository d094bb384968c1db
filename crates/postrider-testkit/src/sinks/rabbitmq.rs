//! A RabbitMQ exchange and queue for one test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeBindOptions,
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use postrider_relay::{
    Sink,
    sinks::{RabbitSettings, RabbitSink},
};
use postrider_store::Event;

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::relay::held_event;
use crate::{PrivateServer, skip};

const VARIABLE: &str = "RABBITMQ_URL";

/// The kind of queue behind an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RabbitQueue {
    /// Lost when the broker restarts; confirms its messages immediately.
    Transient,
    /// Stored on disk.
    Durable,
    /// Replicated with Raft.
    Quorum,
}

/// A topic exchange with one queue, which accepts only one event type.
pub struct RabbitDestination {
    /// URL of the broker.
    pub url: String,
    /// Name of the exchange and of the queue.
    pub name: String,
    server: Option<PrivateServer>,
    /// Messages taken out of the queue so far.
    taken: Mutex<Vec<Arrived>>,
}

impl RabbitDestination {
    /// Creates an exchange on the shared broker, with a queue of this kind.
    pub async fn with_queue(test: &str, queue: RabbitQueue) -> Option<Self> {
        let Ok(url) = std::env::var(VARIABLE) else {
            skip(test, &format!("the variable {VARIABLE} is not set"));
            return None;
        };
        Some(Self::create(url, None, queue).await)
    }

    async fn create(url: String, server: Option<PrivateServer>, queue: RabbitQueue) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4());
        let (_connection, channel) = open(&url).await;
        let exchange = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (short, none) = (|| name.as_str().into(), FieldTable::default());
        channel.exchange_declare(short(), ExchangeKind::Topic, exchange, none).await.unwrap();
        let durable = queue != RabbitQueue::Transient;
        let options = QueueDeclareOptions { durable, ..Default::default() };
        let mut arguments = FieldTable::default();
        if queue == RabbitQueue::Quorum {
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        }
        channel.queue_declare(short(), options, arguments).await.unwrap();
        let key = held_event(1).event_type.into();
        let (bind, none) = (QueueBindOptions::default(), FieldTable::default());
        channel.queue_bind(short(), short(), key, bind, none).await.unwrap();
        Self { url, name, server, taken: Mutex::default() }
    }

    /// Returns settings of a sink that delivers here, with the event type as the routing key.
    pub fn settings(&self) -> RabbitSettings {
        RabbitSettings::new(&settings_name(), &self.url, &self.name)
    }

    /// Adds a full queue for this routing key, which refuses every message.
    pub async fn add_full_queue(&self, key: &str, messages_max: usize) {
        let (_connection, channel) = open(&self.url).await;
        let mut arguments = FieldTable::default();
        let limit = i32::try_from(messages_max).unwrap();
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(limit));
        arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
        let (queue, durable) = (self.queue_of(key), QueueDeclareOptions::durable());
        channel.queue_declare(queue.clone(), durable, arguments).await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        for _ in 0..messages_max {
            let (to, options) = (queue.clone(), BasicPublishOptions::default());
            let sent =
                channel.basic_publish("".into(), to, options, b"", BasicProperties::default());
            sent.await.unwrap().await.unwrap();
        }
        let (name, none) = (self.name.as_str().into(), FieldTable::default());
        let bind = QueueBindOptions::default();
        channel.queue_bind(queue, name, key.into(), bind, none).await.unwrap();
    }

    /// Makes the queue of this routing key accept messages again.
    pub async fn make_room(&self, key: &str) {
        let (_connection, channel) = open(&self.url).await;
        let options = QueuePurgeOptions::default();
        channel.queue_purge(self.queue_of(key), options).await.unwrap();
    }

    /// Returns the number of messages in the queue of all other keys.
    pub async fn count(&self) -> usize {
        self.count_of(self.name.as_str().into()).await
    }

    /// Returns the number of messages in the queue of this routing key.
    pub async fn count_in(&self, key: &str) -> usize {
        self.count_of(self.queue_of(key)).await
    }

    async fn count_of(&self, queue: ShortString) -> usize {
        let (_connection, channel) = open(&self.url).await;
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = channel.queue_declare(queue, passive, FieldTable::default()).await.unwrap();
        usize::try_from(queue.message_count()).unwrap()
    }

    /// Removes the queue of this routing key.
    pub async fn remove_queue(&self, key: &str) {
        let (_connection, channel) = open(&self.url).await;
        let options = QueueDeleteOptions::default();
        channel.queue_delete(self.queue_of(key), options).await.unwrap();
    }

    fn queue_of(&self, key: &str) -> ShortString {
        format!("{}-{key}", self.name).into()
    }

    /// Adds an exchange that closes the channel of any publisher. It is removed together with the
    /// test's own exchange, which is bound to it.
    pub async fn add_internal_exchange(&self) -> String {
        let (_connection, channel) = open(&self.url).await;
        let name = self.name.replace("test-", "internal-");
        let options =
            ExchangeDeclareOptions { internal: true, auto_delete: true, ..Default::default() };
        let (kind, none) = (ExchangeKind::Topic, FieldTable::default());
        channel.exchange_declare(name.as_str().into(), kind, options, none).await.unwrap();
        let bound = ExchangeBindOptions::default();
        let (from, to) = (name.as_str().into(), self.name.as_str().into());
        channel.exchange_bind(to, from, "x".into(), bound, FieldTable::default()).await.unwrap();
        name
    }

    fn server(&self) -> &PrivateServer {
        self.server.as_ref().expect("only a private server may be disturbed")
    }
}

#[async_trait(?Send)]
impl Destination for RabbitDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 4 * 1024 * 1024, recognises_repeats: false };

    async fn shared(test: &str) -> Option<Self> {
        Self::with_queue(test, RabbitQueue::Durable).await
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of("rabbitmq", VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server), RabbitQueue::Durable).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(RabbitSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { event_type: "NobodyTakesIt".to_owned(), ..event }
    }

    /// A header larger than a frame, so the broker would close the connection.
    fn oversize(&self, event: Event) -> Option<Event> {
        let headers = format!(r#"{{"large":"{}"}}"#, "x".repeat(200_000));
        Some(Event { headers: Some(headers), ..event })
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let (_connection, channel) = open(&self.url).await;
        let get = BasicGetOptions { no_ack: true };
        while let Some(message) = channel.basic_get(self.name.as_str().into(), get).await.unwrap() {
            let delivery = message.delivery;
            let arrived = read_message(&delivery.properties, delivery.data);
            self.taken.lock().unwrap().push(arrived);
        }
        self.taken.lock().unwrap().clone()
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
            let (_connection, channel) = open(&self.url).await;
            let name = || self.name.as_str().into();
            channel.queue_delete(name(), QueueDeleteOptions::default()).await.unwrap();
            channel.exchange_delete(name(), ExchangeDeleteOptions::default()).await.unwrap();
        }
    }
}

async fn open(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

fn read_message(properties: &BasicProperties, body: Vec<u8>) -> Arrived {
    let table = properties.headers().clone().unwrap_or_default();
    // Values that are not text are the broker's own, such as a quorum queue's delivery count.
    let text = |(name, value): (&ShortString, &AMQPValue)| match value {
        AMQPValue::LongString(text) => Some((name.as_str().to_lowercase(), text.to_string())),
        _ => None,
    };
    let headers: BTreeMap<String, String> = table.inner().iter().filter_map(text).collect();
    let id = properties.message_id().as_ref().map(ToString::to_string);
    assert_eq!(id.as_ref(), headers.get("postrider-event-id"), "the message id is the event id");
    assert_eq!(*properties.delivery_mode(), Some(2), "messages are persistent");
    Arrived {
        event_id: headers["postrider-event-id"].clone(),
        headers,
        payload: String::from_utf8(body).unwrap(),
    }
}
