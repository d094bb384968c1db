//! Caches of answers. A failing cache behaves like an empty one: no call waits for it.

mod memory;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::answer::Answer;
use super::call::Key;
use super::changes::{self, Change};
use super::settings::GatewaySettings;
pub(super) use memory::Memory;
pub(super) use redis::{Redis, Turn};

/// Where the answers of a gateway are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheSettings {
    /// In memory, with a separate cache per process. Beyond a limit, the least used answers are
    /// evicted.
    Memory {
        /// Maximum number of answers.
        entries_max: u64,
        /// Maximum number of bytes.
        bytes_max: u64,
    },
    /// In Redis, shared by all processes and limited by Redis itself.
    Redis {
        /// `redis://` or, with TLS, `rediss://`. For a cluster, some of its nodes, separated by
        /// commas.
        url: String,
        /// Timeout of a request; calls continue without the cache.
        timeout: Duration,
    },
}

impl CacheSettings {
    /// Default maximum number of answers.
    pub const ENTRIES_MAX: u64 = 100_000;
    /// Default maximum number of bytes.
    pub const BYTES_MAX: u64 = 64 * 1_024 * 1_024;
}

impl Default for CacheSettings {
    /// In memory.
    fn default() -> Self {
        Self::Memory { entries_max: Self::ENTRIES_MAX, bytes_max: Self::BYTES_MAX }
    }
}

pub(super) enum Cache {
    Memory(Memory),
    Redis(Arc<Redis>),
}

/// How long an answer is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub(super) fresh_for: Duration,
    /// After `fresh_for`, only for callers while the upstream is down.
    pub(super) stale_for: Duration,
}

impl Keep {
    fn total(self) -> Duration {
        self.fresh_for.saturating_add(self.stale_for)
    }
}

/// The configured times for keeping answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    ttl: Duration,
    negative_ttl: Duration,
    stale_ttl: Duration,
    timeout: Duration,
}

impl Times {
    pub(super) fn new(settings: &GatewaySettings) -> Self {
        let GatewaySettings { ttl, negative_ttl, stale_ttl, timeout, .. } = *settings;
        Self { ttl, negative_ttl, stale_ttl, timeout }
    }

    /// Returns how long a change must be remembered: longer than any answer that was requested
    /// before it can be in the cache.
    fn of_change(&self) -> Duration {
        let kept = self.ttl.max(self.negative_ttl).saturating_add(self.stale_ttl);
        kept.saturating_add(self.timeout).max(changes::REMEMBERED_FOR)
    }

    /// Returns how long an answer with this status is kept; `None` if it is not kept. Only a
    /// success is still useful when it is stale.
    pub(super) fn keep(&self, status: StatusCode) -> Option<Keep> {
        let keep = match status {
            status if status.is_success() => {
                Keep { fresh_for: self.ttl, stale_for: self.stale_ttl }
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Keep { fresh_for: self.negative_ttl, stale_for: Duration::ZERO }
            }
            _ => return None,
        };
        (!keep.fresh_for.is_zero()).then_some(keep)
    }
}

/// A cached answer.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) answer: Arc<Answer>,
    pub(super) is_fresh: bool,
}

impl Cache {
    pub(super) fn new(settings: &GatewaySettings) -> Result<Self, String> {
        match &settings.cache {
            CacheSettings::Memory { entries_max, bytes_max } => {
                Ok(Self::Memory(Memory::new(*entries_max, *bytes_max)?))
            }
            CacheSettings::Redis { url, timeout } => {
                let times = Times::new(settings);
                Ok(Self::Redis(Arc::new(Redis::new(&settings.name, url, *timeout, times)?)))
            }
        }
    }

    pub(super) async fn get(&self, key: Key) -> Option<Kept> {
        match self {
            Self::Memory(memory) => memory.get(key),
            Self::Redis(redis) => redis.get(key).await,
        }
    }

    /// Stores an answer, unless the cache has one that was requested later.
    pub(super) async fn put(&self, key: Key, answer: &Arc<Answer>, keep: Keep) {
        match self {
            Self::Memory(memory) => memory.put(key, answer, keep),
            Self::Redis(redis) => redis.put(key, answer, keep).await,
        }
    }

    /// Removes the answer, unless it was requested after that time.
    pub(super) async fn remove(&self, key: Key, asked_at_ms: u64) {
        match self {
            Self::Memory(memory) => memory.remove(key, asked_at_ms),
            Self::Redis(redis) => redis.remove(key, asked_at_ms).await,
        }
    }

    /// Returns the newest change of a target, if processes share this cache.
    pub(super) async fn newest_change(&self, target: Key) -> Option<Change> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.newest_change(target).await,
        }
    }

    /// Shares a change with other processes.
    pub(super) async fn note_change(&self, target: Key, change: &Change) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(redis) => redis.note_change(target, change).await,
        }
    }

    /// Waits for the turn of a change among the processes that share this cache; a cache of one
    /// process has none. `None` if it did not come in time.
    pub(super) async fn turn(&self, target: Key, deadline: Instant) -> Option<Option<Turn>> {
        match self {
            Self::Memory(_) => Some(None),
            Self::Redis(redis) => redis.turn(target, deadline).await.map(Some),
        }
    }

    /// Returns when a target was last changed, if processes share this cache; 0 if it was not.
    pub(super) async fn changed_at(&self, target: Key) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::Redis(redis) => redis.changed_at(target).await,
        }
    }

    /// Tells other processes that a target was changed.
    pub(super) async fn note_changed(&self, target: Key, changed_at_ms: u64) {
        match self {
            Self::Memory(_) => {}
            Self::Redis(redis) => redis.note_changed(target, changed_at_ms).await,
        }
    }

    /// Checks that the cache answers.
    pub(super) async fn check(&self) -> Result<(), String> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.check().await,
        }
    }
}
