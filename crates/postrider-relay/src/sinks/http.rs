//! One HTTP request per event.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Event;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, StatusCode};
use tokio::sync::Semaphore;
use url::Url;

use crate::sink::{Batch, Outcome, Sink, SinkError};

/// `Down` answers of one host in one call, after which the rest of the call is not tried.
const DOWN_PER_CALL_MAX: u32 = 5;
/// Bytes of an answer's body that are kept for the dead letter.
const DETAIL_BYTES_MAX: usize = 4_096;
/// Bytes of a successful answer's body that are read to keep the connection.
const BODY_BYTES_MAX: usize = 64 * 1_024;
/// Hosts with a limit of their own; more than that share one.
const HOSTS_MAX: usize = 1_000;

/// Headers that frame a request or name its target: an event that carries them (as copied from a
/// request that it came by) must not garble ours.
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
    /// URL with `{aggregate_type}`, `{aggregate_id}`, `{event_type}`, `{event_id}` or `{id}`.
    pub url: String,
    /// Headers sent with every request.
    pub headers: Vec<(String, String)>,
    /// Time for one request.
    pub timeout: Duration,
    /// Requests at the same time to one host.
    pub host_concurrency_max: usize,
    /// `Content-Type` of the payload.
    pub content_type: String,
}

/// Delivers by HTTP.
pub struct HttpSink {
    settings: HttpSettings,
    method: Method,
    headers: HeaderMap,
    client: Client,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// The host, where the template has none in it.
    fixed_host: Option<String>,
}

impl HttpSink {
    /// Checks the settings and makes the sink; connects to nothing.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn new(settings: HttpSettings) -> Result<Self, SinkError> {
        let fail = |message: String| SinkError { sink: settings.name.clone(), message };
        let method = Method::from_bytes(settings.method.as_bytes())
            .ok()
            .filter(|method| method.as_str().chars().all(|c| c.is_ascii_uppercase()))
            .ok_or_else(|| {
                fail(format!(
                    "method `{}` is none; use GET, POST, PUT, PATCH or DELETE",
                    settings.method
                ))
            })?;
        check_template(&settings.url).map_err(&fail)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let name = HeaderName::try_from(name)
                .map_err(|_| fail(format!("`{name}` cannot be a header name")))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| {
                fail(format!(
                    "the value of header `{name}` has characters that headers cannot carry"
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = client(settings.timeout).map_err(&fail)?;
        let fixed_host = fixed_host(&settings.url);
        let hosts = Mutex::new(HashMap::new());
        Ok(Self { method, headers, client, hosts, fixed_host, settings })
    }

    /// The limit of a host, shared by all calls.
    fn places(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let host = if hosts.len() >= HOSTS_MAX && !hosts.contains_key(host) { "" } else { host };
        let places = self.settings.host_concurrency_max;
        Arc::clone(hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(places))))
    }

    async fn deliver_one<'a>(
        &'a self,
        batch: &Batch<'a>,
        event: &'a Event,
        downs: &HashMap<String, AtomicU32>,
    ) -> Outcome {
        let (host, deadline) = (self.destination(event), batch.deadline);
        let places = self.places(&host);
        let place = tokio::time::timeout_at(deadline.into(), places.acquire()).await;
        let Ok(Ok(_place)) = place else { return Outcome::Untried };
        let down = downs.get(host.as_ref());
        let enough = down.is_some_and(|n| n.load(Ordering::Relaxed) >= DOWN_PER_CALL_MAX);
        if enough {
            return Outcome::Untried;
        }
        let Some(place) = batch.enter(event, &host).await else { return Outcome::Untried };
        // Not beyond the deadline of the call, or its other outcomes would be lost with this one.
        let left = deadline.saturating_duration_since(Instant::now());
        let outcome = self.request(event, left.min(self.settings.timeout)).await;
        place.leave(&outcome);
        if let (Outcome::Down { .. }, Some(down)) = (&outcome, down) {
            down.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    async fn request(&self, event: &Event, timeout: Duration) -> Outcome {
        let rejected = |error: String| Outcome::Rejected { error, detail: None };
        let filled = fill(&self.settings.url, event);
        if climbs(&filled) && !climbs(&self.settings.url) {
            return rejected("the event puts `.` or `..` into the path of the URL".to_owned());
        }
        let url = match Url::parse(&filled) {
            Ok(url) => url,
            Err(error) => return rejected(format!("the event makes no valid URL: {error}")),
        };
        let headers = match self.event_headers(event) {
            Ok(headers) => headers,
            Err(error) => return rejected(error),
        };
        let request = self.client.request(self.method.clone(), url);
        let mut request = request.headers(headers).timeout(timeout);
        if !matches!(self.method, Method::GET | Method::HEAD) {
            request = request.body(event.payload.clone());
        }
        match request.send().await {
            Ok(answer) => classify(answer).await,
            Err(error) => Outcome::Down {
                error: connection_error(&error),
                retry_after: None,
                credentials: false,
            },
        }
    }

    /// Headers of the event itself first, then ours, so that an event cannot replace credentials.
    fn event_headers(&self, event: &Event) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in event.headers()? {
            let header = HeaderName::try_from(&name)
                .map_err(|_| format!("header `{name}` of the event has no valid name"))?;
            if !FRAMING.contains(&header.as_str()) {
                headers.insert(header, header_value(&value));
            }
        }
        let hash = event.content_hash.as_deref().unwrap_or_default();
        for (name, value) in [
            ("content-type", self.settings.content_type.as_str()),
            ("idempotency-key", &event.event_id),
            ("postrider-event-id", &event.event_id),
            ("postrider-event-type", &event.event_type),
            ("postrider-aggregate-type", &event.aggregate_type),
            ("postrider-aggregate-id", &event.aggregate_id),
            ("postrider-content-hash", hash),
        ] {
            if !value.is_empty() {
                headers.insert(HeaderName::from_static(name), header_value(value));
            }
        }
        headers.extend(self.headers.clone());
        Ok(headers)
    }
}

