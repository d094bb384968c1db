//! One HTTP request per event.

mod answer;
mod exchange;
mod targets;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use postrider_store::Event;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder};
use url::Url;

#[cfg(any(feature = "discord", feature = "slack"))]
pub(crate) use self::answer::Answer;
#[cfg(feature = "gateway")]
pub(crate) use self::answer::{Meaning, asked_wait, meaning};
pub(crate) use self::exchange::{Dialect, Exchange};
#[cfg(any(feature = "discord", feature = "slack"))]
pub(crate) use self::targets::Target;
pub(crate) use self::targets::Targets;
#[cfg(feature = "gateway")]
pub(crate) use self::targets::{dot_segments, host_of};
use crate::http::{Signer, client_for};
use crate::message::body::{Body, Escape};
use crate::message::envelope::{Envelope, EnvelopeSettings};
use crate::message::routes::RouteSettings;
use crate::message::template::percent_encoded;
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// Prefix of CloudEvents attributes in headers.
const ATTRIBUTE_PREFIX: &str = "ce-";

/// Prefix of an encoded value that a header cannot carry as it is.
const ENCODED: &str = "UTF-8''";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Headers of every message, whose names do not have to be parsed for each of them.
static KNOWN: [HeaderName; 5] = [
    HeaderName::from_static("postrider-event-id"),
    HeaderName::from_static("postrider-event-type"),
    HeaderName::from_static("postrider-aggregate-type"),
    HeaderName::from_static("postrider-aggregate-id"),
    HeaderName::from_static("postrider-content-hash"),
];
/// Headers that frame a request or name its target. An event may carry them, copied from the
/// request that it came from; they must not corrupt the sink's own request.
const FRAMING: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// Settings of an HTTP sink.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Name in the configuration.
    pub name: String,
    /// Method, such as `POST`.
    pub method: String,
    /// Template of the URL for events that no route takes; see [`crate::message::template`].
    pub url: Option<String>,
    /// Routes to other URLs.
    pub routes: Vec<RouteSettings>,
    /// Headers sent with every request.
    pub headers: Vec<(String, String)>,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Maximum number of requests to one host at the same time.
    pub host_concurrency_max: usize,
    /// Form of the message.
    pub envelope: EnvelopeSettings,
    /// Template of the body (Jinja), instead of the payload.
    pub body: Option<String>,
    /// Secrets for signatures by the Standard Webhooks specification; each of them signs.
    pub signing_secrets: Vec<String>,
    /// Forward proxy; absent: the proxies of the environment.
    pub proxy: Option<String>,
    /// Certificates in PEM form, trusted in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// Refuses to connect to addresses that are not public.
    pub deny_private_addresses: bool,
    /// Keeps the destination's response with the event, if the outbox archives delivered events.
    pub keep_response: bool,
}

impl HttpSettings {
    /// Creates settings with the defaults: `POST` of the payload as JSON, 5 s, 16 requests at once
    /// to a host.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            method: "POST".to_owned(),
            url: Some(url.into()),
            routes: Vec::new(),
            headers: Vec::new(),
            timeout: Duration::from_secs(5),
            host_concurrency_max: 16,
            envelope: EnvelopeSettings::default(),
            body: None,
            signing_secrets: Vec::new(),
            proxy: None,
            ca: None,
            deny_private_addresses: false,
            keep_response: false,
        }
    }
}

/// Delivers over HTTP.
pub struct HttpSink {
    name: String,
    method: Method,
    headers: HeaderMap,
    envelope: Envelope,
    body: Option<Body>,
    signer: Signer,
    exchange: Exchange,
    proxy: Option<String>,
}

impl HttpSink {
    /// Checks the settings and creates the sink without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: HttpSettings) -> Result<Self, SinkError> {
        let name = settings.name.clone();
        Self::build(settings).map_err(|message| SinkError { sink: name, message })
    }

    fn build(settings: HttpSettings) -> Result<Self, String> {
        let method = Method::from_bytes(settings.method.as_bytes())
            .ok()
            .filter(|method| method.as_str().chars().all(|c| c.is_ascii_uppercase()))
            .ok_or_else(|| {
                format!("method `{}` is none; use GET, POST, PUT, PATCH or DELETE", settings.method)
            })?;
        let escape = match settings.envelope.content_is_json() {
            true => Escape::Json,
            false => Escape::None,
        };
        let body = settings.body.as_deref().map(|text| Body::compile("body", text, escape));
        HeaderValue::try_from(&settings.envelope.content_type).map_err(|_| {
            format!("`content_type` = `{}` is none", settings.envelope.content_type)
        })?;
        let (proxy, guarded) = (settings.proxy.as_deref(), settings.deny_private_addresses);
        Ok(Self {
            method,
            headers: fixed_headers(&settings.headers)?,
            envelope: Envelope::new(&settings.envelope)?,
            body: body.transpose()?,
            signer: Signer::new(&settings.signing_secrets)?,
            exchange: Exchange {
                client: client_for(settings.timeout, proxy, guarded, settings.ca.as_deref())?,
                targets: Targets::new(settings.url.as_deref(), &settings.routes)?,
                timeout: settings.timeout,
                at_once_max: settings.host_concurrency_max.max(1),
                deny_private_addresses: guarded,
                keep_response: settings.keep_response,
                places: Mutex::default(),
            },
            name: settings.name,
            proxy: settings.proxy,
        })
    }

    fn sends_body(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Builds headers and body. The event's own headers come first, so that it cannot replace
    /// credentials.
    fn prepare(&self, view: &EventView<'_>) -> Result<(HeaderMap, String), String> {
        let data = match &self.body {
            Some(body) => Cow::Owned(body.render(view)?),
            None => Cow::Borrowed(view.event.payload.as_str()),
        };
        let message = self.envelope.message(view, data, ATTRIBUTE_PREFIX)?;
        let mut headers = HeaderMap::with_capacity(message.headers.len() + 8);
        for (name, value) in &message.headers {
            let header = match KNOWN.iter().find(|known| known.as_str() == name) {
                Some(known) => known.clone(),
                None => HeaderName::try_from(name.as_ref())
                    .map_err(|_| format!("header `{name}` of the event has no valid name"))?,
            };
            if !FRAMING.contains(&header.as_str()) {
                headers.insert(header, header_value(name, value));
            }
        }
        headers.insert(CONTENT_TYPE, header_value("content-type", &message.content_type));
        let id = &view.event.event_id;
        headers.insert(IDEMPOTENCY_KEY, header_value("idempotency-key", id));
        headers.extend(self.headers.clone());
        let body = if self.sends_body() { message.body.into_owned() } else { String::new() };
        if body.is_empty() && has_content(&self.method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        self.signer.sign(&mut headers, id, Utc::now(), &body);
        Ok((headers, body))
    }
}

impl Dialect for HttpSink {
    fn request(
        &self,
        client: &Client,
        url: Url,
        view: &EventView<'_>,
    ) -> Result<RequestBuilder, Outcome> {
        let (headers, body) =
            self.prepare(view).map_err(|error| Outcome::CannotEncode { error })?;
        let request = client.request(self.method.clone(), url).headers(headers);
        Ok(if self.sends_body() { request.body(body) } else { request })
    }
}

#[async_trait]
impl Sink for HttpSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        self.exchange.targets.host(&EventView::new(event))
    }

    fn only_destination(&self) -> Option<&str> {
        self.exchange.targets.only_host()
    }

    fn enters_each(&self) -> bool {
        true
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        self.exchange.deliver(batch, self).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        let checked = self.exchange.check(self.proxy.as_deref()).await;
        checked.map_err(|message| SinkError { sink: self.name.clone(), message })
    }

    async fn close(&self) {}
}

