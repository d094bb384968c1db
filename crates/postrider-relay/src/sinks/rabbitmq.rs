//! Messages to RabbitMQ exchanges, each confirmed by the broker.
//!
//! Where order is kept, a key's next message is published when the one before it is confirmed: a
//! broker may refuse a message and take the one behind it.

mod link;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation};
use postrider::Event;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::link::{Link, Lost};
use super::runs::{all_down, down, in_runs};
use crate::message::{Envelope, EnvelopeSettings, Message};
use crate::routes::{RouteSettings, Router};
use crate::sink::{Batch, Outcome, Sink, SinkError};
use crate::template::{Template, verbatim};
use crate::view::EventView;

/// Of CloudEvents attributes in AMQP headers.
const ATTRIBUTE_PREFIX: &str = "cloudEvents:";
/// The broker writes the message to disk before it confirms it, where the queue is durable.
const PERSISTENT: u8 = 2;

/// Settings of a RabbitMQ sink.
#[derive(Clone)]
pub struct RabbitSettings {
    /// Name in the configuration.
    pub name: String,
    /// `amqp://user:password@host:port/vhost`; `amqps://` for TLS.
    pub url: String,
    /// Certificates to trust in PEM form, beside those of the system.
    pub ca: Option<PathBuf>,
    /// Template of the exchange; empty is the default one, whose routing keys are queues.
    pub exchange: String,
    /// Template of the routing key of what no route takes.
    pub routing_key: Option<String>,
    /// Routes to other routing keys.
    pub routes: Vec<RouteSettings>,
    /// What a message looks like.
    pub envelope: EnvelopeSettings,
    /// Time to connect.
    pub timeout: Duration,
}

impl RabbitSettings {
    /// The defaults, for one exchange and the event type as routing key.
    pub fn new(name: &str, url: &str, exchange: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            ca: None,
            exchange: exchange.to_owned(),
            routing_key: Some("{event_type}".to_owned()),
            routes: Vec::new(),
            envelope: EnvelopeSettings::default(),
            timeout: Duration::from_secs(5),
        }
    }
}

/// Delivers to RabbitMQ.
pub struct RabbitSink {
    settings: RabbitSettings,
    server: link::Server,
    exchange: Template,
    router: Router,
    envelope: Envelope,
    /// Made when first needed, and again after a loss.
    link: Mutex<Option<Arc<Link>>>,
}

impl RabbitSink {
    /// Checks the settings and makes the sink; connects to nothing.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn new(settings: RabbitSettings) -> Result<Self, SinkError> {
        let fail = |message: String| SinkError { sink: settings.name.clone(), message };
        let server = link::Server::new(&settings.url, settings.ca.as_deref(), settings.timeout);
        let exchange = Template::parse(&settings.exchange);
        let exchange = exchange.map_err(|error| fail(format!("`exchange`: {error}")))?;
        let router = Router::new("routing_key", settings.routing_key.as_deref(), &settings.routes);
        let envelope = Envelope::new(&settings.envelope).map_err(&fail)?;
        Ok(Self {
            server: server.map_err(&fail)?,
            exchange,
            router: router.map_err(&fail)?,
            envelope,
            link: Mutex::default(),
            settings,
        })
    }

    /// The connection, a new one if there is none that works.
    async fn link(&self, deadline: Instant) -> Result<Arc<Link>, Lost> {
        let mut place = self.link.lock().await;
        if let Some(link) = place.as_ref().filter(|link| link.works()) {
            return Ok(Arc::clone(link));
        }
        *place = None;
        let link = Arc::new(self.server.connect(deadline).await?);
        *place = Some(Arc::clone(&link));
        Ok(link)
    }

    /// The next call makes a new connection: this one failed, or was silent up to the deadline.
    async fn forget(&self, link: &Arc<Link>) {
        let mut place = self.link.lock().await;
        if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *place = None;
        }
    }

    /// What is to be published, and where; or what becomes of an event that cannot be.
    fn letter<'a>(&'a self, view: &'a EventView<'a>) -> Result<Letter<'a>, Outcome> {
        let unfit = |error: String| Outcome::Unfit { error };
        let exchange = self
            .exchange
            .fill(view, verbatim)
            .map_err(|error| Outcome::NoRoute { error: format!("`exchange`: {error}") })?;
        let routing_key = self.router.resolve(view, verbatim)?;
        let payload = Cow::Borrowed(view.event.payload.as_str());
        let message = self.envelope.message(view, payload, ATTRIBUTE_PREFIX).map_err(unfit)?;
        Ok(Letter {
            exchange: short("exchange", &exchange).map_err(unfit)?,
            routing_key: short("routing key", &routing_key).map_err(unfit)?,
            properties: properties(view.event, &message).map_err(unfit)?,
            body: message.body,
        })
    }

    /// A channel, and the letters without those whose exchange is missing.
    async fn open(
        &self,
        letters: &mut [Result<Letter<'_>, Outcome>],
        deadline: Instant,
    ) -> Result<(Arc<Link>, Channel), Lost> {
        let link = self.link(deadline).await?;
        for letter in letters {
            let Ok(Letter { exchange, .. }) = letter else { continue };
            if !link.has_exchange(exchange.as_str(), deadline).await? {
                *letter = Err(self.no_exchange(exchange.as_str()));
            }
        }
        let channel = link.channel(deadline).await?;
        Ok((link, channel))
    }

    async fn send(&self, channel: &Channel, letter: &Letter<'_>) -> Outcome {
        // Mandatory: what no queue takes comes back instead of vanishing.
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let published = channel.basic_publish(
            letter.exchange.clone(),
            letter.routing_key.clone(),
            options,
            letter.body.as_bytes(),
            letter.properties.clone(),
        );
        let confirmed = match published.await {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(Confirmation::Ack(None)) => Outcome::Delivered,
            Ok(Confirmation::Ack(Some(_))) => Outcome::Rejected {
                error: format!(
                    "no queue of exchange `{}` takes routing key `{}`; bind one, or correct \
                     `exchange` and `routing_key` of sink `{}`",
                    letter.exchange, letter.routing_key, self.settings.name
                ),
                detail: None,
            },
            Ok(Confirmation::Nack(_)) => {
                down("the broker could not take the message: a queue is full or failed")
            }
            Ok(Confirmation::NotRequested) => down("the broker does not confirm messages"),
            Err(error) => Lost::from(error).outcome(),
        }
    }

    /// A fixed exchange that is missing is a matter of configuration, and every event waits; one
    /// that an event names is a matter of this event.
    fn no_exchange(&self, exchange: &str) -> Outcome {
        let error = no_exchange(exchange);
        match self.exchange.fixed() {
            Some(_) => down(error),
            None => Outcome::Rejected { error, detail: None },
        }
    }
}

