//! A stream of its own on Redis.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider::Event;
use postrider_relay::Sink;
use postrider_relay::sinks::{RedisSettings, RedisSink};
use redis::FromRedisValue;

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::relay::held_event;
use crate::{PrivateServer, skip};

const VARIABLE: &str = "REDIS_URL";
/// The key of this event type is no stream.
const NO_STREAM: &str = "NoStream";

/// Streams by event type, below one name.
pub struct RedisDestination {
    /// Where the server is.
    pub url: String,
    name: String,
    server: Option<PrivateServer>,
}

impl RedisDestination {
    async fn create(url: String, server: Option<PrivateServer>) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4());
        let destination = Self { url, name, server };
        destination.ask::<()>(&["SET", &destination.stream(NO_STREAM), "a string"]).await;
        destination
    }

    /// Settings of a sink that delivers here.
    pub fn settings(&self) -> RedisSettings {
        RedisSettings::new(settings_name(), &self.url, self.stream("{event_type}"))
    }

    /// The private server takes no more than this, and drops nothing to make room; 0 is no limit.
    pub async fn limit_memory(&self, bytes: u64) {
        assert!(self.server.is_some(), "only a private server may be disturbed");
        self.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
        self.ask::<()>(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]).await;
    }

    fn stream(&self, event_type: &str) -> String {
        format!("{}:{event_type}", self.name)
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
    }

    fn server(&self) -> &PrivateServer {
        self.server.as_ref().expect("only a private server may be disturbed")
    }
}

#[async_trait(?Send)]
impl Destination for RedisDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 4_000_000, recognises_repeats: false };

    async fn shared(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var(VARIABLE) else {
            skip(test, &format!("the variable {VARIABLE} is not set"));
            return None;
        };
        Some(Self::create(url, None).await)
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of("redis", VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server)).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(RedisSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { event_type: NO_STREAM.to_owned(), ..event }
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let stream = self.stream(&held_event(1).event_type);
        let entries: Vec<(String, BTreeMap<String, String>)> =
            self.ask(&["XRANGE", &stream, "-", "+"]).await;
        entries.into_iter().map(|(_, fields)| read_entry(fields)).collect()
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
        let (stream, other) = (self.stream(&held_event(1).event_type), self.stream(NO_STREAM));
        if self.server.is_none() {
            self.ask::<()>(&["DEL", &stream, &other]).await;
        }
    }
}

fn read_entry(mut headers: BTreeMap<String, String>) -> Arrived {
    Arrived {
        event_id: headers["postrider-event-id"].clone(),
        payload: headers.remove("payload").unwrap(),
        headers,
    }
}
