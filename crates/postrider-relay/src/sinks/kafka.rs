//! Messages to Kafka topics, with the aggregate id as the key.
//!
//! A call queues its whole batch before it waits for the first answer. What librdkafka does after a
//! failure, and how order survives it, is told in docs/decisions/0021.

mod answers;
mod check;
mod delivery;
mod producer;
mod settings;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider::Event;

use self::delivery::Delivery;
use self::producer::Producer;
use self::settings::Kind;
pub use self::settings::{KafkaSettings, Sasl, Tls};
use crate::message::Envelope;
use crate::routes::Router;
use crate::sink::{Batch, Outcome, Sink, SinkError};
use crate::template::verbatim;
use crate::view::EventView;

/// Time for what is queued when the sink is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Delivers to Kafka.
pub struct KafkaSink {
    settings: KafkaSettings,
    router: Router,
    envelope: Envelope,
    /// Topics that the configuration names in full.
    fixed_topics: Vec<String>,
    /// One of each [`Kind`], made when first needed.
    producers: Mutex<[Option<Arc<Producer>>; Kind::ALL.len()]>,
}

impl KafkaSink {
    /// Checks the settings and makes the sink; connects to nothing.
    ///
    /// # Errors
    /// Names the setting that is wrong.
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
        Ok(Self { router, envelope, fixed_topics, producers: Mutex::default(), settings })
    }

    /// The producer of that kind, a new one if there is none.
    fn producer(&self, kind: Kind) -> Result<Arc<Producer>, String> {
        let mut producers = self.producers();
        let place = &mut producers[kind as usize];
        if let Some(producer) = place {
            return Ok(Arc::clone(producer));
        }
        let producer = Arc::new(Producer::create(&self.settings.client_config(kind))?);
        *place = Some(Arc::clone(&producer));
        Ok(producer)
    }

    /// Ends a producer with all that it holds; the next call makes a new one. Messages of other
    /// calls go with it: a producer that gave one up may leave a gap, and those behind it must not
    /// be sent.
    fn retire(&self, kind: Kind, producer: &Arc<Producer>) {
        let mut producers = self.producers();
        let place = &mut producers[kind as usize];
        if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, producer)) {
            *place = None;
        }
        drop(producers);
        producer.purge();
    }

    fn producers(&self) -> MutexGuard<'_, [Option<Arc<Producer>>; Kind::ALL.len()]> {
        self.producers.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Kafka's own rule for names.
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
