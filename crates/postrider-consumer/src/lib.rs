//! A Kafka consumer whose effects happen exactly once.
//!
//! It pulls up to 500 messages, records them in the inbox and processes them in one transaction of
//! the consumer's database, and then commits the offsets. Messages that the broker sends again,
//! after a crash, a rebalance or a lost commit, are duplicates to the inbox.
//!
//! | failure | reaction |
//! |---|---|
//! | the database is unavailable, or a deadlock | the batch is repeated, with growing waits |
//! | the inbox: a table or a grant is missing | the same; no message is the cause |
//! | a handler | the batch is rolled back and repeated message by message; a message that fails alone becomes a dead letter, and the others continue |
//! | the process, before the database's COMMIT | the messages are sent again, and are new |
//! | the process, after it | the messages are sent again, and are ignored |
//! | a rebalance | the second process with a message waits for the first, and ignores it |

mod batch;
mod message;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use postrider::Inbox;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::types::RDKafkaConfRes;
use tokio::sync::watch;

pub use message::KafkaMessage;
pub use postrider_store::consumer::ConsumerPool;
pub use rdkafka::error::KafkaError;

/// Maximum wait for a first message, after which other tasks get their turn.
const PULL_WAIT: Duration = Duration::from_millis(200);
/// Maximum number of client errors that one pull takes off its queue: an outage causes many of
/// them, and they must not delay messages.
const PULL_ERRORS_MAX: usize = 1_000;
/// Minimum interval between two client errors in the log; the client reconnects by itself.
const ERRORS_LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Interval between checks for dead letters that an operator asked to retry.
const LETTERS_EVERY: Duration = Duration::from_secs(5);
/// Interval between clean-ups of the inbox.
const UPKEEP_EVERY: Duration = Duration::from_secs(3600);
/// Rows per statement of the clean-up.
const UPKEEP_CHUNK: u32 = 5_000;

/// The source of the messages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KafkaConsumerSettings {
    /// `host:port`, several separated by commas.
    pub brokers: String,
    /// The consumer group. Its processes share the partitions.
    pub group: String,
    /// Topics to subscribe to.
    pub topics: Vec<String>,
    /// Maximum number of messages per transaction, at least 1.
    pub batch_max: usize,
    /// Maximum number of bytes per transaction, at least 1; a single larger message is processed
    /// alone.
    pub batch_bytes_max: usize,
    /// Additional settings of librdkafka, such as `security.protocol`. Settings that the delivery
    /// guarantees depend on cannot be overridden.
    pub client: BTreeMap<String, String>,
}

impl KafkaConsumerSettings {
    /// Returns the defaults: 500 messages, 8 MiB.
    pub fn new(brokers: impl Into<String>, group: impl Into<String>, topic: &str) -> Self {
        Self {
            brokers: brokers.into(),
            group: group.into(),
            topics: vec![topic.to_owned()],
            batch_max: 500,
            batch_bytes_max: 8 * 1024 * 1024,
            client: BTreeMap::new(),
        }
    }

    /// Refuses limits of 0, with which no message would ever be pulled.
    fn check(&self) -> Result<(), KafkaError> {
        let limits = [("batch_max", self.batch_max), ("batch_bytes_max", self.batch_bytes_max)];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            None => Ok(()),
            Some((name, _)) => Err(KafkaError::ClientConfig(
                RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
                "at least 1 is needed".to_owned(),
                name.to_owned(),
                "0".to_owned(),
            )),
        }
    }

    fn client(&self) -> Result<BaseConsumer, KafkaError> {
        let mut config = ClientConfig::new();
        config
            .set("auto.offset.reset", "earliest")
            // How long the partitions of a process that died wait; librdkafka's default is 45 s.
            .set("session.timeout.ms", "10000");
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("group.id", &self.group)
            // Offsets are committed only after the messages before them, never by a timer.
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .create()
    }
}

/// Processes messages that are new.
#[async_trait]
pub trait Handler<D: sqlx::Database>: Send + Sync {
    /// Makes all changes for the messages, in their order, in the given transaction. It is called
    /// again with the same messages after a rollback, so it must touch nothing but the transaction.
    /// It must return every error of the database: after some of them the transaction no longer
    /// exists.
    ///
    /// # Errors
    /// [`HandleError::Poison`] for a message that can never be processed; [`HandleError::Database`]
    /// is judged by the database's error.
    async fn handle(
        &self,
        transaction: &mut D::Connection,
        messages: &[KafkaMessage],
    ) -> Result<(), HandleError>;
}

/// The ways in which a handler fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// A database error. If the database is unavailable or busy, the batch is repeated; any other
    /// error is attributed to the message. So is the tenth deadlock or lock wait of a message that
    /// is processed alone.
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    /// The message cannot be processed; it becomes a dead letter.
    #[error("{0}")]
    Poison(String),
}

/// Pulls, processes and commits messages.
pub struct KafkaConsumer<P: ConsumerPool, H> {
    settings: KafkaConsumerSettings,
    client: Arc<BaseConsumer>,
    pool: P,
    inbox: Inbox,
    handler: H,
}

