//! Redis streams for one test, on a single server or a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_relay::{
    Sink,
    sinks::{RedisSettings, RedisSink},
};
use postrider_store::Event;
use redis::cluster::ClusterClient;
use redis::{Cmd, FromRedisValue};

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::relay::held_event;
use crate::{PrivateServer, skip};

/// The key of this event type is not a stream.
const NO_STREAM: &str = "NoStream";

/// Streams on a single server.
pub type RedisDestination = RedisStreams<false>;
/// Streams on a cluster.
pub type RedisClusterDestination = RedisStreams<true>;

/// Streams by event type, with a common prefix.
pub struct RedisStreams<const CLUSTER: bool> {
    /// URL of the server, or of a cluster's nodes, separated by commas.
    pub url: String,
    name: String,
    server: Option<PrivateServer>,
}

impl<const CLUSTER: bool> RedisStreams<CLUSTER> {
    const VARIABLE: &str = if CLUSTER { "REDIS_CLUSTER_URL" } else { "REDIS_URL" };
    const SERVICE: &str = if CLUSTER { "redis-cluster" } else { "redis" };

    async fn create(url: String, server: Option<PrivateServer>) -> Self {
        let name = format!("test-{}", uuid::Uuid::new_v4());
        let destination = Self { url, name, server };
        destination.ask::<()>(&["SET", &destination.stream(NO_STREAM), "a string"]).await;
        destination
    }

    /// Returns settings of a sink that delivers here.
    pub fn settings(&self) -> RedisSettings {
        RedisSettings::new(settings_name(), &self.url, self.stream("{event_type}"))
    }

    /// Limits the private server's memory, without eviction; 0 is unlimited.
    pub async fn limit_memory(&self, bytes: u64) {
        self.configure("maxmemory-policy", "noeviction").await;
        self.configure("maxmemory", &bytes.to_string()).await;
    }

    /// Changes a setting of the private server, on each node.
    pub async fn configure(&self, setting: &str, value: &str) {
        assert!(self.server.is_some(), "only a private server may be disturbed");
        for node in self.nodes() {
            let client = redis::Client::open(node).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut command = redis::cmd("CONFIG");
            command.arg("SET").arg(setting).arg(value);
            command.exec_async(&mut connection).await.unwrap();
        }
    }

    /// Returns a URL for each node.
    fn nodes(&self) -> impl Iterator<Item = String> {
        let nodes = self.url.strip_prefix("redis://").unwrap();
        nodes.split(',').map(|node| format!("redis://{node}"))
    }

    fn stream(&self, event_type: &str) -> String {
        format!("{}:{event_type}", self.name)
    }

    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        command.arg(words);
        if CLUSTER {
            let client = ClusterClient::new(self.nodes()).unwrap();
            let mut connection = client.get_async_connection().await.unwrap();
            return command.query_async(&mut connection).await.unwrap();
        }
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        command.query_async(&mut connection).await.unwrap()
    }

    fn server(&self) -> &PrivateServer {
        self.server.as_ref().expect("only a private server may be disturbed")
    }
}

#[async_trait(?Send)]
impl<const CLUSTER: bool> Destination for RedisStreams<CLUSTER> {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 4_000_000, recognises_repeats: false };

    async fn shared(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var(Self::VARIABLE) else {
            skip(test, &format!("the variable {} is not set", Self::VARIABLE));
            return None;
        };
        Some(Self::create(url, None).await)
    }

    async fn private(test: &str) -> Option<Self> {
        let server = PrivateServer::of(Self::SERVICE, Self::VARIABLE, test).await?;
        Some(Self::create(server.url.clone(), Some(server)).await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(RedisSink::new(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { event_type: NO_STREAM.to_owned(), ..event }
    }

    /// A value may have up to 512 MiB, so there is none.
    fn oversize(&self, _event: Event) -> Option<Event> {
        None
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

    async fn freeze(&self) {
        self.server().freeze().await;
    }

    async fn thaw(&self) {
        self.server().thaw().await;
    }

    async fn remove(self) {
        if self.server.is_none() {
            for event_type in [&held_event(1).event_type, NO_STREAM] {
                self.ask::<()>(&["DEL", &self.stream(event_type)]).await;
            }
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
