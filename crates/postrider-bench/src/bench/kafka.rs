//! A Kafka topic that exists as long as the bench, and the broker's version.

use std::sync::Arc;
use std::time::Duration;

use postrider_command::Failure;
use postrider_relay::{
    Sink,
    sinks::{KafkaSettings, KafkaSink},
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Number of partitions of a bench's topic.
pub(crate) const PARTITIONS: i32 = 6;
/// The brokers' default replication factor.
const REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(-1);
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of bytes of the broker's answer.
const ANSWER_BYTES_MAX: usize = 64 * 1_024;
/// Requests the versions of the protocol (key 18, version 3), as client `bench` of version 1.
const ASK_VERSIONS: &[u8] = b"\0\x12\0\x03\0\0\0\x01\xff\xff\0\x06bench\x021\0";
/// The feature that identifies a release; the last mention in the answer is the level in use.
const FEATURE: &[u8] = b"metadata.version";

/// Opens a sink that sends to this topic.
pub(super) fn sink(brokers: &str, topic: &str) -> Result<Arc<dyn Sink>, Failure> {
    Ok(Arc::new(KafkaSink::new(KafkaSettings::new("bench", brokers, topic))?))
}

/// Opens the same with a limit on the size of messages.
pub(crate) fn limited_sink(
    brokers: &str,
    topic: &str,
    message_bytes_max: usize,
) -> Result<Arc<dyn Sink>, Failure> {
    let settings = KafkaSettings::new("bench", brokers, topic);
    Ok(Arc::new(KafkaSink::new(KafkaSettings { message_bytes_max, ..settings })?))
}

/// Creates a topic and waits until each partition has a leader.
pub(crate) async fn create_topic(brokers: &str, name: &str) -> Result<(), Failure> {
    let why = |error: String| {
        Failure::Partly(format!("topic {name} could not be made on {brokers}: {error}"))
    };
    let admin = admin(brokers).map_err(&why)?;
    let topic = NewTopic::new(name, PARTITIONS, REPLICATION);
    let options = AdminOptions::new().operation_timeout(Some(TIMEOUT));
    let made =
        admin.create_topics(&[topic], &options).await.map_err(|error| why(error.to_string()))?;
    for outcome in made {
        outcome.map_err(|(_, error)| why(error.to_string()))?;
    }
    Ok(())
}

pub(crate) async fn delete_topic(brokers: &str, name: &str) -> Result<(), Failure> {
    let why = |error: String| {
        Failure::Partly(format!("topic {name} could not be deleted on {brokers}: {error}"))
    };
    let options = AdminOptions::new().operation_timeout(Some(TIMEOUT));
    let deleted = admin(brokers).map_err(&why)?.delete_topics(&[name], &options).await;
    drop(deleted.map_err(|error| why(error.to_string()))?);
    Ok(())
}

fn admin(brokers: &str) -> Result<AdminClient<DefaultClientContext>, String> {
    let config = ClientConfig::new().set("bootstrap.servers", brokers).clone();
    config.create().map_err(|error| error.to_string())
}

/// Returns the release, as far as the protocol reveals it.
pub(super) async fn broker_version(brokers: &str) -> String {
    let first = brokers.split(',').next().unwrap_or_default().trim();
    let level = match tokio::time::timeout(TIMEOUT, ask(first)).await {
        Ok(Ok(answer)) => level_in(&answer),
        Ok(Err(_)) | Err(_) => None,
    };
    match level {
        Some(level) => format!("Kafka {} (metadata.version {level})", release(level)),
        None => "Kafka, version unknown".to_owned(),
    }
}

async fn ask(broker: &str) -> std::io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(broker).await?;
    connection.write_i32(i32::try_from(ASK_VERSIONS.len()).unwrap_or(0)).await?;
    connection.write_all(ASK_VERSIONS).await?;
    let length = usize::try_from(connection.read_i32().await?).unwrap_or(0).min(ANSWER_BYTES_MAX);
    let mut answer = vec![0; length];
    connection.read_exact(&mut answer).await?;
    Ok(answer)
}

/// Returns the level after the last mention of the feature: supported levels come first, then those
/// in use.
fn level_in(answer: &[u8]) -> Option<i16> {
    let at = answer.windows(FEATURE.len()).rposition(|window| window == FEATURE)?;
    let level = answer.get(at + FEATURE.len()..at + FEATURE.len() + 2)?;
    Some(i16::from_be_bytes(level.try_into().ok()?))
}

/// Returns the release that introduced this level.
fn release(level: i16) -> &'static str {
    match level {
        ..15 => "before 3.7",
        15..20 => "3.7",
        20 => "3.8",
        21 => "3.9",
        22..26 => "4.0",
        26..28 => "4.1",
        28..30 => "4.2",
        30 => "4.3",
        31.. => "after 4.3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_in_use_tells_the_release() {
        let supported = [FEATURE, b"\0\x07\0\x1e"].concat();
        let used = [FEATURE, b"\0\x1b\0\x1b"].concat();
        let answer = [&supported[..], b"\0group.version\0\x01", &used[..], b"\0"].concat();
        assert_eq!(level_in(&answer), Some(27));
        assert_eq!(release(27), "4.1");
        assert_eq!(level_in(b"nothing of the kind"), None);
        assert_eq!(level_in(FEATURE), None, "cut off");
    }
}
