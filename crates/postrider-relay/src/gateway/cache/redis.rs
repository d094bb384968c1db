//! A cache in Redis, on a single server or a cluster, shared by all processes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::internal::DoublingWait;
use redis::{Pipeline, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::answer::TIME_DIGITS;
use super::super::changes::{self, Change};
use super::{Answer, Keep, Kept, Key, Times};
use crate::outcome::Outcome;
use crate::sinks::redis::connection::Server;
use crate::telemetry::{self, label};

/// After a failure, the cache is not used for this time.
const REST: Duration = Duration::from_secs(1);
/// First and longest wait before the next check whether the turn of a change has come.
const TURN_WAIT: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// How much longer than its call may take a process keeps its turn if it dies.
const TURN_SLACK: Duration = Duration::from_secs(1);

/// Stores an answer or a change, unless there is one that was requested later. The time comes
/// first, with a fixed number of digits, so that comparing texts compares times.
const PUT: &str = "local known = redis.call('GETRANGE', KEYS[1], 0, ARGV[3] - 1)
if known > string.sub(ARGV[1], 1, ARGV[3]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Removes an answer, unless it was requested later.
const REMOVE: &str = "local known = redis.call('GETRANGE', KEYS[1], 0, ARGV[2] - 1)
if known > ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// Ends a turn, unless it has ended by itself and another process has the next one.
const END_TURN: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

pub(crate) struct Redis {
    gateway: String,
    server: Server,
    timeout: Duration,
    times: Times,
    resting_until: Mutex<Option<Instant>>,
    /// Whether the cache is failing; logged once when that begins and once when it ends.
    is_down: AtomicBool,
}

impl Redis {
    pub(crate) fn new(
        gateway: &str,
        url: &str,
        timeout: Duration,
        times: Times,
    ) -> Result<Self, String> {
        let server =
            Server::new(url, None, None, timeout).map_err(|error| format!("`cache`: {error}"))?;
        Ok(Self {
            gateway: gateway.to_owned(),
            server,
            timeout,
            times,
            resting_until: Mutex::new(None),
            is_down: AtomicBool::new(false),
        })
    }

    pub(crate) async fn get(&self, key: Key) -> Option<Kept> {
        let mut commands = Pipeline::new();
        let name = self.name(key);
        commands.cmd("GET").arg(&name).cmd("PTTL").arg(&name);
        let answers = self.run(&name, &commands).await?;
        let [Value::BulkString(bytes), Value::Int(left_ms)] =
            <[Value; 2]>::try_from(answers).ok()?
        else {
            return None;
        };
        // Computed from the remaining time to live, not from a clock: the clocks of two machines
        // differ.
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
        let (answer, kept_for) = Answer::from_bytes(bytes)?;
        // Judged by the current settings: it may have been stored with a longer time.
        let (age, keep) = (kept_for.saturating_sub(left), self.times.keep(answer.status)?);
        let kept = Kept { answer: Arc::new(answer), is_fresh: age < keep.fresh_for };
        (age < keep.total()).then_some(kept)
    }

    pub(crate) async fn put(&self, key: Key, answer: &Answer, keep: Keep) {
        self.put_newer(&self.name(key), &answer.to_bytes(keep.total()), keep.total()).await;
    }

    pub(crate) async fn remove(&self, key: Key, asked_at_ms: u64) {
        let mut commands = Pipeline::new();
        let (name, asked) = (self.name(key), format!("{asked_at_ms:0TIME_DIGITS$}"));
        commands.cmd("EVAL").arg(REMOVE).arg(1).arg(&name).arg(asked).arg(TIME_DIGITS);
        self.run(&name, &commands).await;
    }

    pub(crate) async fn newest_change(&self, target: Key) -> Option<Change> {
        let mut commands = Pipeline::new();
        let name = self.name(target);
        commands.cmd("GET").arg(&name);
        let Value::BulkString(text) = self.run(&name, &commands).await?.pop()? else {
            return None;
        };
        Change::from_text(std::str::from_utf8(&text).ok()?)
    }

    pub(crate) async fn note_change(&self, target: Key, change: &Change) {
        let name = self.name(target);
        self.put_newer(&name, change.to_text().as_bytes(), changes::REMEMBERED_FOR).await;
    }

    pub(crate) async fn changed_at(&self, target: Key) -> u64 {
        let (mut commands, name) = (Pipeline::new(), self.name_of_last_change(target));
        commands.cmd("GET").arg(&name);
        let answer = self.run(&name, &commands).await.and_then(|mut answers| answers.pop());
        let Some(Value::BulkString(text)) = answer else { return 0 };
        std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    pub(crate) async fn note_changed(&self, target: Key, changed_at_ms: u64) {
        let (name, at) =
            (self.name_of_last_change(target), format!("{changed_at_ms:0TIME_DIGITS$}"));
        self.put_newer(&name, at.as_bytes(), self.times.of_change()).await;
    }

    async fn put_newer(&self, name: &str, bytes: &[u8], kept_for: Duration) {
        let kept_for_ms = u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut commands = Pipeline::new();
        commands.cmd("EVAL").arg(PUT).arg(1).arg(name);
        commands.arg(bytes).arg(kept_for_ms).arg(TIME_DIGITS);
        self.run(name, &commands).await;
    }

    /// Waits until no other process makes a change of this target. `None` if the turn does not come
    /// in time. While the cache fails, every process has its turn at once.
    pub(crate) async fn turn(self: &Arc<Self>, target: Key, deadline: Instant) -> Option<Turn> {
        let (redis, name) = (Arc::clone(self), format!("{}:turn", self.name(target)));
        // Exists before it is taken: if the answer is lost, it may have been.
        let turn = Turn { redis, name, holder: Uuid::new_v4().to_string() };
        let mut wait = DoublingWait::new(TURN_WAIT.0, TURN_WAIT.1);
        loop {
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now).saturating_add(TURN_SLACK);
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let mut commands = Pipeline::new();
            commands.cmd("SET").arg(&turn.name).arg(&turn.holder);
            commands.arg("NX").arg("PX").arg(left_ms);
            match self.run(&turn.name, &commands).await.as_deref() {
                Some([Value::Nil]) => {}
                _ => return Some(turn),
            }
            let next = now + wait.take();
            if next >= deadline {
                return None;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    async fn end_turn(&self, name: &str, holder: &str) {
        let mut commands = Pipeline::new();
        commands.cmd("EVAL").arg(END_TURN).arg(1).arg(name).arg(holder);
        self.run(name, &commands).await;
    }

    pub(crate) async fn check(&self) -> Result<(), String> {
        self.server.ping().await
    }

    fn name(&self, key: Key) -> String {
        format!("postrider:gateway:{}:{}", self.gateway, key.hex())
    }

    fn name_of_last_change(&self, target: Key) -> String {
        format!("{}:changed", self.name(target))
    }

    async fn run(&self, name: &str, commands: &Pipeline) -> Option<Vec<Value>> {
        let now = Instant::now();
        if self.resting_until().is_some_and(|until| now < until) {
            return None;
        }
        match self.server.run(name, commands, now + self.timeout).await {
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

/// The turn of a change among the processes that share a cache. Dropping it ends the turn.
pub(crate) struct Turn {
    redis: Arc<Redis>,
    name: String,
    /// Recognises the holder's own turn.
    holder: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (redis, name) = (Arc::clone(&self.redis), std::mem::take(&mut self.name));
        let holder = std::mem::take(&mut self.holder);
        // Outside of a runtime, or if the command fails, the turn ends by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move { redis.end_turn(&name, &holder).await }));
        }
    }
}