impl<P: ConsumerPool, H: Handler<P::Db>> KafkaConsumer<P, H> {
    /// Subscribes to the topics. The database must have the tables of
    /// [`migrate`](postrider_store::Schema::migrate). Identities that this consumer received longer
    /// ago than the inbox's [`retention`](Inbox::retention) are deleted.
    ///
    /// # Errors
    /// If a setting is unknown to the client, or a limit is 0.
    pub fn new(
        settings: KafkaConsumerSettings,
        pool: P,
        inbox: Inbox,
        handler: H,
    ) -> Result<Self, KafkaError> {
        settings.check()?;
        let client = settings.client()?;
        client.subscribe(&settings.topics.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(Self { settings, client: Arc::new(client), pool, inbox, handler })
    }

    /// Consumes until `stop` becomes true or its sender is dropped. The current batch is then
    /// either processed and committed, or not at all.
    ///
    /// # Errors
    /// If the client reports a fatal error; start another consumer.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), KafkaError> {
        let (mut letters_at, mut upkeep_at) = (Instant::now(), Instant::now());
        let (mut logged_at, mut ended) = (None::<Instant>, Ok(()));
        while !stopped(&stop) && ended.is_ok() {
            let (messages, error) = self.pull().await;
            if let Some(error) = error {
                if logged_at.is_none_or(|at| at.elapsed() >= ERRORS_LOGGED_EVERY) {
                    tracing::warn!(consumer = self.inbox.consumer(), %error, "Kafka has trouble");
                    logged_at = Some(Instant::now());
                }
                if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
                    ended = Err(error);
                }
            }
            if !messages.is_empty() {
                let handled = tokio::select! {
                    handled = self.handle_batch(&messages) => handled,
                    // Dropping the future halfway rolls the transaction back: the messages are sent
                    // again.
                    () = until(&mut stop) => break,
                };
                tracing::debug!(consumer = self.inbox.consumer(), ?handled, "batch handled");
                self.commit(&messages, CommitMode::Async);
            }
            if letters_at.elapsed() >= LETTERS_EVERY {
                self.handle_asked_letters(&stop).await;
                letters_at = Instant::now();
            }
            if upkeep_at.elapsed() >= UPKEEP_EVERY {
                self.clean_up().await;
                upkeep_at = Instant::now();
            }
        }
        self.close().await;
        ended
    }

    /// Pulls up to a batch of messages; none if none arrived within a short wait. Waits in a thread
    /// of its own, because the client's calls block.
    async fn pull(&self) -> (Vec<KafkaMessage>, Option<KafkaError>) {
        let client = Arc::clone(&self.client);
        let (count_max, bytes_max) = (self.settings.batch_max, self.settings.batch_bytes_max);
        let pulled = tokio::task::spawn_blocking(move || pull(&client, count_max, bytes_max)).await;
        // The task cannot panic, and a runtime that shuts down cancels this task too.
        pulled.unwrap_or_default()
    }

    /// Commits the offsets of this group to the broker. If that is lost, messages are sent again
    /// and ignored. Partitions that have been revoked since are left to their new owners.
    fn commit(&self, messages: &[KafkaMessage], mode: CommitMode) {
        let assigned = match self.client.assignment() {
            Ok(assigned) => assigned,
            Err(error) => {
                tracing::warn!(%error, "no offsets committed; messages may come again");
                return;
            }
        };
        let offsets = message::offsets_after(messages, &assigned);
        if offsets.count() == 0 {
            return;
        }
        if let Err(error) = self.client.commit(&offsets, mode) {
            tracing::warn!(%error, "offsets not committed; messages may come again");
        }
    }

    async fn clean_up(&self) {
        match self.pool.clean_inbox(&self.inbox, UPKEEP_CHUNK).await {
            Ok(cleaned) => tracing::info!(?cleaned, "inbox cleaned up"),
            Err(error) => tracing::warn!(%error, "inbox not cleaned up; it is tried again"),
        }
    }

    /// Leaves the group, so that others take the partitions at once. Waits for running commits.
    async fn close(self) {
        let client = self.client;
        let closed = tokio::task::spawn_blocking(move || {
            client.unsubscribe();
            drop(client);
        });
        drop(closed.await);
    }
}

fn stopped(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow() || stop.has_changed().is_err()
}

async fn until(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Waits for a first message, then takes those that have arrived already.
fn pull(
    client: &BaseConsumer,
    count_max: usize,
    bytes_max: usize,
) -> (Vec<KafkaMessage>, Option<KafkaError>) {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let (mut wait, mut errors, mut last_error) = (PULL_WAIT, 0, None);
    while messages.len() < count_max && bytes < bytes_max && errors < PULL_ERRORS_MAX {
        match client.poll(wait) {
            None => break,
            Some(Err(error)) => {
                errors += 1;
                last_error = Some(error);
            }
            Some(Ok(message)) => {
                let message = KafkaMessage::read(&message);
                bytes += message.payload.len();
                messages.push(message);
            }
        }
        wait = Duration::ZERO;
    }
    (messages, last_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_with_which_nothing_would_be_pulled_are_named() {
        let settings = KafkaConsumerSettings::new("localhost:9092", "g", "t");
        settings.check().unwrap();
        let none = KafkaConsumerSettings { batch_max: 0, ..settings.clone() };
        let no_bytes = KafkaConsumerSettings { batch_bytes_max: 0, ..settings };
        for (settings, name) in [(none, "batch_max 0"), (no_bytes, "batch_bytes_max 0")] {
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("at least 1"), "{error}");
        }
    }
}
