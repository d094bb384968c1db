//! Messages to NATS JetStream, each acknowledged by its stream.
//!
//! The `Nats-Msg-Id` names the delivery: a stream drops its repeat within a window, and no other
//! delivery of the same event. If order is kept, a key's next message is published when the
//! previous one is acknowledged.

mod link;
mod message_id;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::header::{HeaderName, HeaderValue};
use async_nats::{HeaderMap, Subject};
use async_trait::async_trait;
use futures_util::future::join_all;
use postrider_store::Event;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use self::link::{Answer as Word, Link, Lost, Server};
use self::message_id::message_id;
use super::waves::{Answer, Publish, down, in_waves};
use crate::message::envelope::{Envelope, EnvelopeSettings, Message};
use crate::message::routes::{RouteSettings, Router};
use crate::message::template::{Template, percent_encoded, verbatim};
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};
use crate::telemetry::{self, label};

/// Prefix of CloudEvents attributes in NATS headers.
const ATTRIBUTE_PREFIX: &str = "ce-";
/// Prefix of headers that control a stream; those of an event are not passed on.
const CONTROL_PREFIX: &str = "nats-";
/// Maximum bytes of a subject. A line of the protocol has 4,096 bytes (`max_control_line`); besides
/// the subject it holds the reply subject and two sizes. A longer line makes the server close the
/// connection.
const SUBJECT_BYTES_MAX: usize = 3_900;
/// Subjects on which the server accepts commands (`$JS.API.…`, `$SYS.…`), and on which clients
/// await answers.
const RESERVED_SUBJECTS: [&str; 2] = ["$", "_INBOX."];

/// Settings of a NATS sink.
#[derive(Clone)]
pub struct NatsSettings {
    /// Name in the configuration.
    pub name: String,
    /// `nats://user:password@host:port`, several separated by commas; `tls://` for TLS.
    pub url: String,
    /// File with a JWT and its key, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// Certificates in PEM form, trusted in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// Template of the subject for events that no route takes.
    pub subject: Option<String>,
    /// Routes to other subjects.
    pub routes: Vec<RouteSettings>,
    /// Form of the message.
    pub envelope: EnvelopeSettings,
    /// Timeout of connecting, and of one acknowledgement.
    pub timeout: Duration,
}

impl NatsSettings {
    /// Creates settings with the defaults, for one subject.
    pub fn new(name: &str, url: &str, subject: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            credentials: None,
            ca: None,
            subject: Some(subject.to_owned()),
            routes: Vec::new(),
            envelope: EnvelopeSettings::default(),
            timeout: Duration::from_secs(5),
        }
    }
}

/// Delivers to NATS JetStream.
pub struct NatsSink {
    name: String,
    timeout: Duration,
    server: Server,
    router: Router,
    envelope: Envelope,
    /// Subjects that the configuration names in full.
    fixed_subjects: Vec<String>,
    /// For each other template, a wildcard for all subjects that it can produce: `orders.>` for
    /// `orders.{event_type}`.
    realms: Vec<String>,
    /// Created on first use, and again after a loss.
    link: Mutex<Option<Arc<Link>>>,
}

impl NatsSink {
    /// Checks the settings and creates the sink without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: NatsSettings) -> Result<Self, SinkError> {
        let fail = |message: String| SinkError { sink: settings.name.clone(), message };
        let router = Router::new("subject", settings.subject.as_deref(), &settings.routes);
        let router = router.map_err(&fail)?;
        let (mut fixed_subjects, mut realms) = (Vec::new(), Vec::new());
        for (setting, template) in router.templates() {
            check_subject(&template.outline("x"))
                .map_err(|error| fail(format!("{setting} is `{}`: {error}", template.text())))?;
            match template.fixed() {
                Some(subject) => fixed_subjects.push(subject.to_owned()),
                None => realms.push(realm(template)),
            }
        }
        Ok(Self {
            server: Server::new(&settings).map_err(&fail)?,
            envelope: Envelope::new(&settings.envelope).map_err(&fail)?,
            router,
            fixed_subjects,
            realms,
            link: Mutex::default(),
            timeout: settings.timeout,
            name: settings.name,
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
        // Not in `new`: a daemon builds its sinks before it records metrics.
        telemetry::start_nats(&self.name);
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

    /// Builds the message of an event and its subject, or returns the outcome of an event that has
    /// none.
    fn letter<'a>(
        &'a self,
        outbox: Option<&str>,
        view: &'a EventView<'a>,
    ) -> Result<Letter<'a>, Outcome> {
        let cannot_encode = |error: String| Outcome::CannotEncode { error };
        let subject = self.router.resolve(view, verbatim)?;
        check_subject(&subject).map_err(|error| {
            cannot_encode(format!("the event makes subject `{subject}`: {error}"))
        })?;
        let payload = Cow::Borrowed(view.event.payload.as_str());
        let message =
            self.envelope.message(view, payload, ATTRIBUTE_PREFIX).map_err(cannot_encode)?;
        let mut headers = headers(&message).map_err(cannot_encode)?;
        let id = message_id(outbox, view, &subject).map_err(cannot_encode)?;
        headers.insert("Nats-Msg-Id", header_value(&id));
        Ok(Letter { subject: Subject::from(subject.as_ref()), headers, body: message.body })
    }

