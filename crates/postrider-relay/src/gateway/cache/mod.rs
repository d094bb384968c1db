//! Where answers are kept. A cache that fails is a cache without answers: nothing waits for it.

mod memory;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::answer::Answer;
use super::call::Key;
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
    Redis(Redis),
}

/// How long an answer is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub(super) fresh_for: Duration,
    /// After that, for callers whom the upstream cannot answer.
    pub(super) stale_for: Duration,
}

impl Keep {
    /// Only a success is worth more than nothing when it is old: a refusal is over with its time.
    pub(super) fn stale_for(status: StatusCode, stale_ttl: Duration) -> Duration {
        if status.is_success() { stale_ttl } else { Duration::ZERO }
    }
}

/// An answer that was kept.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) answer: Arc<Answer>,
    pub(super) is_fresh: bool,
}

impl Cache {
    pub(super) fn new(gateway: &str, settings: &CacheSettings) -> Result<Self, String> {
        match settings {
            CacheSettings::Memory { entries_max, bytes_max } => {
                Ok(Self::Memory(Memory::new(*entries_max, *bytes_max)?))
            }
            CacheSettings::Redis { url, timeout } => {
                Ok(Self::Redis(Redis::new(gateway, url, *timeout)?))
            }
        }
    }

    pub(super) async fn get(&self, key: Key, stale_ttl: Duration) -> Option<Kept> {
        match self {
            Self::Memory(memory) => memory.get(key),
            Self::Redis(redis) => redis.get(key, stale_ttl).await,
        }
    }

    /// Keeps an answer, unless there is one that was asked for later.
    pub(super) async fn put(&self, key: Key, answer: &Arc<Answer>, keep: Keep) {
        match self {
            Self::Memory(memory) => memory.put(key, answer, keep),
            Self::Redis(redis) => redis.put(key, answer, keep).await,
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