#[async_trait]
impl Sink for RabbitSink {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let exchange = self.exchange.fill(&EventView::new(event), verbatim);
        exchange.unwrap_or(Cow::Borrowed(&self.settings.name))
    }

    fn only_destination(&self) -> Option<&str> {
        self.exchange.fixed()
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        if !batch.may_start() {
            return vec![Outcome::Untried; batch.events.len()];
        }
        let views: Vec<EventView<'_>> = batch.events.iter().map(EventView::new).collect();
        let mut letters: Vec<_> = views.iter().map(|view| self.letter(view)).collect();
        let (link, channel) = match self.open(&mut letters, batch.deadline).await {
            Ok(opened) => opened,
            Err(lost) => return all_down(&lost.outcome(), batch.events.len()),
        };
        let (letters, channel) = (&letters, &channel);
        let outcomes = in_runs(&batch, |index, _| {
            let letter = &letters[index];
            async move {
                match letter {
                    Ok(letter) => self.send(channel, letter).await,
                    Err(outcome) => outcome.clone(),
                }
            }
        });
        let outcomes = outcomes.await;
        if Instant::now() >= batch.deadline || !link.works() {
            self.forget(&link).await;
        } else {
            link.give_back(channel.clone());
        }
        outcomes
    }

    async fn check(&self) -> Result<(), SinkError> {
        let fail = |message| SinkError { sink: self.settings.name.clone(), message };
        let deadline = Instant::now() + self.settings.timeout;
        let link = self.server.connect(deadline).await;
        let link = link.map_err(|lost| fail(self.server.explain(&lost)))?;
        let Some(exchange) = self.exchange.fixed() else { return Ok(()) };
        match link.has_exchange(exchange, deadline).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(fail(no_exchange(exchange))),
            Err(lost) => Err(fail(self.server.explain(&lost))),
        }
    }

    async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.close().await;
        }
    }
}

/// A message with its way.
struct Letter<'a> {
    exchange: ShortString,
    routing_key: ShortString,
    properties: BasicProperties,
    body: Cow<'a, str>,
}

fn properties(event: &Event, message: &Message<'_>) -> Result<BasicProperties, String> {
    let mut headers = FieldTable::default();
    for (name, value) in &message.headers {
        let value = AMQPValue::LongString(value.as_ref().into());
        headers.insert(short("header", name)?, value);
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short("event id", &event.event_id)?)
        .with_content_type(short("content type", &message.content_type)?)
        .with_timestamp(event.created_at.timestamp().unsigned_abs())
        .with_headers(headers);
    // A long type is in its header only.
    Ok(match ShortString::try_new(event.event_type.as_str()) {
        Ok(event_type) => properties.with_type(event_type),
        Err(_) => properties,
    })
}

/// AMQP writes names with a length of one byte.
fn short(what: &str, text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text)
        .map_err(|_| format!("{what} `{text}` has {} bytes; AMQP carries 255", text.len()))
}

fn no_exchange(exchange: &str) -> String {
    format!("exchange `{exchange}` does not exist; declare it, or correct `exchange` of the sink")
}
