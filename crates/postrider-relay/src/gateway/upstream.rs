//! The upstream: its breaker, its cache, and the calls themselves, for callers and the relay.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, VIA};
use reqwest::{Client, Response};
use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use super::answer::{Answer, may_be_shared, named_by_connection, now_ms, passed_on};
use super::cache::{self, Cache, Kept, Times};
use super::call::{self, Call, Key};
use super::changes::{Change, Changes, Precedence};
use super::endpoints::Endpoints;
use super::flights::Flights;
use super::last_changes::LastChanges;
use super::settings::GatewaySettings;
use super::{GatewayError, Source};
use crate::destination::health::{Entry, Health};
use crate::http::{client_for, connection_error};
use crate::outcome::{Cause, Outcome};
use crate::preset::Preset;
use crate::sinks::http::{Meaning, asked_wait, has_content, host_of, meaning};
use crate::telemetry::{self, label};

/// The upstream of a gateway. The relay of the same process repeats saved calls through it, so that
/// both share the cache, the breaker and the calls in flight.
pub struct Upstream {
    pub(super) settings: GatewaySettings,
    url: Url,
    endpoints: Endpoints,
    methods: Vec<Method>,
    headers: HeaderMap,
    forward_headers: Vec<HeaderName>,
    answer_headers: Vec<HeaderName>,
    client: Client,
    places: Semaphore,
    pub(super) cache: Cache,
    times: Times,
    changes: Changes,
    last_changes: LastChanges,
    health: Arc<Health>,
    pub(super) calls: Arc<Flights<Heard>>,
}

/// The result of one call.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    /// An answer that the caller gets, whatever its status.
    Answer(Arc<Answer>, Source),
    /// An answer that is larger than allowed.
    TooLarge,
    /// The upstream is down; or counts as down and was not asked.
    Down { error: Arc<str>, retry_after: Option<Duration>, credentials: bool, asked: bool },
}

impl Heard {
    fn down(error: impl Into<Arc<str>>) -> Self {
        Self::Down { error: error.into(), retry_after: None, credentials: false, asked: true }
    }

    pub(super) fn not_asked(error: &str) -> Self {
        Self::Down { error: error.into(), retry_after: None, credentials: false, asked: false }
    }

    /// Returns whether the answer to a change ends what the cache has of its target: one that is
    /// not an error (RFC 9111, 4.4), or too large to be read.
    fn may_have_changed(&self) -> bool {
        match self {
            Self::Answer(answer, Source::Upstream) => {
                answer.status.is_success() || answer.status.is_redirection()
            }
            Self::TooLarge => true,
            Self::Answer(..) | Self::Down { .. } => false,
        }
    }

    /// Returns what the result says about the upstream.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Answer(_, Source::Cache | Source::Stale) => Outcome::AlreadyDone,
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
                cause: Cause::Unknown,
            },
        }
    }
}

pub(super) const TOO_LARGE: &str = "the answer is larger than `answer_bytes_max`";
/// Value of the `Via` header.
pub(super) const VIA_US: &str = "1.1 postrider";
pub(super) const COUNTS_AS_DOWN: &str = "it counts as down, and was not asked";