/// Returns whether a request with this method has content, even if it is empty. The client sends no
/// length for an empty body, and some servers refuse a request without one (411).
pub(crate) fn has_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

pub(crate) fn fixed_headers(settings: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in settings {
        let header = HeaderName::try_from(name)
            .map_err(|_| format!("`headers`: `{name}` cannot be a header name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            format!("the value of header `{name}` has characters that headers cannot carry")
        })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Encodes a header value. A header carries ASCII; any other value is written as in RFC 8187,
/// `UTF-8''Gr%C3%BC%C3%9Fe`, and so is a value that itself starts with that prefix: a receiver
/// recognises by the prefix what to decode. CloudEvents has its own rule for its attributes.
fn header_value(name: &str, text: &str) -> HeaderValue {
    let (is_plain, mark) = match name.starts_with(ATTRIBUTE_PREFIX) {
        true => (text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'%'), ""),
        false => {
            let marked = text.get(..ENCODED.len());
            let is_marked = marked.is_some_and(|start| start.eq_ignore_ascii_case(ENCODED));
            // White space around a value is not part of it.
            (text.is_ascii() && text.trim() == text && !is_marked, ENCODED)
        }
    };
    let plain = is_plain.then(|| HeaderValue::try_from(text).ok()).flatten();
    plain.unwrap_or_else(|| {
        let encoded = format!("{mark}{}", percent_encoded(text));
        HeaderValue::try_from(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    static SINK: LazyLock<HttpSink> = LazyLock::new(|| {
        let headers = vec![("Authorization".to_owned(), "Bearer ours".to_owned())];
        HttpSink::new(HttpSettings { headers, ..HttpSettings::new("s", "http://h/") }).unwrap()
    });

    proptest! {
        /// Any value is read back by the rule that the documentation gives to receivers.
        #[test]
        fn fuzz_header_values(text in fuzz::text()) {
            let value = header_value("tenant", &text);
            let sent = value.to_str().unwrap();
            prop_assert_eq!(sent.trim(), sent);
            let read = match sent.strip_prefix(ENCODED) {
                Some(encoded) => fuzz::percent_decoded(encoded),
                None => sent.as_bytes().to_vec(),
            };
            prop_assert_eq!(read, text.as_bytes());
            let attribute = header_value("ce-subject", &text);
            prop_assert_eq!(fuzz::percent_decoded(attribute.to_str().unwrap()), text.as_bytes());
        }

        /// No event replaces the sink's headers or the framing of a request.
        #[test]
        fn fuzz_header_values_of_events(
            event in fuzz::event(),
            forged in proptest::sample::select(vec![
                "Authorization", "content-LENGTH", "Transfer-Encoding", "Idempotency-Key", "host",
                "postrider-event-id", "Content-Type", "te", "expect",
            ]),
        ) {
            let headers = serde_json::json!({ forged: "forged", "other": "o" }).to_string();
            for event in [Event { headers: Some(headers), ..event.clone() }, event] {
                let Ok((headers, body)) = SINK.prepare(&EventView::new(&event)) else { continue };
                prop_assert_eq!(&headers["authorization"], "Bearer ours");
                prop_assert_eq!(&headers[IDEMPOTENCY_KEY], event.event_id.as_str());
                prop_assert_eq!(&headers[CONTENT_TYPE], "application/json");
                prop_assert_eq!(&body, &event.payload);
                for name in FRAMING {
                    let is_ours = name == CONTENT_LENGTH.as_str() && body.is_empty();
                    let expected = is_ours.then_some("0");
                    prop_assert_eq!(headers.get(name).and_then(|v| v.to_str().ok()), expected);
                }
            }
        }
    }
}
