//! Sections of `[[sink]]` for message brokers, each behind the feature of its sink.

#[cfg(not(all(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis")))]
mod absent;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;

#[cfg(not(feature = "kafka"))]
pub(crate) use absent::Absent as KafkaSection;
#[cfg(not(feature = "nats"))]
pub(crate) use absent::Absent as NatsSection;
#[cfg(not(feature = "rabbitmq"))]
pub(crate) use absent::Absent as RabbitSection;
#[cfg(not(feature = "redis"))]
pub(crate) use absent::Absent as RedisSection;
#[cfg(feature = "kafka")]
pub(crate) use kafka::KafkaSection;
#[cfg(feature = "nats")]
pub(crate) use nats::NatsSection;
#[cfg(feature = "rabbitmq")]
pub(crate) use rabbitmq::RabbitSection;
#[cfg(feature = "redis")]
pub(crate) use redis::RedisSection;

/// `tls`: the certificate authority. The URL's scheme turns on TLS itself.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaSection {
    pub(crate) ca: std::path::PathBuf,
}
