//! Errors of calls on a buffer, grouped by what the caller can do about them.

use redis::RedisError;

/// The reason why a call on a buffer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// The count cannot be added; nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// No node accepted a connection; nothing was sent.
    #[error("Redis cannot be reached: {0}; check `url`, and that the server runs")]
    Unreached(String),
    /// No reply. Whether Redis ran the command is unknown: a worker may repeat its step, but an
    /// increment that is repeated may be counted twice.
    #[error("no answer from Redis: {0}")]
    Unavailable(String),
    /// Redis refused temporarily (loading, failing over, out of memory); nothing was done.
    #[error("Redis is not ready: {0}")]
    NotReady(String),
    /// The sum would not fit into 64 bits; nothing was done.
    #[error("the count would overflow: {0}")]
    Overflow(String),
    /// The batch is in the list, but its key is gone.
    #[error("a batch is lost: {0}")]
    Lost(String),
    /// Redis refused, and would refuse again; nothing was done.
    #[error("Redis refused: {0}")]
    Refused(String),
}

impl BufferError {
    /// Returns whether a worker's step may succeed when it is repeated unchanged.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreached(_) | Self::Unavailable(_) | Self::NotReady(_))
    }

    pub(super) fn refused(error: &RedisError) -> Self {
        let text = error.detail().map_or_else(|| error.to_string(), ToOwned::to_owned);
        match error.code() {
            Some("BUFFEROVERFLOW") => Self::Overflow(text),
            Some("BUFFERLOST") => Self::Lost(text),
            Some(
                "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY"
                | "MISCONF" | "OOM" | "NOREPLICAS" | "MOVED" | "ASK",
            ) => Self::NotReady(error.to_string()),
            _ if text.contains("would overflow") => Self::Overflow(text),
            _ => Self::Refused(error.to_string()),
        }
    }
}