impl Upstream {
    /// Checks the settings without connecting. `preset` is that of the outbox with the saved calls.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: GatewaySettings, preset: &Preset) -> Result<Self, GatewayError> {
        let name = settings.name.clone();
        Self::build(settings, preset).map_err(|message| GatewayError { gateway: name, message })
    }

    fn build(settings: GatewaySettings, preset: &Preset) -> Result<Self, String> {
        settings.check_limits()?;
        let url = settings.parsed_url()?;
        let host = host_of(&url).unwrap_or_default();
        let endpoints = Endpoints::new(&host, &settings.endpoints)?;
        Ok(Self {
            methods: settings.parsed_methods()?,
            headers: settings.parsed_headers()?,
            forward_headers: settings.parsed_forward_headers()?,
            answer_headers: settings.parsed_answer_headers()?,
            client: {
                let (proxy, ca) = (settings.proxy.as_deref(), settings.ca.as_deref());
                client_for(settings.timeout, proxy, false, ca)?
            },
            places: Semaphore::new(settings.concurrency_max.min(Semaphore::MAX_PERMITS)),
            cache: Cache::new(&settings)?,
            times: Times::new(&settings),
            changes: Changes::default(),
            last_changes: LastChanges::default(),
            health: Arc::new(Health::of_calls(endpoints.only(), preset, call::number_of)),
            calls: Arc::default(),
            settings,
            url,
            endpoints,
        })
    }

    /// Returns the name used in paths, metrics and messages.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the name of a call's breaker: `host:port`, or an endpoint there.
    pub(super) fn destination(&self, target: &str) -> &str {
        self.endpoints.destination(target)
    }

    /// Returns the destination of all calls, if there is only one.
    pub(super) fn only_destination(&self) -> Option<&str> {
        self.endpoints.only()
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Returns the methods that are passed on.
    pub(super) fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Returns the headers of a caller that are passed on.
    pub(super) fn forwarded(&self, headers: &HeaderMap) -> impl Iterator<Item = (&str, String)> {
        let of_connection = named_by_connection(headers);
        let found = |name: &'_ HeaderName| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<&str> = values.collect();
            (!values.is_empty()).then(|| values.join(", "))
        };
        self.forward_headers
            .iter()
            .filter(|name| !of_connection.contains(name))
            .filter_map(move |name| Some((name.as_str(), found(name)?)))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns whether the upstream counts as down for this call.
    pub(super) fn is_down(&self, call: &Call) -> bool {
        let destination = self.destination(call.target());
        self.health.holds_back() && self.health.view(destination, Instant::now()).open
    }

    /// Makes this call the probe, if the upstream is down and a probe is due.
    pub(super) fn appoint(self: &Arc<Self>, call: &Call, number: i64) -> Option<Probe> {
        let destination = self.destination(call.target());
        let is_probe = self.health.appoint_caller(destination, number, Instant::now());
        let destination = destination.to_owned();
        is_probe.then(|| Probe { upstream: Arc::clone(self), destination, number })
    }

    /// Makes a caller's call, from the check whether it is still needed to storing the answer in
    /// the cache.
    pub(super) async fn call_live(self: Arc<Self>, call: Call, key: Option<Key>) -> Heard {
        // Another call may have stored the answer since the caller looked.
        if let Some(key) = key
            && let Some(answer) = self.fresh(&call, key).await
        {
            return Heard::Answer(answer, Source::Cache);
        }
        let (deadline, asked_at_ms) = (Instant::now() + self.settings.timeout, now_ms());
        let Some(_turn) = self.turn(&call, deadline).await else {
            return Heard::not_asked("another change of the same target is under way");
        };
        let Some(_free) = self.free_place(deadline).await else {
            return Heard::not_asked("all places for calls are taken; see `concurrency_max`");
        };
        let number = key.unwrap_or_else(|| call.key()).number();
        let Some(place) = self.enter(&call, number, deadline).await else {
            return Heard::not_asked(COUNTS_AS_DOWN);
        };
        self.count(telemetry::GATEWAY_CALLS);
        let record = self.ask(&call, deadline).await;
        place.leave(&record.outcome());
        self.note_change(&call, asked_at_ms, &record).await;
        if let Some(key) = key {
            self.keep(key, &record).await;
        }
        record
    }

    /// Returns the answer in the cache, unless its target was changed since it was requested.
    /// The answer to a change itself stays: it belongs to its idempotency key.
    pub(super) async fn cached(&self, call: &Call, key: Key) -> Option<Kept> {
        if !call.is_safe() {
            return self.cache.get(key).await;
        }
        let (kept, changed_at_ms) = tokio::join!(self.cache.get(key), self.changed_at(call));
        kept.filter(|kept| kept.answer.asked_at_ms > changed_at_ms)
    }

    /// Returns the answer in the cache, if it is fresh.
    pub(super) async fn fresh(&self, call: &Call, key: Key) -> Option<Arc<Answer>> {
        let kept = self.cached(call, key).await?;
        kept.is_fresh.then_some(kept.answer)
    }

    /// Returns when the target of a call was last changed, by this process or one that shares its
    /// cache; 0 if it was not.
    pub(super) async fn changed_at(&self, call: &Call) -> u64 {
        let target = call.target_key();
        self.last_changes.of(target).max(self.cache.changed_at(target).await)
    }

    /// Stores an answer that may be shared in the cache. Any other definite answer removes the
    /// stored one, which the upstream no longer gives.
    pub(super) async fn keep(&self, key: Key, record: &Heard) {
        let Heard::Answer(answer, Source::Upstream) = record else { return };
        match self.times.keep(answer.status).filter(|_| answer.may_be_shared) {
            Some(keep) => self.cache.put(key, answer, keep).await,
            None => self.cache.remove(key, answer.asked_at_ms).await,
        }
    }

    /// Waits for the turn of a change among the changes of its target, in this process and in those
    /// that share its cache; other calls need none. `None` if it did not come in time.
    pub(super) async fn turn(&self, call: &Call, deadline: Instant) -> Option<Turn> {
        if !call.overwrites() {
            return Some(Turn::default());
        }
        let target = call.target_key();
        let here = self.changes.turn(target);
        let here = tokio::time::timeout_at(deadline, here).await.ok();
        let (_here, _everywhere) = (Some(here?), self.cache.turn(target, deadline).await?);
        Some(Turn { _everywhere, _here })
    }

    /// Records a change that the upstream made, so that no older one overwrites it, and no answer
    /// that was requested before it is given from the cache.
    pub(super) async fn note_change(&self, call: &Call, asked_at_ms: u64, record: &Heard) {
        if !call.is_safe() && record.may_have_changed() {
            // The time of the answer: what was requested up to now may be from before the change.
            let (target, changed_at_ms) = (call.target_key(), now_ms());
            self.last_changes.note(target, changed_at_ms);
            self.cache.note_changed(target, changed_at_ms).await;
        }
        let is_made = matches!(record, Heard::Answer(answer, Source::Upstream)
            if answer.status.is_success());
        if is_made && call.overwrites() {
            let (target, change) = (call.target_key(), Change::new(call, asked_at_ms));
            self.changes.note(target, &change);
            self.cache.note_change(target, &change).await;
        }
    }

    /// Returns whether a saved change may still be made.
    pub(super) async fn precedence(&self, call: &Call, asked_at_ms: u64) -> Precedence {
        let (target, change) = (call.target_key(), Change::new(call, asked_at_ms));
        match change.beside(self.changes.newest(target).as_ref()) {
            Precedence::Newest => change.beside(self.cache.newest_change(target).await.as_ref()),
            known => known,
        }
    }

    /// Acquires a permit among the calls in flight.
    pub(super) async fn free_place(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout_at(deadline, self.places.acquire()).await.ok()?.ok()
    }

    /// Waits until the breaker lets a call through; `None` if it does not, or not in time.
    async fn enter(
        self: &Arc<Self>,
        call: &Call,
        number: i64,
        deadline: Instant,
    ) -> Option<LivePlace> {
        let destination = self.destination(call.target());
        loop {
            let moved = self.health.moved();
            tokio::pin!(moved);
            moved.as_mut().enable();
            match self.health.enter(destination, number, Instant::now()) {
                Entry::Go => {
                    let (upstream, sent_at) = (Arc::clone(self), Instant::now());
                    let destination = destination.to_owned();
                    return Some(LivePlace { upstream, destination, number, sent_at });
                }
                Entry::Open => return None,
                Entry::Full => tokio::time::timeout_at(deadline, moved).await.ok()?,
            }
        }
    }

    /// Sends one request and returns its result.
    pub(super) async fn ask(&self, call: &Call, deadline: Instant) -> Heard {
        let Some(url) = self.url_of(call) else {
            return Heard::not_asked("the path makes no URL of this upstream");
        };
        let Ok(mut headers) = call.header_map() else {
            return Heard::not_asked("a header of the call cannot be sent");
        };
        headers.insert(VIA, HeaderValue::from_static(VIA_US));
        let (method, body) = (call.method(), call.content());
        if body.is_empty() && has_content(method) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        // The configured headers come last, so that a caller cannot replace credentials.
        headers.extend(self.headers.clone());
        let asked_at_ms = now_ms();
        let request = self.client.request(method.clone(), url).headers(headers).body(body);
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
                let may_be_shared = may_be_shared(&headers);
                let is_head = method == Method::HEAD;
                let headers = passed_on(&headers, &self.answer_headers, is_head);
                let answer = Answer::new(status, headers, body, asked_at_ms);
                Heard::Answer(Arc::new(Answer { may_be_shared, ..answer }), Source::Upstream)
            }
            Ok(None) => Heard::TooLarge,
            Err(error) => Heard::down(connection_error(&error)),
        }
    }

    /// Returns the target below the URL of the upstream; `None` if it would lead elsewhere.
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

    /// Checks that the URL and the headers of a call can be sent.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn check(&self, call: &Call) -> Result<(), String> {
        call.header_map()?;
        let elsewhere = "malformed path: it does not lead below the URL of the upstream";
        self.url_of(call).map(drop).ok_or_else(|| elsewhere.to_owned())
    }

    /// Restricts a saved call to what a caller could have sent. Its payload comes from the table,
    /// and anyone who may append could write any method and header into it, to be sent with the
    /// gateway's credentials.
    ///
    /// # Errors
    /// Says why it is not repeated.
    pub(super) fn admit(&self, mut call: Call) -> Result<Call, String> {
        let method = call.method();
        if !self.methods.contains(method) {
            return Err(format!("the method {method} is not in `methods` of the gateway"));
        }
        if !call.is_repeatable() {
            return Err(format!("a {method} without `idempotency_key` is not repeated"));
        }
        call.retain_headers(|name| self.forward_headers.iter().any(|known| known == name));
        self.check(&call).map(|()| call)
    }

    pub(super) fn count(&self, metric: &'static str) {
        metrics::counter!(metric, label::GATEWAY => self.settings.name.clone()).increment(1);
    }
}

/// Reads the body; `None` if it is larger than `bytes_max`. Nothing beyond that is read.
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

/// Held while a change is in flight, and empty for other calls. The turn among the processes begins
/// to end first: the next change of this process may be waiting for it.
#[derive(Default)]
pub(super) struct Turn {
    _everywhere: Option<cache::Turn>,
    _here: Option<OwnedMutexGuard<()>>,
}

/// The right to probe an upstream that is down. Dropping it allows another probe.
pub(super) struct Probe {
    upstream: Arc<Upstream>,
    destination: String,
    number: i64,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.upstream.health.end_probe(&self.destination, self.number);
    }
}

/// A permit for a call that is not made for an event. Dropping it releases the permit.
struct LivePlace {
    upstream: Arc<Upstream>,
    destination: String,
    number: i64,
    sent_at: Instant,
}

impl LivePlace {
    /// Records the outcome and releases the permit.
    fn leave(self, outcome: &Outcome) {
        let (health, now) = (&self.upstream.health, Instant::now());
        health.record_call(&self.destination, self.number, outcome, self.sent_at, now);
    }
}

impl Drop for LivePlace {
    fn drop(&mut self) {
        self.upstream.health.leave(&self.destination, 1);
    }
}
