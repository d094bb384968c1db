//! Why a call on a buffer failed, sorted by what the caller can do about it.

use redis::RedisError;

/// Why a call on a buffer failed.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// A setting is wrong.
    #[error("{0}")]
    Settings(String),
    /// The count cannot be added; nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// No node could be connected to; nothing was sent.
    #[error("Redis cannot be reached: {0}; check `url`, and that the server runs")]
    Unreached(String),
    /// No answer. Whether Redis did it is not known: a step of a worker may be repeated, an
    /// increment that is repeated may be counted twice.
    #[error("no answer from Redis: {0}")]
    Unavailable(String),
    /// Redis refused for now (loading, failing over, out of memory); nothing was done.
    #[error("Redis is not ready: {0}")]
    NotReady(String),
    /// The sum would not fit into 64 bits; nothing was done.
    #[error("the count would overflow: {0}")]
    Overflow(String),
    /// The batch is on the list, but its key is gone.
    #[error("a batch is lost: {0}")]
    Lost(String),
    /// Redis refused, and will again; nothing was done.
    #[error("Redis refused: {0}")]
    Refused(String),
}

impl BufferError {
    /// Whether a worker's step may succeed when it is repeated as it is.
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
