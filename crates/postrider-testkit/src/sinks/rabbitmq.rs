//! An exchange and a queue of its own on RabbitMQ.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lapin::options::{
    BasicAckOptions, BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use postrider::Event;
use postrider_relay::Sink;
use postrider_relay::sinks::{RabbitSettings, RabbitSink};

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::relay::held_event;
use crate::{PrivateServer, skip};

const VARIABLE: &str = "RABBITMQ_URL";

/// A topic exchange with one queue, which takes one event type only.
pub struct RabbitDestination {
    /// Where the broker is.
    pub url: String,
    /// Name of the exchange and of the queue.
    pub name: String,
    server: Option<PrivateServer>,
    /// What was taken out of the queue so far.
    taken: Mutex<Vec<Arrived>>,
}

impl RabbitDestination {
    async fn create(url: String, server: Option<PrivateServer>) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4());
        let (_connection, channel) = open(&url).await;
        let (durable, none) = (QueueDeclareOptions::durable(), FieldTable::default());
        let exchange = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let short = || name.as_str().into();
        let topic = ExchangeKind::Topic;
        channel.exchange_declare(short(), topic, exchange, none.clone()).await.unwrap();
        channel.queue_declare(short(), durable, none.clone()).await.unwrap();
        let key = held_event(1).event_type.into();
        let bind = QueueBindOptions::default();
        channel.queue_bind(short(), short(), key, bind, none).await.unwrap();
        Self { url, name, server, taken: Mutex::default() }
    }

    /// Settings of a sink that delivers here, with the event type as routing key.
    pub fn settings(&self) -> RabbitSettings {
        RabbitSettings::new(&settings_name(), &self.url, &self.name)
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
        let Ok(url) = std::env::var(VARIABLE) else {
            skip(test, &format!("the variable {VARIABLE} is not set"));
            return None;
        };
        Some(Self::create(url, None).await)
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of("rabbitmq", VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server)).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(RabbitSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { event_type: "NobodyTakesIt".to_owned(), ..event }
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let (_connection, channel) = open(&self.url).await;
        let get = BasicGetOptions::default();
        while let Some(message) = channel.basic_get(self.name.as_str().into(), get).await.unwrap() {
            let delivery = message.delivery;
            delivery.ack(BasicAckOptions::default()).await.unwrap();
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
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => text.to_string(),
        other => panic!("a header is no text: {other:?}"),
    };
    let headers: BTreeMap<String, String> = table
        .inner()
        .iter()
        .map(|(name, value)| (name.as_str().to_lowercase(), text(value)))
        .collect();
    let id = properties.message_id().as_ref().map(ToString::to_string);
    assert_eq!(id.as_ref(), headers.get("postrider-event-id"), "the message id is the event id");
    assert_eq!(*properties.delivery_mode(), Some(2), "messages are persistent");
    Arrived {
        event_id: headers["postrider-event-id"].clone(),
        headers,
        payload: String::from_utf8(body).unwrap(),
    }
}
