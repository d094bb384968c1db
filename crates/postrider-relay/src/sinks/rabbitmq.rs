//! Messages to RabbitMQ exchanges, each confirmed by the broker.
//!
//! If order is kept, a key's next message is published when the whole previous wave is confirmed: a
//! broker may refuse a message and accept the next one.

mod confirms;
mod link;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use postrider_store::Event;
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::confirms::Verdict;
use self::link::{Link, Lost, is_refusal_of_message};
use super::waves::{Answer, Publish, down, in_waves};
use crate::message::envelope::{Envelope, EnvelopeSettings, Message};
use crate::message::routes::{RouteSettings, Router};
use crate::message::template::{Template, verbatim};
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// Prefix of CloudEvents attributes in AMQP headers.
const ATTRIBUTE_PREFIX: &str = "cloudEvents:";
/// Headers by which the broker routes a message to further queues; those of an event are not passed
/// on.
const ROUTING_HEADERS: [&str; 2] = ["CC", "BCC"];
/// Delivery mode: the broker writes the message to disk before it confirms it, if the queue is
/// durable.
const PERSISTENT: u8 = 2;

/// Settings of a RabbitMQ sink.
#[derive(Clone)]
pub struct RabbitSettings {
    /// Name in the configuration.
    pub name: String,
    /// `amqp://user:password@host:port/vhost`; `amqps://` for TLS.
    pub url: String,
    /// Certificates in PEM form, trusted in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// Template of the exchange; empty is the default exchange, whose routing keys are queues.
    pub exchange: String,
    /// Template of the routing key for events that no route takes.
    pub routing_key: Option<String>,
    /// Routes to other routing keys.
    pub routes: Vec<RouteSettings>,
    /// Form of the message.
    pub envelope: EnvelopeSettings,
    /// Timeout of connecting.
    pub timeout: Duration,
}

impl RabbitSettings {
    /// Creates settings with the defaults, for one exchange and the event type as routing key.
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
    /// Exchange and routing key, if they do not depend on the event.
    only_destination: Option<String>,
    envelope: Envelope,
    /// Created on first use, and again after a loss.
    link: Mutex<Option<Arc<Link>>>,
}

