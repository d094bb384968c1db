//! The upstream: its breaker, its cache, and the calls themselves, for callers and the relay alike.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName};
use http::{Method, StatusCode};
use reqwest::{Client, Response};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use super::answer::{Answer, now_ms};
use super::cache::{Cache, Keep};
use super::call::{Call, Key};
use super::flights::Flights;
use super::settings::GatewaySettings;
use super::{GatewayError, Source};
use crate::health::{Entry, Health};
use crate::preset::Preset;
use crate::sink::Outcome;
use crate::sinks::http::{Meaning, asked_wait, client_for, connection_error, host_of, meaning};
use crate::telemetry::{self, label};

/// What a gateway calls. The relay of the same process repeats saved calls through it, so that both
/// share cache, breaker and what is under way.
pub struct Upstream {
    pub(super) settings: GatewaySettings,
    url: Url,
    host: String,
    methods: Vec<Method>,
    headers: HeaderMap,
    forward_headers: Vec<HeaderName>,
    client: Client,
    places: Semaphore,
    pub(super) cache: Cache,
    health: Arc<Health>,
    pub(super) calls: Arc<Flights<Heard>>,
}

/// What became of one call.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    /// An answer that the caller gets, whatever it says.
    Answer(Arc<Answer>, Source),
    /// An answer that is larger than allowed.
    TooLarge,
    /// The upstream is down; or counts as down, and was not asked.
    Down { error: Arc<str>, retry_after: Option<Duration>, credentials: bool, asked: bool },
}

impl Heard {
    fn down(error: impl Into<Arc<str>>) -> Self {
        Self::Down { error: error.into(), retry_after: None, credentials: false, asked: true }
    }

    pub(super) fn not_asked(error: &str) -> Self {
        Self::Down { error: error.into(), retry_after: None, credentials: false, asked: false }
    }

    /// What it says about the upstream.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Answer(_, Source::Cache | Source::Stale) => Outcome::Needless,
            Self::Answer(answer, Source::Upstream) if answer.status.is_success() => {
                Outcome::Delivered
            }
            Self::Answer(answer, Source::Upstream) => {
                Outcome::Retry { error: format!("HTTP {}", answer.status) }
            }
            Self::TooLarge => Outcome::Retry { error: TOO_LARGE.to_owned() },
            Self::Down { asked: false, .. } => Outcome::Untried,
            Self::Down { error, retry_after, credentials, .. } => Outcome::Down {
                error: error.to_string(),
                retry_after: *retry_after,
                credentials: *credentials,
            },
        }
    }
}

pub(super) const TOO_LARGE: &str = "the answer is larger than `answer_bytes_max`";
pub(super) const COUNTS_AS_DOWN: &str = "it counts as down, and was not asked";

impl Upstream {
    /// Checks the settings; connects to nothing. `preset` is that of the outbox with the saved calls.
    ///
    /// # Errors
    /// Names the setting that is wrong.
    pub fn new(settings: GatewaySettings, preset: &Preset) -> Result<Self, GatewayError> {
        let name = settings.name.clone();
        Self::build(settings, preset).map_err(|message| GatewayError { gateway: name, message })
    }

    fn build(settings: GatewaySettings, preset: &Preset) -> Result<Self, String> {
        settings.check_limits()?;
        let url = settings.parsed_url()?;
        let host = host_of(&url).unwrap_or_default();
        Ok(Self {
            methods: settings.parsed_methods()?,
            headers: settings.parsed_headers()?,
            forward_headers: settings.parsed_forward_headers()?,
            client: client_for(settings.timeout, settings.proxy.as_deref(), false)?,
            places: Semaphore::new(settings.concurrency_max.min(Semaphore::MAX_PERMITS)),
            cache: Cache::new(&settings.name, &settings.cache)?,
            health: Arc::new(Health::of_one(&host, preset)),
            calls: Arc::default(),
            settings,
            url,
            host,
        })
    }

