//! Where answers are kept. A cache that fails is a cache without answers: nothing waits for it.

mod memory;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::answer::Answer;
use super::call::Key;
use super::changes::Change;
use super::settings::GatewaySettings;
pub(super) use memory::Memory;
pub(super) use redis::Redis;

/// Where the answers of a gateway are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheSettings {
    /// In this process, each with its own. What is over a limit pushes out what was used least.
    Memory {
        /// Answers at most.
        entries_max: u64,
        /// Bytes at most.
        bytes_max: u64,
    },
    /// In Redis, shared by all processes and kept by its own limits.
    Redis {
        /// `redis://` or, with TLS, `rediss://`. Of a cluster, some nodes with commas between.
        url: String,
        /// Time for an answer; then calls go on without it.
        timeout: Duration,
    },
}

impl CacheSettings {
    /// Answers at most, where nothing else is said.
    pub const ENTRIES_MAX: u64 = 100_000;
    /// Bytes at most, where nothing else is said.
    pub const BYTES_MAX: u64 = 64 * 1_024 * 1_024;
}

impl Default for CacheSettings {
    /// In this process.
    fn default() -> Self {
        Self::Memory { entries_max: Self::ENTRIES_MAX, bytes_max: Self::BYTES_MAX }
    }
}

pub(super) enum Cache {
    Memory(Memory),
    Redis(Box<Redis>),
}

/// How long an answer is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub(super) fresh_for: Duration,
    /// After that, for callers whom the upstream cannot answer.
    pub(super) stale_for: Duration,
}

impl Keep {
    fn total(self) -> Duration {
        self.fresh_for.saturating_add(self.stale_for)
    }
}

/// How long answers are kept by the settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    ttl: Duration,
    negative_ttl: Duration,
    stale_ttl: Duration,
}

impl Times {
    pub(super) fn new(settings: &GatewaySettings) -> Self {
        let GatewaySettings { ttl, negative_ttl, stale_ttl, .. } = *settings;
        Self { ttl, negative_ttl, stale_ttl }
    }

    /// For an answer with this status; `None` if it is not kept. Only a success is worth more than
    /// nothing when it is old: a refusal is over with its time.
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

/// An answer that was kept.
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
                Ok(Self::Redis(Box::new(Redis::new(&settings.name, url, *timeout, times)?)))
            }
        }
    }

    pub(super) async fn get(&self, key: Key) -> Option<Kept> {
        match self {
            Self::Memory(memory) => memory.get(key),
            Self::Redis(redis) => redis.get(key).await,
        }
    }

    /// Keeps an answer, unless there is one that was asked for later.
    pub(super) async fn put(&self, key: Key, answer: &Arc<Answer>, keep: Keep) {
        match self {
            Self::Memory(memory) => memory.put(key, answer, keep),
            Self::Redis(redis) => redis.put(key, answer, keep).await,
        }
    }

    /// Forgets the answer, unless it was asked for after that time.
    pub(super) async fn remove(&self, key: Key, asked_at_ms: u64) {
        match self {
            Self::Memory(memory) => memory.remove(key, asked_at_ms),
            Self::Redis(redis) => redis.remove(key, asked_at_ms).await,
        }
    }

    /// The newest change of a target, as far as processes share it.
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

    /// Whether it answers.
    pub(super) async fn check(&self) -> Result<(), String> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.check().await,
        }
    }
}
