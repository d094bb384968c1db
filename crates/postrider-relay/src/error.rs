//! Why a relay does not start.

use postrider_store::StoreError;

/// Why a relay does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The tables do not match this version of the program.
    #[error("{0}")]
    Schema(String),
    /// The outbox is in a claim mode other than the configured one.
    #[error("{0}")]
    Claim(String),
    /// A buffer cannot be served.
    #[error("{0}")]
    Buffer(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