impl RabbitSink {
    /// Checks the settings and creates the sink without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: RabbitSettings) -> Result<Self, SinkError> {
        let fail = |message: String| SinkError { sink: settings.name.clone(), message };
        let server = link::Server::new(&settings.url, settings.ca.as_deref(), settings.timeout);
        let exchange = Template::parse(&settings.exchange);
        let exchange = exchange.map_err(|error| fail(format!("`exchange`: {error}")))?;
        let router = Router::new("routing_key", settings.routing_key.as_deref(), &settings.routes);
        let router = router.map_err(&fail)?;
        let envelope = Envelope::new(&settings.envelope).map_err(&fail)?;
        let only = exchange.fixed().zip(router.only());
        Ok(Self {
            server: server.map_err(&fail)?,
            only_destination: only.map(|(exchange, key)| destination(exchange, key)),
            exchange,
            router,
            envelope,
            link: Mutex::default(),
            settings,
        })
    }

    /// Returns the connection, and creates it if there is none that works.
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

    /// Drops a connection that failed or was silent until the deadline; the next call creates a new
    /// one.
    async fn forget(&self, link: &Arc<Link>) {
        let mut place = self.link.lock().await;
        if place.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *place = None;
        }
    }

    /// Builds the message of an event and its route, or returns the outcome of an event that has
    /// none.
    fn letter<'a>(&'a self, view: &'a EventView<'a>) -> Result<Letter<'a>, Outcome> {
        let cannot_encode = |error: String| Outcome::CannotEncode { error };
        let exchange = self
            .exchange
            .fill(view, verbatim)
            .map_err(|error| Outcome::NoRoute { error: format!("`exchange`: {error}") })?;
        let routing_key = self.router.resolve(view, verbatim)?;
        let payload = Cow::Borrowed(view.event.payload.as_str());
        let message =
            self.envelope.message(view, payload, ATTRIBUTE_PREFIX).map_err(cannot_encode)?;
        Ok(Letter {
            exchange: short("exchange", &exchange).map_err(cannot_encode)?,
            routing_key: short("routing key", &routing_key).map_err(cannot_encode)?,
            properties: properties(view.event, &message).map_err(cannot_encode)?,
            body: message.body,
        })
    }

    fn answer(&self, letter: &Letter<'_>, verdict: Verdict) -> Answer {
        Answer::Known(match verdict {
            Verdict::Stored => Outcome::Delivered,
            Verdict::Returned => Outcome::Rejected {
                error: format!(
                    "no queue of exchange `{}` takes routing key `{}`; bind one, or correct \
                     `exchange` and `routing_key` of sink `{}`",
                    letter.exchange, letter.routing_key, self.settings.name
                ),
                detail: None,
            },
            Verdict::Refused => {
                down("the broker could not take the message: a queue is full or failed")
            }
            Verdict::Doubt(Some(error)) => return Answer::Missing(Lost::from(error).outcome()),
            Verdict::Doubt(None) => return Answer::Missing(down("no answer in time")),
        })
    }

    /// Returns the outcome of an event whose exchange is missing. If the exchange is fixed, the
    /// configuration is wrong, and every event waits; if the event names it, the event is the
    /// cause.
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
        if let Some(only) = &self.only_destination {
            return Cow::Borrowed(only);
        }
        let view = EventView::new(event);
        match (self.exchange.fill_kind(&view), self.router.resolve_kind(&view)) {
            (Ok(exchange), Ok(key)) => Cow::Owned(destination(&exchange, &key)),
            // Without a route there is nothing that could be down.
            _ => Cow::Borrowed(&self.settings.name),
        }
    }

    fn only_destination(&self) -> Option<&str> {
        self.only_destination.as_deref()
    }

    fn server(&self) -> Option<&str> {
        Some(&self.server.address)
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        if !batch.may_start() {
            return vec![Outcome::Untried; batch.events.len()];
        }
        let views: Vec<EventView<'_>> = batch.events.iter().map(EventView::new).collect();
        let letters = views.iter().map(|view| self.letter(view)).collect();
        in_waves(&batch, &Call { sink: self, letters, deadline: batch.deadline }).await
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

/// The messages of one call.
struct Call<'a> {
    sink: &'a RabbitSink,
    letters: Vec<Result<Letter<'a>, Outcome>>,
    deadline: Instant,
}

impl Publish for Call<'_> {
    async fn publish(&self, places: &[usize], apart: bool) -> Vec<Answer> {
        let link = match apart {
            true => self.sink.server.connect(self.deadline).await.map(Arc::new),
            false => self.sink.link(self.deadline).await,
        };
        let answers = match link {
            Ok(link) => self.publish_by(&link, places).await,
            Err(lost) => Err(lost),
        };
        answers
            .unwrap_or_else(|lost| places.iter().map(|_| Answer::Known(lost.outcome())).collect())
    }
}

