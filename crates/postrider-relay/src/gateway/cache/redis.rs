//! A cache in Redis, on a single server or a cluster, shared by all processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::super::answer::TIME_DIGITS;
use super::{Answer, Keep, Kept, Key};
use crate::sink::Outcome;
use crate::sinks::redis::connection::Server;
use crate::telemetry::{self, label};

/// After a failure, nobody waits for the cache again for this time.
const REST: Duration = Duration::from_secs(1);

/// Keeps an answer, unless one is there that was asked for later. The time stands in front, in digits
/// of a fixed number, so that texts compare as times do.
const PUT: &str = "local known = redis.call('GETRANGE', KEYS[1], 0, ARGV[3] - 1)
if known > string.sub(ARGV[1], 1, ARGV[3]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

pub(crate) struct Redis {
    gateway: String,
    server: Server,
    timeout: Duration,
    resting_until: Mutex<Option<Instant>>,
    /// Told once, when it begins and when it is over.
    is_down: AtomicBool,
}

impl Redis {
    pub(crate) fn new(gateway: &str, url: &str, timeout: Duration) -> Result<Self, String> {
        let server =
            Server::new(url, None, None, timeout).map_err(|error| format!("`cache`: {error}"))?;
        Ok(Self {
            gateway: gateway.to_owned(),
            server,
            timeout,
            resting_until: Mutex::new(None),
            is_down: AtomicBool::new(false),
        })
    }

    pub(crate) async fn get(&self, key: Key, stale_ttl: Duration) -> Option<Kept> {
        let mut commands = Pipeline::new();
        let name = self.name(key);
        commands.cmd("GET").arg(&name).cmd("PTTL").arg(&name);
        let answers = self.run(&commands).await?;
        let [Value::BulkString(bytes), Value::Int(left_ms)] =
            <[Value; 2]>::try_from(answers).ok()?
        else {
            return None;
        };
        // By the time that is left, not by a clock: those of two machines differ.
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
        let answer = Answer::from_bytes(bytes)?;
        let is_fresh = left > Keep::stale_for(answer.status, stale_ttl);
        Some(Kept { answer: Arc::new(answer), is_fresh })
    }

    pub(crate) async fn put(&self, key: Key, answer: &Answer, keep: Keep) {
        let kept_for = keep.fresh_for.saturating_add(keep.stale_for).as_millis();
        let mut commands = Pipeline::new();
        commands
            .cmd("EVAL")
            .arg(PUT)
            .arg(1)
            .arg(self.name(key))
            .arg(answer.to_bytes())
            .arg(u64::try_from(kept_for).unwrap_or(u64::MAX).max(1))
            .arg(TIME_DIGITS);
        self.run(&commands).await;
    }

    pub(crate) async fn check(&self) -> Result<(), String> {
        self.server.ping().await
    }

    fn name(&self, key: Key) -> String {
        format!("postrider:gateway:{}:{}", self.gateway, key.hex())
    }

    async fn run(&self, commands: &Pipeline) -> Option<Vec<Value>> {
        let now = Instant::now();
        if self.resting_until().is_some_and(|until| now < until) {
            return None;
        }
        match self.server.run(commands, now + self.timeout).await {
            Ok(answers) => {
                if self.is_down.swap(false, Ordering::Relaxed) {
                    tracing::info!(gateway = self.gateway, "the cache answers again");
                }
                Some(answers)
            }
            Err(outcome) => {
                self.failed(&outcome);
                None
            }
        }
    }

    fn failed(&self, outcome: &Outcome) {
        metrics::counter!(telemetry::GATEWAY_CACHE_ERRORS, label::GATEWAY => self.gateway.clone())
            .increment(1);
        *self.resting_until() = Some(Instant::now() + REST);
        if !self.is_down.swap(true, Ordering::Relaxed) {
            let (gateway, cache) = (&self.gateway, self.server.nodes());
            tracing::warn!(gateway, cache, ?outcome, "the cache fails: calls go on without it");
        }
    }

    fn resting_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.resting_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