    async fn send(&self, link: &Link, letter: &Letter<'_>) -> Answer {
        let body = letter.body.as_bytes().to_vec();
        let word = link.publish(letter.subject.clone(), letter.headers.clone(), body).await;
        Answer::Known(match word {
            Word::Stored => Outcome::Delivered,
            Word::Repeat => {
                metrics::counter!(telemetry::NATS_REPEATS, label::SINK => self.name.clone())
                    .increment(1);
                Outcome::Delivered
            }
            Word::Refused(error) => Outcome::Rejected { error, detail: None },
            Word::Unready(error) => down(error),
            Word::Lost(lost) => return Answer::Missing(lost.outcome()),
            Word::NoStream => return self.without_stream(link, letter.subject.as_str()).await,
        })
    }

    /// Returns the outcome of an event whose subject no stream takes. If the subject is fixed, or
    /// no stream takes any subject of its template, the configuration is wrong or a stream was
    /// deleted, and every event waits. Otherwise the event is the cause.
    async fn without_stream(&self, link: &Link, subject: &str) -> Answer {
        let mut is_missing = self.fixed_subjects.iter().any(|fixed| fixed == subject);
        let realms =
            self.realms.iter().filter(|realm| subject.starts_with(realm.trim_end_matches('>')));
        for realm in realms {
            match link.has_stream(realm).await {
                Ok(has_stream) => is_missing |= !has_stream,
                Err(lost) => return Answer::Missing(lost.outcome()),
            }
        }
        Answer::Known(match is_missing {
            true => down(no_stream(subject)),
            false => Outcome::Rejected { error: no_stream(subject), detail: None },
        })
    }
}

#[async_trait]
impl Sink for NatsSink {
    fn name(&self) -> &str {
        &self.name
    }

    /// A full stream may refuse all of its subjects, or only this one.
    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        let subject = self.router.resolve_kind(&EventView::new(event));
        // Without a subject there is nothing that could be down.
        subject.unwrap_or(Cow::Borrowed(&self.name))
    }

    fn only_destination(&self) -> Option<&str> {
        self.router.only()
    }

    fn server(&self) -> Option<&str> {
        Some(&self.server.addresses)
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        if !batch.may_start() {
            return vec![Outcome::Untried; batch.events.len()];
        }
        let views: Vec<EventView<'_>> = batch.events.iter().map(EventView::new).collect();
        let letters = views.iter().map(|view| self.letter(batch.outbox(), view)).collect();
        in_waves(&batch, &Call { sink: self, letters, deadline: batch.deadline }).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        let fail = |message| SinkError { sink: self.name.clone(), message };
        let link = self.server.connect(Instant::now() + self.timeout).await;
        let link = link.map_err(|lost| fail(lost.explain()))?;
        for subject in &self.fixed_subjects {
            if !link.has_stream(subject).await.map_err(|lost| fail(lost.explain()))? {
                return Err(fail(no_stream(subject)));
            }
        }
        Ok(())
    }

    async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.close().await;
        }
    }
}

/// The messages of one call.
struct Call<'a> {
    sink: &'a NatsSink,
    letters: Vec<Result<Letter<'a>, Outcome>>,
    deadline: Instant,
}

impl Publish for Call<'_> {
    async fn publish(&self, places: &[usize], apart: bool) -> Vec<Answer> {
        let link = match apart {
            true => self.sink.server.connect(self.deadline).await.map(Arc::new),
            false => self.sink.link(self.deadline).await,
        };
        let link = match link {
            Ok(link) => link,
            Err(lost) => return places.iter().map(|_| Answer::Known(lost.outcome())).collect(),
        };
        let answers = join_all(places.iter().map(|place| async {
            let letter = match &self.letters[*place] {
                Ok(letter) => letter,
                Err(outcome) => return Answer::Known(outcome.clone()),
            };
            let sent = timeout_at(self.deadline, self.sink.send(&link, letter)).await;
            sent.unwrap_or_else(|_| Answer::Missing(down("no answer in time")))
        }));
        let answers = answers.await;
        if Instant::now() >= self.deadline || !link.works() {
            self.sink.forget(&link).await;
        }
        answers
    }
}