impl Call<'_> {
    /// Publishes messages over one connection.
    ///
    /// # Errors
    /// Says why nothing was sent.
    async fn publish_by(&self, link: &Arc<Link>, places: &[usize]) -> Result<Vec<Answer>, Lost> {
        let (mut answers, mut letters) = (Vec::with_capacity(places.len()), Vec::new());
        for place in places {
            let fitting = match &self.letters[*place] {
                Ok(letter) => self.fits(link, letter).await?.map(|()| letter),
                Err(outcome) => Err(outcome.clone()),
            };
            answers.push(fitting.map(|letter| letters.push(letter)).err().map(Answer::Known));
        }
        if letters.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        let channel = link.channel(self.deadline).await?;
        let verdicts = confirms::publish(&channel, &letters, self.deadline).await;
        if let [Verdict::Doubt(Some(error))] = &verdicts[..]
            && is_refusal_of_message(error)
        {
            let rejected = Outcome::Rejected { error: error.to_string(), detail: None };
            let answer = |known: Option<Answer>| known.unwrap_or(Answer::Known(rejected.clone()));
            return Ok(answers.into_iter().map(answer).collect());
        }
        // After a doubt, anything that still arrives on the channel belongs to this wave, not to
        // the next.
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Doubt(_))) {
            link.give_back(channel);
        } else if Instant::now() >= self.deadline || !link.works() {
            self.sink.forget(link).await;
        } else {
            link.forget_exchanges();
        }
        let answer = |(letter, verdict): (&&Letter<'_>, _)| self.sink.answer(letter, verdict);
        let mut sent = letters.iter().zip(verdicts).map(answer);
        let answer = |known: Option<Answer>| known.or_else(|| sent.next());
        Ok(answers.into_iter().filter_map(answer).collect())
    }

    /// Checks whether the broker can accept this message. One that it cannot accept would close the
    /// channel, or the connection, for all others.
    ///
    /// # Errors
    /// Says why the broker could not be asked.
    async fn fits(&self, link: &Link, letter: &Letter<'_>) -> Result<Result<(), Outcome>, Lost> {
        let (bytes, bytes_max) = (header_frame_bytes(&letter.properties), link.frame_bytes_max());
        if bytes > bytes_max {
            let error = format!(
                "the headers of the message need {bytes} bytes; the broker takes {bytes_max} \
                 (`frame_max`)"
            );
            return Ok(Err(Outcome::CannotEncode { error }));
        }
        let exchange = letter.exchange.as_str();
        let exists = link.has_exchange(exchange, self.deadline).await?;
        Ok(exists.then_some(()).ok_or_else(|| self.sink.no_exchange(exchange)))
    }
}

/// A message with its exchange and routing key.
struct Letter<'a> {
    exchange: ShortString,
    routing_key: ShortString,
    properties: BasicProperties,
    body: Cow<'a, str>,
}

fn properties(event: &Event, message: &Message<'_>) -> Result<BasicProperties, String> {
    let mut headers = FieldTable::default();
    let plain = |name: &str| !ROUTING_HEADERS.contains(&name);
    for (name, value) in message.headers.iter().filter(|(name, _)| plain(name)) {
        let value = AMQPValue::LongString(value.as_ref().into());
        headers.insert(short("header", name)?, value);
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(short("event id", &event.event_id)?)
        .with_content_type(short("content type", &message.content_type)?)
        .with_timestamp(event.created_at.timestamp().unsigned_abs())
        .with_headers(headers);
    // An event type that is too long for this property is in its header only.
    Ok(match ShortString::try_new(event.event_type.as_str()) {
        Ok(event_type) => properties.with_type(event_type),
        Err(_) => properties,
    })
}

/// Returns the bytes of the frame that carries a message's properties; AMQP does not split it.
fn header_frame_bytes(properties: &BasicProperties) -> usize {
    // Frame overhead, class, weight, size of the body, and flags.
    const FIXED: usize = 8 + 2 + 2 + 8 + 2;
    const TIMESTAMP_AND_MODE: usize = 8 + 1;
    let short =
        |text: &Option<ShortString>| text.as_ref().map_or(0, |text| 1 + text.as_str().len());
    let texts = [properties.message_id(), properties.content_type(), properties.kind()];
    let table = properties.headers().as_ref().map_or(0, |table| {
        let header = |(name, value): (&ShortString, &AMQPValue)| match value {
            AMQPValue::LongString(text) => 1 + name.as_str().len() + 1 + 4 + text.len(),
            _ => 0,
        };
        4 + table.inner().iter().map(header).sum::<usize>()
    });
    FIXED + TIMESTAMP_AND_MODE + texts.into_iter().map(short).sum::<usize>() + table
}

/// Returns the name of what fails together when a queue is full or failed: messages with the same
/// route.
fn destination(exchange: &str, routing_key: &str) -> String {
    match exchange {
        // In the default exchange, the routing key is the name of a queue.
        "" => routing_key.to_owned(),
        exchange => format!("{exchange}/{routing_key}"),
    }
}

/// Converts a name for AMQP, which stores its length in one byte.
fn short(what: &str, text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text)
        .map_err(|_| format!("{what} `{text}` has {} bytes; AMQP carries 255", text.len()))
}

fn no_exchange(exchange: &str) -> String {
    format!("exchange `{exchange}` does not exist; declare it, or correct `exchange` of the sink")
}