#[async_trait]
impl Sink for HttpSink {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        match &self.fixed_host {
            Some(host) => Cow::Borrowed(host),
            None => Cow::Owned(
                Url::parse(&fill(&self.settings.url, event))
                    .ok()
                    .and_then(|url| host_of(&url))
                    .unwrap_or_default(),
            ),
        }
    }

    fn only_destination(&self) -> Option<&str> {
        self.fixed_host.as_deref()
    }

    fn enters_each(&self) -> bool {
        true
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let downs: HashMap<String, AtomicU32> = batch
            .events
            .iter()
            .map(|event| (self.destination(event).into_owned(), AtomicU32::new(0)))
            .collect();
        let calls: Vec<_> =
            batch.events.iter().map(|event| self.deliver_one(&batch, event, &downs)).collect();
        // All at once: the limit per host is what holds back, and a slow host must not keep the
        // requests to the others from starting.
        futures_util::future::join_all(calls).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        let Some(host) = &self.fixed_host else { return Ok(()) };
        tokio::time::timeout(self.settings.timeout, tokio::net::TcpStream::connect(host))
            .await
            .map_err(|_| "no answer in time".to_owned())
            .and_then(|connected| connected.map_err(|error| error.to_string()))
            .map(|_| ())
            .map_err(|error| SinkError {
                sink: self.settings.name.clone(),
                message: format!("cannot connect to {host}: {error}; check `url`"),
            })
    }

    async fn close(&self) {}
}

/// A client that follows no redirects and waits no longer than the sink.
pub(crate) fn client(timeout: Duration) -> Result<Client, String> {
    // Only the first call in a process installs it; later ones find it there.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
        .timeout(timeout)
        .connect_timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("no HTTP client: {error}"))
}

/// What an answer means, by the table of the specification.
async fn classify(answer: reqwest::Response) -> Outcome {
    let status = answer.status();
    if status.is_success() {
        // Read, so that the connection can be used again; the body itself is of no interest, and
        // a large one is cheaper to cut off.
        drop(body_start(answer, BODY_BYTES_MAX).await);
        return Outcome::Delivered;
    }
    let retry_after = answer
        .headers()
        .get(reqwest::header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| retry_after(text, Utc::now()));
    let error = format!("HTTP {status}");
    match meaning(status) {
        Meaning::Rejected => {
            let detail = body_start(answer, DETAIL_BYTES_MAX).await;
            Outcome::Rejected { error, detail: Some(detail).filter(|text| !text.is_empty()) }
        }
        Meaning::Retry => Outcome::Retry { error },
        Meaning::Down => Outcome::Down { error, retry_after, credentials: false },
        Meaning::Credentials => Outcome::Down { error, retry_after, credentials: true },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Rejected,
    Retry,
    Down,
    Credentials,
}

fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        400 | 409 | 410 | 413 | 415 | 422 => Meaning::Rejected,
        401 | 403 | 407 => Meaning::Credentials,
        408 | 425 | 429 | 500..=599 => Meaning::Down,
        _ => Meaning::Retry,
    }
}

async fn body_start(mut answer: reqwest::Response, bytes_max: usize) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= bytes_max {
            break;
        }
    }
    body.truncate(bytes_max);
    String::from_utf8_lossy(&body).into_owned()
}

