//! Replaces `kafka` if this program was built without it.

// Async like the functions that they replace, which wait for a broker.
#![expect(clippy::unused_async)]

use std::sync::Arc;

use postrider_command::Failure;
use postrider_relay::Sink;

pub(crate) fn absent() -> Failure {
    Failure::Usage(
        "--sink kafka: this program was built without Kafka; build it with the cargo feature \
         `kafka`"
            .to_owned(),
    )
}

pub(super) fn sink(_brokers: &str, _topic: &str) -> Result<Arc<dyn Sink>, Failure> {
    Err(absent())
}

pub(crate) fn limited_sink(
    _brokers: &str,
    _topic: &str,
    _message_bytes_max: usize,
) -> Result<Arc<dyn Sink>, Failure> {
    Err(absent())
}

pub(crate) async fn create_topic(_brokers: &str, _name: &str) -> Result<(), Failure> {
    Err(absent())
}

pub(crate) async fn delete_topic(_brokers: &str, _name: &str) -> Result<(), Failure> {
    Err(absent())
}

pub(super) async fn broker_version(_brokers: &str) -> String {
    String::new()
}
