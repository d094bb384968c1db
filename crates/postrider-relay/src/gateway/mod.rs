//! Resilient API calls: cache → live call → outbox.
//!
//! A caller gets an answer from the cache or from the upstream. While the upstream is down, the
//! gateway saves the call in an outbox, once however often it is made, and replies with 503 and
//! `Retry-After`. The relay repeats the call when the upstream is back and puts the answer into the
//! cache.
//!
//! | part | purpose |
//! |---|---|
//! | [`Upstream`] | cache, breaker and client, shared within a process |
//! | [`Gateway`] | for callers |
//! | [`GatewaySink`] | for the relay: repeats saved calls |

mod answer;
mod cache;
mod call;
mod changes;
mod endpoints;
mod flights;
mod last_changes;
mod reply;
mod saver;
mod settings;
mod sink;
mod upstream;

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use postrider::Outbox;
use postrider_store::Appender;

pub use answer::Answer;
pub use cache::CacheSettings;
pub use call::{Call, MalformedPath};
pub use reply::{Problem, Reply, Source};
pub use settings::GatewaySettings;
pub use sink::GatewaySink;
pub use upstream::Upstream;

use self::answer::now_ms;
use self::cache::Kept;
use self::call::Key;
use self::flights::Flights;
use self::saver::{Saved, Saver};
use self::upstream::{COUNTS_AS_DOWN, Heard, TOO_LARGE};
use crate::telemetry;

/// Why a gateway cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("gateway `{gateway}`: {message}")]
#[non_exhaustive]
pub struct GatewayError {
    /// Name of the gateway.
    pub gateway: String,
    /// The cause, and how to fix it.
    pub message: String,
}

/// Serves calls to an upstream, and saves those that it cannot serve.
pub struct Gateway {
    upstream: Arc<Upstream>,
    saver: Saver,
    saves: Arc<Flights<Saved>>,
}

impl Gateway {
    /// Creates a gateway. Calls are saved in `outbox`, which must remember request ids while the
    /// event is open ([`Dedupe::Open`](postrider_store::Dedupe::Open)), and whose sink is the
    /// [`GatewaySink`] of the same upstream. Call it within a Tokio runtime: it starts a task.
    pub fn new(upstream: Arc<Upstream>, outbox: Outbox, appender: Appender) -> Self {
        telemetry::start_gateway(upstream.name());
        let saver = Saver::start(upstream.name(), outbox, appender);
        Self { upstream, saver, saves: Arc::default() }
    }

    /// Returns the name used in paths, metrics and messages.
    pub fn name(&self) -> &str {
        self.upstream.name()
    }

