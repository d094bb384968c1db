//! Messages to Kafka topics, with the aggregate id as the key.
//!
//! A call queues its whole batch before it waits for the first answer. docs/decisions/0021 explains
//! what librdkafka does after a failure, and how order survives it.

mod answers;
mod check;
mod delivery;
mod producer;
mod settings;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_store::Event;

use self::delivery::Delivery;
use self::producer::Producer;
use self::settings::{BATCH_BYTES_MAX, Kind};
pub use self::settings::{KafkaSettings, Sasl, Tls};
use crate::message::envelope::Envelope;
use crate::message::routes::Router;
use crate::message::template::verbatim;
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// Time to send what is queued when the sink is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of topics that are remembered as failing.
const AILING_MAX: usize = 1_000;
/// Smallest record batch; a topic that accepts less is misconfigured.
const BATCH_BYTES_MIN: usize = 16 * 1_024;

/// Delivers to Kafka.
pub struct KafkaSink {
    settings: KafkaSettings,
    router: Router,
    envelope: Envelope,
    /// Topics that the configuration names in full.
    fixed_topics: Vec<String>,
    /// Size of a record batch; reduced once a topic has refused a batch of several messages.
    batch_bytes_max: AtomicUsize,
    /// Topics that accepted nothing when last tried. They have separate producers: what a failing
    /// topic does to its producer must not affect the messages of the others.
    ailing: Mutex<HashSet<String>>,
    /// One producer of each [`Kind`], created on first use, followed by those for failing topics.
    producers: Mutex<[Option<Arc<Producer>>; 2 * Kind::ALL.len()]>,
}

impl KafkaSink {
    /// Checks the settings and creates the sink without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: KafkaSettings) -> Result<Self, SinkError> {
        let fail = |message: String| SinkError { sink: settings.name.clone(), message };
        settings.check().map_err(&fail)?;
        let router = Router::new("topic", settings.topic.as_deref(), &settings.routes);
        let router = router.map_err(&fail)?;
        let envelope = Envelope::new(&settings.envelope).map_err(&fail)?;
        let mut fixed_topics = Vec::new();
        for (setting, template) in router.templates() {
            check_topic(&template.outline("x"))
                .map_err(|error| fail(format!("{setting} is `{}`: {error}", template.text())))?;
            fixed_topics.extend(template.fixed().map(str::to_owned));
        }
        let (batch_bytes_max, producers) = (BATCH_BYTES_MAX.into(), Mutex::default());
        let ailing = Mutex::default();
        Ok(Self { settings, router, envelope, fixed_topics, batch_bytes_max, ailing, producers })
    }

    /// Returns whether a topic accepted nothing when last tried.
    fn ails(&self, topic: &str) -> bool {
        self.ailing().contains(topic)
    }

    fn took(&self, topic: &str) {
        self.ailing().remove(topic);
    }

    fn took_nothing(&self, topic: &str) {
        let mut ailing = self.ailing();
        if ailing.len() < AILING_MAX {
            ailing.insert(topic.to_owned());
        }
    }

    /// Returns the producer of this kind, and creates it if necessary. `apart`: the one for failing
    /// topics.
    fn producer(&self, kind: Kind, apart: bool) -> Result<Arc<Producer>, String> {
        let mut producers = self.producers();
        let place = &mut producers[kind as usize + usize::from(apart) * Kind::ALL.len()];
        if let Some(producer) = place {
            return Ok(Arc::clone(producer));
        }
        let batch_bytes_max = self.batch_bytes_max.load(Ordering::Relaxed);
        let config = self.settings.client_config(kind, batch_bytes_max);
        let producer = Arc::new(Producer::create(&config)?);
        *place = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// Reduces the size of record batches, because a topic refused several messages together and
    /// accepts each of them alone.
    fn make_smaller_batches(&self) {
        let bytes = self.batch_bytes_max.load(Ordering::Relaxed) / 2;
        self.batch_bytes_max.store(bytes.max(BATCH_BYTES_MIN), Ordering::Relaxed);
        tracing::info!(
            sink = self.settings.name,
            bytes,
            "record batches were too large for a topic and are smaller from now on"
        );
        // Producers in use end with their last call, after delivering everything that they hold.
        let mut producers = self.producers();
        for kind in [Kind::Free, Kind::Ordered] {
            producers[kind as usize] = None;
            producers[kind as usize + Kind::ALL.len()] = None;
        }
    }

    /// Ends a producer and drops everything that it holds; the next call creates a new one.
    /// Messages of other calls are dropped as well: a producer that gave up a message may leave a
    /// gap, and messages after the gap must not be sent.
    fn retire(&self, producer: &Arc<Producer>) {
        for place in &mut *self.producers() {
            if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, producer)) {
                *place = None;
            }
        }
        producer.purge();
    }

    fn producers(&self) -> MutexGuard<'_, [Option<Arc<Producer>>; 2 * Kind::ALL.len()]> {
        self.producers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ailing(&self) -> MutexGuard<'_, HashSet<String>> {
        self.ailing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let topic = self.router.resolve(&EventView::new(event), verbatim);
        // Without a topic there is nothing that could be down.
        topic.unwrap_or(Cow::Borrowed(&self.settings.name))
    }

    fn only_destination(&self) -> Option<&str> {
        let every_one_is_fixed = self.fixed_topics.len() == self.router.templates().count();
        match self.fixed_topics.as_slice() {
            [only] if every_one_is_fixed => Some(only),
            _ => None,
        }
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let views: Vec<EventView<'_>> = batch.events.iter().map(EventView::new).collect();
        let mut delivery = Delivery::new(self, batch, &views);
        delivery.send_all().await;
        delivery.send_too_large_alone().await;
        delivery.outcomes()
    }

    async fn check(&self) -> Result<(), SinkError> {
        let (settings, topics) = (self.settings.clone(), self.fixed_topics.clone());
        let checked = tokio::task::spawn_blocking(move || check::check(&settings, &topics));
        checked
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
            .map_err(|message| SinkError { sink: self.settings.name.clone(), message })
    }

    async fn close(&self) {
        let producers = std::mem::take(&mut *self.producers());
        let flushed = tokio::task::spawn_blocking(move || {
            producers.iter().flatten().for_each(|producer| producer.flush(CLOSE_TIMEOUT));
        });
        drop(flushed.await);
    }
}

/// Checks a topic's name by Kafka's own rule.
fn check_topic(name: &str) -> Result<(), &'static str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name {
        "" | "." | ".." => Err("a topic needs a name other than `.` and `..`"),
        name if name.len() > 249 => Err("a topic has at most 249 characters"),
        name if !name.chars().all(legal) => {
            Err("a topic has ASCII letters, digits, `.`, `_` and `-` only")
        }
        _ => Ok(()),
    }
}
