//! A Kafka topic for one run, read from its beginning during the run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_command::Failure;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::journal::{Journal, Reception};
use super::receiver::event_number;
use crate::bench::kafka;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between checks of how far the topic was read.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Topic {
    brokers: String,
    name: String,
    consumer: Arc<BaseConsumer>,
    /// The next offset of each partition.
    read: Arc<Mutex<BTreeMap<i32, i64>>>,
    _reading: DropGuard,
}

impl Topic {
    pub(super) async fn create(brokers: &str, journal: Arc<Journal>) -> Result<Self, Failure> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("postrider-storm-{}", &unique[..8]);
        kafka::create_topic(brokers, &name).await?;
        let consumer = Arc::new(consumer(brokers, &name).map_err(|error| failed(&name, &error))?);
        let read = Arc::<Mutex<BTreeMap<i32, i64>>>::default();
        let stop = CancellationToken::new();
        let (following, noted, stopped) = (Arc::clone(&consumer), Arc::clone(&read), stop.clone());
        tokio::task::spawn_blocking(move || follow(&following, &noted, &journal, &stopped));
        let brokers = brokers.to_owned();
        Ok(Self { brokers, name, consumer, read, _reading: stop.drop_guard() })
    }

    pub(super) fn brokers(&self) -> &str {
        &self.brokers
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until everything that is in the topic now was read.
    pub(super) async fn caught_up(&self) -> Result<(), Failure> {
        let (consumer, name) = (Arc::clone(&self.consumer), self.name.clone());
        let ends = tokio::task::spawn_blocking(move || {
            let partitions = 0..kafka::PARTITIONS;
            let end = |partition| {
                Ok((partition, consumer.fetch_watermarks(&name, partition, TIMEOUT)?.1))
            };
            partitions.map(end).collect::<Result<BTreeMap<i32, i64>, rdkafka::error::KafkaError>>()
        });
        let ends = ends.await.map_err(|error| failed(&self.name, &error))?;
        let ends = ends.map_err(|error| failed(&self.name, &error))?;
        let all = async {
            while !self.has_read(&ends) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let read = tokio::time::timeout(TIMEOUT, all).await;
        read.map_err(|_| failed(&self.name, &"it could not be read to its end"))
    }

    fn has_read(&self, ends: &BTreeMap<i32, i64>) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        ends.iter().all(|(partition, end)| read.get(partition).copied().unwrap_or(0) >= *end)
    }

    pub(super) async fn delete(self) -> Result<(), Failure> {
        kafka::delete_topic(&self.brokers, &self.name).await
    }
}

fn consumer(brokers: &str, name: &str) -> Result<BaseConsumer, rdkafka::error::KafkaError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", name)
        .set("enable.auto.commit", "false")
        .create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..kafka::PARTITIONS {
        partitions.add_partition_offset(name, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

fn follow(
    consumer: &BaseConsumer,
    read: &Mutex<BTreeMap<i32, i64>>,
    journal: &Journal,
    stop: &CancellationToken,
) {
    while !stop.is_cancelled() {
        let message = match consumer.poll(LOOK_EVERY) {
            Some(Ok(message)) => message,
            // The client reconnects on its own.
            Some(Err(error)) => {
                tracing::debug!(%error, "reading the topic");
                continue;
            }
            None => continue,
        };
        if let Some(event) = message.payload().and_then(event_number) {
            journal.received(event, Reception::Taken);
        }
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(message.partition(), message.offset() + 1);
    }
}

fn failed(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Partly(format!("topic {name}: {error}"))
}
