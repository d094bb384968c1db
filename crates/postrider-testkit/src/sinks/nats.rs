//! A NATS JetStream stream for one test.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream;
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use futures_util::StreamExt;
use postrider_relay::{
    Sink,
    sinks::{NatsSettings, NatsSink},
};
use postrider_store::Event;

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::{PrivateServer, skip};

const VARIABLE: &str = "NATS_URL";
/// The stream's limit is lower than the server's, so that it is the stream that refuses.
const MESSAGE_BYTES_MAX: usize = 600_000;

/// A stream whose subjects start with its name.
pub struct NatsDestination {
    /// URL of the server.
    pub url: String,
    /// Name of the stream, and first part of its subjects.
    pub name: String,
    server: Option<PrivateServer>,
}

impl NatsDestination {
    async fn create(url: String, server: Option<PrivateServer>) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4());
        let destination = Self { url, name, server };
        destination.create_again().await;
        destination
    }

    /// Deletes the stream with all of its messages.
    pub async fn delete_stream(&self) {
        self.remove_stream(&self.name).await;
    }

    /// Creates the stream again, empty.
    pub async fn create_again(&self) {
        let config = stream::Config {
            name: self.name.clone(),
            subjects: vec![format!("{}.>", self.name)],
            max_message_size: i32::try_from(MESSAGE_BYTES_MAX).unwrap(),
            ..stream::Config::default()
        };
        connect(&self.url).await.create_stream(config).await.unwrap();
    }

    /// Returns settings of a sink that delivers here, with the event type as the last part of the
    /// subject.
    pub fn settings(&self) -> NatsSettings {
        let subject = format!("{}.{{event_type}}", self.name);
        NatsSettings::new(&settings_name(), &self.url, &subject)
    }

    /// Adds a stream that refuses every message, and returns its name.
    pub async fn add_full_stream(&self) -> String {
        let name = format!("{}-full", self.name);
        connect(&self.url).await.create_stream(full_stream(&name, 1)).await.unwrap();
        let jetstream = connect(&self.url).await;
        jetstream.publish(format!("{name}.first"), "".into()).await.unwrap().await.unwrap();
        name
    }

    /// Makes that stream accept messages again.
    pub async fn make_room(&self, name: &str) {
        let config = full_stream(name, 1_000_000);
        connect(&self.url).await.update_stream(config).await.unwrap();
    }

    /// Returns the number of messages in the stream.
    pub async fn count(&self) -> usize {
        self.count_of(&self.name).await
    }

    /// Returns the number of messages in that stream, without the one that filled it.
    pub async fn count_in(&self, name: &str) -> usize {
        self.count_of(name).await - 1
    }

    async fn count_of(&self, name: &str) -> usize {
        let mut stream = connect(&self.url).await.get_stream(name).await.unwrap();
        usize::try_from(stream.info().await.unwrap().state.messages).unwrap()
    }

    /// Removes that stream.
    pub async fn remove_stream(&self, name: &str) {
        connect(&self.url).await.delete_stream(name).await.unwrap();
    }

    fn server(&self) -> &PrivateServer {
        self.server.as_ref().expect("only a private server may be disturbed")
    }
}

#[async_trait(?Send)]
impl Destination for NatsDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 500_000, recognises_repeats: true };

    async fn shared(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var(VARIABLE) else {
            skip(test, &format!("the variable {VARIABLE} is not set"));
            return None;
        };
        Some(Self::create(url, None).await)
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of("nats", VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server)).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(NatsSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { payload: "x".repeat(MESSAGE_BYTES_MAX + 50_000), ..event }
    }

    /// Above the server's `max_payload`, so the server would close the connection.
    fn oversize(&self, event: Event) -> Option<Event> {
        Some(Event { payload: "x".repeat(1024 * 1024 + 1), ..event })
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let jetstream = connect(&self.url).await;
        let mut stream = jetstream.get_stream(&self.name).await.unwrap();
        let count = usize::try_from(stream.info().await.unwrap().state.messages).unwrap();
        let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
        let consumer = stream.create_consumer(config).await.unwrap();
        let messages = consumer.messages().await.unwrap();
        messages.take(count).map(|message| read_message(&message.unwrap())).collect().await
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
            connect(&self.url).await.delete_stream(&self.name).await.unwrap();
        }
    }
}

fn full_stream(name: &str, messages_max: i64) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        max_messages: messages_max,
        discard: stream::DiscardPolicy::New,
        ..stream::Config::default()
    }
}

async fn connect(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

fn read_message(message: &jetstream::Message) -> Arrived {
    let found = message.headers.as_ref().unwrap();
    let headers: BTreeMap<String, String> = found
        .iter()
        .map(|(name, values)| (name.to_string().to_lowercase(), values[0].as_str().to_owned()))
        .collect();
    let (event_id, delivery) = headers["nats-msg-id"].rsplit_once('.').unwrap();
    assert_eq!((event_id, delivery.len()), (headers["postrider-event-id"].as_str(), 16));
    Arrived {
        event_id: headers["postrider-event-id"].clone(),
        headers,
        payload: String::from_utf8(message.payload.to_vec()).unwrap(),
    }
}
