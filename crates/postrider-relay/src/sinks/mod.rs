//! The sinks. Each file has the same order: settings, sink, delivery, helpers.

#[cfg(any(feature = "discord", feature = "slack"))]
mod chat;
pub(crate) mod fan_out;
mod handler;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
#[cfg(feature = "nats")]
mod nats;
mod null;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod waves;

#[cfg(any(feature = "discord", feature = "slack"))]
pub use chat::{ChatSettings, ChatSink};
pub use fan_out::{BranchSettings, FanOut};
pub use handler::{HandlerError, HandlerSink};
#[cfg(feature = "http")]
pub use http::{HttpSettings, HttpSink};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaSettings, KafkaSink, Sasl, Tls};
pub use log::LogSink;
#[cfg(feature = "nats")]
pub use nats::{NatsSettings, NatsSink};
pub use null::NullSink;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::{RabbitSettings, RabbitSink};
#[cfg(feature = "redis")]
pub use redis::{RedisSettings, RedisSink};