    /// Name in paths, metrics and messages.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// `host:port`.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Methods that it is called with.
    pub(super) fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The headers of a caller that are passed on.
    pub(super) fn forwarded(&self, headers: &HeaderMap) -> impl Iterator<Item = (&str, String)> {
        let found = |name: &'_ HeaderName| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<&str> = values.collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        self.forward_headers
            .iter()
            .filter_map(move |name| Some((name.as_str(), found(name)?)))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Whether it counts as down.
    pub(super) fn is_down(&self) -> bool {
        self.health.holds_back() && self.health.view(&self.host, Instant::now()).open
    }

    /// While it is down: makes this call the probe, if it is time for one.
    pub(super) fn appoint(self: &Arc<Self>, number: i64) -> Option<Probe> {
        self.health.appoint(&self.host, &[number], Instant::now())?;
        Some(Probe { upstream: Arc::clone(self), number })
    }

    /// One call of a caller, from the question whether it is needed to the cache.
    pub(super) async fn call_live(self: Arc<Self>, call: Call, key: Option<Key>) -> Heard {
        // Somebody may have brought the answer since the caller looked.
        if let Some(key) = key
            && let Some(answer) = self.fresh(key).await
        {
            return Heard::Answer(answer, Source::Cache);
        }
        let deadline = Instant::now() + self.settings.timeout;
        let Some(_free) = self.free_place(deadline).await else {
            return Heard::not_asked("all places for calls are taken; see `concurrency_max`");
        };
        let number = key.unwrap_or_else(|| call.key()).number();
        let Some(place) = self.enter(number, deadline).await else {
            return Heard::not_asked(COUNTS_AS_DOWN);
        };
        self.count(telemetry::GATEWAY_CALLS);
        let heard = self.ask(&call, deadline).await;
        place.leave(&heard.outcome());
        if let Some(key) = key {
            self.keep(key, &heard).await;
        }
        heard
    }

    /// The answer in the cache, if it is still good.
    pub(super) async fn fresh(&self, key: Key) -> Option<Arc<Answer>> {
        let kept = self.cache.get(key, self.settings.stale_ttl).await?;
        kept.is_fresh.then_some(kept.answer)
    }

    /// Puts an answer into the cache that others may have.
    pub(super) async fn keep(&self, key: Key, heard: &Heard) {
        let Heard::Answer(answer, Source::Upstream) = heard else { return };
        let GatewaySettings { ttl, negative_ttl, stale_ttl, .. } = self.settings;
        let fresh_for = match answer.status {
            status if status.is_success() => ttl,
            StatusCode::NOT_FOUND | StatusCode::GONE => negative_ttl,
            _ => return,
        };
        let keep = Keep { fresh_for, stale_for: Keep::stale_for(answer.status, stale_ttl) };
        if !keep.fresh_for.is_zero() && answer.may_be_shared() {
            self.cache.put(key, answer, keep).await;
        }
    }

    /// A place among the calls that are made at the same time.
    pub(super) async fn free_place(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout_at(deadline, self.places.acquire()).await.ok()?.ok()
    }

    /// Waits until the breaker lets a call through; `None` if it does not, or not in time.
    async fn enter(self: &Arc<Self>, number: i64, deadline: Instant) -> Option<LivePlace> {
        loop {
            let moved = self.health.moved();
            tokio::pin!(moved);
            moved.as_mut().enable();
            match self.health.enter(&self.host, number, Instant::now()) {
                Entry::Go => {
                    let (upstream, sent_at) = (Arc::clone(self), Instant::now());
                    return Some(LivePlace { upstream, number, sent_at });
                }
                Entry::Open => return None,
                Entry::Full => tokio::time::timeout_at(deadline, moved).await.ok()?,
            }
        }
    }

    /// One request, and what came of it.
    pub(super) async fn ask(&self, call: &Call, deadline: Instant) -> Heard {
        let Some(url) = self.url_of(call) else {
            return Heard::not_asked("the path makes no URL of this upstream");
        };
        let asked_at_ms = now_ms();
        let mut request = self.client.request(call.method().clone(), url);
        for (name, value) in call.headers() {
            request = request.header(name, value);
        }
        // Ours last: a caller cannot replace credentials.
        let request = request.headers(self.headers.clone()).body(call.content());
        let left = deadline.saturating_duration_since(Instant::now());
        let response = match request.timeout(left.max(Duration::from_millis(1))).send().await {
            Ok(response) => response,
            Err(error) => return Heard::down(connection_error(&error)),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let down = |credentials| Heard::Down {
            error: format!("HTTP {status}").into(),
            retry_after: asked_wait(&headers),
            credentials,
            asked: true,
        };
        match meaning(status) {
            Meaning::Down => return down(false),
            Meaning::Credentials => return down(true),
            Meaning::Rejected | Meaning::Retry => {}
        }
        match read(response, self.settings.answer_bytes_max).await {
            Ok(Some(body)) => {
                let answer = Answer::new(status, headers, body, asked_at_ms);
                Heard::Answer(Arc::new(answer), Source::Upstream)
            }
            Ok(None) => Heard::TooLarge,
            Err(error) => Heard::down(connection_error(&error)),
        }
    }

    /// The target below the URL; `None` if that is not where it leads.
    fn url_of(&self, call: &Call) -> Option<Url> {
        let (path, query) = match call.target().split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (call.target(), None),
        };
        let path = format!("{}{path}", self.url.path().trim_end_matches('/'));
        let mut url = self.url.clone();
        url.set_path(&path);
        url.set_query(query);
        (url.path() == path).then_some(url)
    }

    /// Whether a call leads below the URL.
    pub(super) fn takes(&self, call: &Call) -> bool {
        self.url_of(call).is_some()
    }

    pub(super) fn count(&self, metric: &'static str) {
        metrics::counter!(metric, label::GATEWAY => self.settings.name.clone()).increment(1);
    }
}

/// The body; `None` if it is larger than that. Nothing beyond is read.
async fn read(mut response: Response, bytes_max: usize) -> reqwest::Result<Option<Bytes>> {
    if response.content_length().is_some_and(|length| length > bytes_max as u64) {
        return Ok(None);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body.freeze()))
}

/// The right to ask an upstream that is down whether it is back. Dropped unused, it is another's.
pub(super) struct Probe {
    upstream: Arc<Upstream>,
    number: i64,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.upstream.health.end_probe(&self.upstream.host, self.number);
    }
}

/// A place at the upstream, for a call that no event makes. Dropping it gives it back.
struct LivePlace {
    upstream: Arc<Upstream>,
    number: i64,
    sent_at: Instant,
}

impl LivePlace {
    /// The upstream answered, or is down.
    fn leave(self, outcome: &Outcome) {
        let Upstream { health, host, .. } = self.upstream.as_ref();
        health.record_call(host, self.number, outcome, self.sent_at, Instant::now());
    }
}

impl Drop for LivePlace {
    fn drop(&mut self) {
        self.upstream.health.leave(&self.upstream.host, 1);
    }
}
