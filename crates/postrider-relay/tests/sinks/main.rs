//! The sinks on real servers: the suite that all of them pass, and tests specific to each.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

mod broker_changes;
mod drain;
mod fault_table;
mod kafka_leaders;
mod kafka_own;
mod nats_cloudevents;
mod nats_deliveries;
mod nats_own;
mod partial_outage;
mod poison;
mod rabbitmq_own;
mod rabbitmq_returns;
mod refusals;
mod relay_outage;

postrider_testkit::sink_conformance!(http: postrider_testkit::sinks::HttpDestination);
postrider_testkit::sink_conformance!(kafka: postrider_testkit::sinks::KafkaDestination);
postrider_testkit::sink_conformance!(nats: postrider_testkit::sinks::NatsDestination);
postrider_testkit::sink_conformance!(rabbitmq: postrider_testkit::sinks::RabbitDestination);
postrider_testkit::sink_conformance!(redis: postrider_testkit::sinks::RedisDestination);
postrider_testkit::sink_conformance!(
    redis_cluster: postrider_testkit::sinks::RedisClusterDestination
);