    /// Serves an HTTP request. `target` is the path and query below the gateway's own path, as they
    /// were sent.
    pub async fn answer(
        &self,
        method: Method,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Reply {
        let mut call = match Call::new(method, target) {
            Ok(call) => call.body(body),
            Err(error) => {
                return Reply::Problem(Problem::new(StatusCode::BAD_REQUEST, error.to_string()));
            }
        };
        for (name, value) in self.upstream.forwarded(headers) {
            call = call.header(name, value);
        }
        match idempotency_key(headers) {
            Ok(None) => {}
            Ok(Some(key)) => call = call.idempotency_key(key),
            Err(detail) => {
                return Reply::Problem(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
        }
        let is_safe = call.is_safe();
        match self.fetch(call).await {
            Reply::Answer { answer, source } if is_safe && answer.is_known_to(headers) => {
                Reply::Answer { answer: Arc::new(answer.not_modified()), source }
            }
            reply => reply,
        }
    }

    /// Makes a call. Returns an answer from the cache or from the upstream, or a problem that says
    /// whether the call was saved.
    pub async fn fetch(&self, call: Call) -> Reply {
        if let Some(refused) = self.refuse(&call) {
            return Reply::Problem(refused);
        }
        // A call that must not be made twice has no answer to share.
        if !call.is_repeatable() {
            let upstream = &self.upstream;
            let number = call.key().number();
            let _probe = upstream.is_down(&call).then(|| upstream.appoint(&call, number)).flatten();
            let record = Arc::clone(upstream).call_live(call, None).await;
            return self.reply(record, None, Saved::No);
        }
        let (key, asked_at_ms) = (call.key(), now_ms());
        let kept = self.upstream.cached(&call, key).await;
        let stale = match kept {
            Some(Kept { answer, is_fresh: true }) => {
                self.upstream.count(telemetry::GATEWAY_HITS);
                return Reply::Answer { answer, source: Source::Cache };
            }
            Some(Kept { answer, .. }) => Some(answer),
            None => None,
        };
        self.upstream.count(telemetry::GATEWAY_MISSES);
        let record = self.ask_after_changes(&call, key, asked_at_ms).await;
        let saved = match (&record, &stale) {
            (Heard::Down { .. }, None) => self.save(&call, key, asked_at_ms).await,
            // A caller that gets a stale answer does not have to wait for the save.
            (Heard::Down { .. }, Some(_)) => {
                tokio::spawn(self.save(&call, key, asked_at_ms));
                Saved::No
            }
            _ => Saved::No,
        };
        self.reply(record, stale, saved)
    }

    /// Asks the upstream; once more if the answer is of a call that was already under way when the
    /// target was changed, and this caller came after that.
    async fn ask_after_changes(&self, call: &Call, key: Key, came_at_ms: u64) -> Heard {
        let record = self.ask(call, key).await;
        let asked_at_ms = match &record {
            Heard::Answer(answer, Source::Upstream) if call.is_safe() => answer.asked_at_ms,
            _ => return record,
        };
        // A call that began later than its caller came is the caller's own, or as good.
        if asked_at_ms >= came_at_ms {
            return record;
        }
        let changed_at_ms = self.upstream.changed_at(call).await;
        match asked_at_ms <= changed_at_ms && changed_at_ms <= came_at_ms {
            true => self.ask(call, key).await,
            false => record,
        }
    }

    /// Asks the upstream. All callers of the same call share the answer.
    async fn ask(&self, call: &Call, key: Key) -> Heard {
        let upstream = &self.upstream;
        let fly = |probe| {
            let (upstream, call) = (Arc::clone(upstream), call.clone());
            self.upstream.calls.join(key, move || async move {
                let _probe = probe;
                upstream.call_live(call, Some(key)).await
            })
        };
        let unknown = || Heard::not_asked("the call ended without an answer");
        if !upstream.is_down(call) {
            return fly(None).await.unwrap_or_else(unknown);
        }
        match upstream.appoint(call, key.number()) {
            None => Heard::not_asked(COUNTS_AS_DOWN),
            // A probe may take as long as the timeout: callers that only read do not wait for it.
            Some(probe) if call.is_safe() => {
                drop(fly(Some(probe)));
                Heard::not_asked("it counts as down, and is asked whether it is back")
            }
            Some(probe) => fly(Some(probe)).await.unwrap_or_else(unknown),
        }
    }

    /// Saves the call, once for all callers of the same call. It continues even if no caller waits
    /// for it.
    fn save(
        &self,
        call: &Call,
        key: Key,
        asked_at_ms: u64,
    ) -> impl Future<Output = Saved> + Send + use<> {
        let (name, saver) = (self.name(), self.saver.clone());
        let (request_id, wait) = (key.request_id(name), self.upstream.settings.replay_after);
        let mut shared = true;
        let flight = self.saves.join(key, || {
            shared = false;
            let event = call.event(name, asked_at_ms).deliver_after(wait);
            async move { saver.save(request_id, event).await }
        });
        let upstream = Arc::clone(&self.upstream);
        async move {
            let saved = match flight.await {
                Some(Saved::New) if shared => Saved::Repeat,
                Some(saved) => saved,
                None => Saved::No,
            };
            upstream.count(match saved {
                Saved::New => telemetry::GATEWAY_SAVED,
                Saved::Repeat => telemetry::GATEWAY_REPEATS,
                Saved::No => telemetry::GATEWAY_UNSAVED,
            });
            saved
        }
    }

    fn refuse(&self, call: &Call) -> Option<Problem> {
        let upstream = &self.upstream;
        if !upstream.methods().contains(call.method()) {
            let methods: Vec<&str> = upstream.methods().iter().map(Method::as_str).collect();
            let allow = methods.join(", ");
            let detail =
                format!("the gateway `{}` passes on {allow}; see `methods`", upstream.name());
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail);
            return Some(Problem { allow: Some(allow), ..problem });
        }
        let wrong = upstream.check(call).err();
        wrong.map(|wrong| Problem::new(StatusCode::BAD_REQUEST, wrong))
    }

    fn reply(&self, record: Heard, stale: Option<Arc<Answer>>, saved: Saved) -> Reply {
        let upstream = &self.upstream;
        let name = upstream.name();
        let error = match record {
            Heard::Answer(answer, source) => return Reply::Answer { answer, source },
            Heard::TooLarge => {
                let bytes = upstream.settings.answer_bytes_max;
                let detail = format!("`{name}`: {TOO_LARGE}, which is {bytes} bytes");
                return Reply::Problem(Problem::new(StatusCode::BAD_GATEWAY, detail));
            }
            Heard::Down { error, .. } => error,
        };
        if let Some(answer) = stale {
            upstream.count(telemetry::GATEWAY_STALE);
            return Reply::Answer { answer, source: Source::Stale };
        }
        upstream.count(telemetry::GATEWAY_UNAVAILABLE);
        let (saved, what) = match saved {
            Saved::New | Saved::Repeat => {
                (true, "the call is saved and is repeated when it is back; ask again then")
            }
            Saved::No => (false, "the call is not saved; repeat it yourself"),
        };
        let detail = format!("`{name}` is down ({error}): {what}");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        let retry_after = Some(upstream.settings.retry_after);
        Reply::Problem(Problem { saved: Some(saved), retry_after, ..problem })
    }
}

/// Returns the idempotency key that a caller sent.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let Some(key) = keys.next() else { return Ok(None) };
    if keys.next().is_some() {
        return Err("the header Idempotency-Key must be sent once");
    }
    let key = key.to_str().ok().filter(|key| !key.is_empty());
    key.map(Some).ok_or("the header Idempotency-Key must be visible ASCII, and not empty")
}
