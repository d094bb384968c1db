//! Implements `postrider run --check` for a Kafka sink.

use std::time::Duration;

use rdkafka::metadata::Metadata;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::KafkaSettings;
use super::answers::{Meaning, meaning};
use super::producer::{Producer, Trouble};
use super::settings::{BATCH_BYTES_MAX, Kind};

/// Timeout of the brokers' answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the brokers for the topics that the configuration names in full, or just whether they
/// answer. Blocks the thread.
pub(super) fn check(settings: &KafkaSettings, topics: &[String]) -> Result<(), String> {
    let mut config = settings.client_config(Kind::Free, BATCH_BYTES_MAX);
    // A check must not change anything.
    config.set("allow.auto.create.topics", "false");
    let producer = Producer::create(&config)?;
    let ask = |topic: Option<&str>| {
        producer.metadata(topic, TIMEOUT).map_err(|error| {
            let trouble = producer.trouble();
            explain(settings, trouble.as_ref(), &error.to_string())
        })
    };
    if topics.is_empty() {
        return ask(None).map(|_| ());
    }
    topics.iter().try_for_each(|topic| check_one(topic, &ask(Some(topic))?))
}

fn check_one(topic: &str, metadata: &Metadata) -> Result<(), String> {
    let error = metadata
        .topics()
        .iter()
        .find(|found| found.name() == topic)
        .map_or(Some(Code::UnknownTopic), |found| found.error().map(Code::from));
    match error.map(|code| (code, meaning(code))) {
        None => Ok(()),
        Some((_, Meaning::NoTopic)) => Err(no_topic(topic)),
        Some((code, Meaning::Credentials)) => Err(format!(
            "no right to write to topic `{topic}` ({code}); check `sasl` and the topic's rights"
        )),
        Some((code, _)) => Err(format!("topic `{topic}` cannot be written to: {code}")),
    }
}

pub(super) fn no_topic(topic: &str) -> String {
    format!(
        "topic `{topic}` does not exist on the brokers; create it, or correct `topic` of the sink"
    )
}

/// Names the setting that an error is about.
fn explain(settings: &KafkaSettings, trouble: Option<&Trouble>, error: &str) -> String {
    let brokers = &settings.brokers;
    match trouble {
        Some(Trouble { code: Code::Authentication, reason }) => format!(
            "brokers {brokers} refuse the login: {reason}; check `sasl` (mechanism, username, \
             password)"
        ),
        Some(Trouble { code: Code::SSL, reason }) => {
            format!("no TLS with brokers {brokers}: {reason}; check `tls` (ca, cert, key)")
        }
        Some(Trouble { code: Code::Resolve, reason }) => {
            format!("brokers {brokers}: {reason}; check `brokers`")
        }
        Some(Trouble { reason, .. }) => {
            format!("brokers {brokers} do not answer: {reason}; check `brokers`, `tls` and `sasl`")
        }
        None => {
            format!("brokers {brokers} do not answer: {error}; check `brokers`, `tls` and `sasl`")
        }
    }
}