/// A message with its subject.
struct Letter<'a> {
    subject: Subject,
    headers: HeaderMap,
    body: Cow<'a, str>,
}

fn headers(message: &Message<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let content_type = [("content-type", message.content_type.as_ref())];
    let named = message.headers.iter().map(|(name, value)| (&**name, &**value));
    for (name, value) in named.chain(content_type) {
        let start = name.get(..CONTROL_PREFIX.len());
        if start.is_some_and(|start| start.eq_ignore_ascii_case(CONTROL_PREFIX)) {
            continue;
        }
        let header: HeaderName = name
            .parse()
            .map_err(|error| format!("NATS does not carry a header named `{name}`: {error}"))?;
        let value = match name.starts_with(ATTRIBUTE_PREFIX) {
            true => attribute_value(value),
            false => Cow::Borrowed(value),
        };
        headers.insert(header, header_value(&value));
    }
    // By the NATS binding of CloudEvents, this attribute has its own name, where other bindings use
    // `content-type`.
    if message.headers.iter().any(|(name, _)| name == "ce-specversion") {
        headers.insert("ce-datacontenttype", header_value(&attribute_value(&message.content_type)));
    }
    Ok(headers)
}

/// Encodes a CloudEvents attribute for a header: everything but printable ASCII, and also space,
/// `"` and `%`, is percent-encoded.
fn attribute_value(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'%';
    if text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match plain(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(encoded)
}

/// Encodes a header value, which must be one line. A value with a line end is percent-encoded.
fn header_value(text: &str) -> HeaderValue {
    let plain = text.parse::<HeaderValue>();
    plain.unwrap_or_else(|_| HeaderValue::from(percent_encoded(text).as_ref()))
}

/// Checks that a subject can be published to.
fn check_subject(subject: &str) -> Result<(), &'static str> {
    let wild = |token: &str| token == "*" || token == ">";
    match subject {
        subject if subject.len() > SUBJECT_BYTES_MAX => Err("a subject has at most 3,900 bytes"),
        subject if RESERVED_SUBJECTS.iter().any(|reserved| subject.starts_with(reserved)) => {
            Err("subjects that begin with `$` or `_INBOX.` are the server's own")
        }
        subject if subject.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Err("a subject has no spaces")
        }
        subject if subject.split('.').any(str::is_empty) => {
            Err("no part of a subject between two dots may be empty")
        }
        subject if subject.split('.').any(wild) => Err("one cannot publish to `*` or `>`"),
        _ => Ok(()),
    }
}

/// Returns a wildcard for all subjects below the fixed parts of a template.
fn realm(template: &Template) -> String {
    let outline = template.outline("\0");
    let fixed = outline.split('\0').next().unwrap_or_default();
    fixed.rsplit_once('.').map_or_else(|| ">".to_owned(), |(parts, _)| format!("{parts}.>"))
}

fn no_stream(subject: &str) -> String {
    format!("no stream takes subject `{subject}`; add one, or correct `subject` of the sink")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_that_cannot_be_published_to_are_refused() {
        let long = "x".repeat(SUBJECT_BYTES_MAX + 1);
        let own = ["$JS.API.STREAM.PURGE.orders", "$SYS.x", "$x", "_INBOX.a.b"];
        for subject in ["", "a..b", ".a", "a b", "a.*", "a.>", "a\n", &long].iter().chain(&own) {
            assert!(check_subject(subject).is_err(), "{subject:?}");
        }
        for subject in ["a", "order.Größe", "a.b*c", "a.$b", "_INBOXES", &long[1..]] {
            assert_eq!(check_subject(subject), Ok(()));
        }
    }

    #[test]
    fn the_realm_of_a_template_is_what_all_of_its_subjects_begin_with() {
        for (text, wanted) in [
            ("orders.{event_type}", "orders.>"),
            ("shop.orders.v{header.version}.x", "shop.orders.>"),
            ("{aggregate_type}.{event_type}", ">"),
            ("orders-{event_type}", ">"),
        ] {
            assert_eq!(realm(&Template::parse(text).unwrap()), wanted);
        }
    }
}