/// Seconds, or a date.
fn retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTime::parse_from_rfc2822(text.trim()).ok()?;
    Some((at.with_timezone(&Utc) - now).to_std().unwrap_or(Duration::ZERO))
}

/// Without the URL: it may carry secrets.
fn connection_error(error: &reqwest::Error) -> String {
    let mut text = match () {
        () if error.is_timeout() => "timeout".to_owned(),
        () if error.is_connect() => "cannot connect".to_owned(),
        () => "connection lost".to_owned(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

const FIELDS: [&str; 5] = ["aggregate_type", "aggregate_id", "event_type", "event_id", "id"];

fn check_template(template: &str) -> Result<(), String> {
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let end = rest[start..].find('}').map(|end| start + end);
        let field = end.map(|end| &rest[start + 1..end]);
        match (field, end) {
            (Some(field), Some(end)) if FIELDS.contains(&field) => rest = &rest[end + 1..],
            _ => {
                let fields = FIELDS.map(|field| format!("{{{field}}}")).join(", ");
                return Err(format!(
                    "url `{template}` has an unknown field at `{}`; allowed are {fields}",
                    &rest[start..]
                ));
            }
        }
    }
    let sample =
        FIELDS.iter().fold(template.to_owned(), |url, f| url.replace(&format!("{{{f}}}"), "1"));
    match Url::parse(&sample) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
        Ok(_) => {
            Err(format!("url `{template}` must start with http:// or https:// and name a host"))
        }
        Err(error) => Err(format!("url `{template}` is no URL: {error}")),
    }
}

fn encode(text: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    encoded.replace('+', "%20")
}

/// Puts the event into the URL, every value percent-encoded so that it stays in its place.
fn fill(template: &str, event: &Event) -> String {
    if !template.contains('{') {
        return template.to_owned();
    }
    template
        .replace("{aggregate_type}", &encode(&event.aggregate_type))
        .replace("{aggregate_id}", &encode(&event.aggregate_id))
        .replace("{event_type}", &encode(&event.event_type))
        .replace("{event_id}", &encode(&event.event_id))
        .replace("{id}", &event.id.to_string())
}

/// Whether a path has segments that lead elsewhere. No encoding hides them: `%2e` means the same.
fn climbs(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split('/').any(|segment| segment == "." || segment == "..")
}

/// `host:port` of a URL.
fn host_of(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The host, unless the template puts something of the event into it.
fn fixed_host(template: &str) -> Option<String> {
    let authority = template.split_once("://")?.1;
    let authority = authority.split(['/', '?', '#']).next()?;
    if authority.contains('{') {
        return None;
    }
    Url::parse(&template.replace(['{', '}'], "")).ok().as_ref().and_then(host_of)
}

/// A header carries visible ASCII; anything else is percent-encoded.
fn header_value(text: &str) -> HeaderValue {
    let plain = text.is_ascii().then(|| HeaderValue::try_from(text).ok()).flatten();
    plain.unwrap_or_else(|| {
        HeaderValue::try_from(encode(text)).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_the_specification_says() {
        for (codes, wanted) in [
            (&[400, 409, 410, 413, 415, 422][..], Meaning::Rejected),
            (&[404, 402, 405, 418, 451, 301, 302, 304], Meaning::Retry),
            (&[408, 425, 429, 500, 502, 503, 504, 599], Meaning::Down),
            (&[401, 403, 407], Meaning::Credentials),
        ] {
            for code in codes {
                let status = StatusCode::from_u16(*code).unwrap();
                assert_eq!(meaning(status), wanted, "{code}");
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        let date = "Thu, 01 Jan 2026 00:01:30 GMT";
        assert_eq!(retry_after(date, now), Some(Duration::from_secs(90)));
        assert_eq!(retry_after("Wed, 31 Dec 2025 00:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }

    #[test]
    fn a_wrong_url_template_is_refused_by_name() {
        for url in ["http://h/{ocid}", "http://h/{id", "ftp://h/", "/path", "http://"] {
            let error = check_template(url).unwrap_err();
            assert!(error.contains(url), "{error}");
        }
        assert_eq!(check_template("https://{aggregate_type}.example.com/{id}"), Ok(()));
    }

    #[test]
    fn the_host_is_fixed_unless_the_event_is_in_it() {
        assert_eq!(fixed_host("http://h:81/{id}").as_deref(), Some("h:81"));
        assert_eq!(fixed_host("https://h/a?{id}").as_deref(), Some("h:443"));
        assert_eq!(fixed_host("http://{aggregate_type}/x"), None);
    }
}
