//! A database that goes away while a daemon starts is waited for, as it is later. Where it was
//! never there, or does not let this program in, the configuration is probably wrong, and the start
//! ends.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::StoreError;
use postrider::store::Database;

use crate::commands::{self, Failure};

/// Waits between tries; doubled up to the second.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// For so long, connections that are ended while they begin are tried again: what listens there may
/// not be the database.
const CONNECT_FOR: Duration = Duration::from_secs(20);

/// Connects to the store of a daemon.
pub(crate) async fn connect(url: &str, connections_max: u32) -> Result<Arc<dyn Database>, Failure> {
    let until = Instant::now() + CONNECT_FOR;
    let passes = |failure: &Failure| {
        matches!(failure, Failure::Connect { error, .. } if was_cut(error))
            && Instant::now() < until
    };
    repeat(async || commands::connect(url, connections_max, true).await, passes).await
}

/// A step of the start after the first connection: repeated while the database cannot be reached.
pub(crate) async fn repeated<T>(step: impl AsyncFn() -> Result<T, Failure>) -> Result<T, Failure> {
    let passes = |failure: &Failure| match failure {
        Failure::Store(error) | Failure::Connect { error, .. } => error.is_transient(),
        _ => false,
    };
    repeat(step, passes).await
}

async fn repeat<T>(
    step: impl AsyncFn() -> Result<T, Failure>,
    passes: impl Fn(&Failure) -> bool,
) -> Result<T, Failure> {
    let mut wait = WAIT.0;
    loop {
        match step().await {
            Err(failure) if passes(&failure) => {
                tracing::warn!(error = %failure, "the start waits for the store; trying again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT.1);
            }
            outcome => return outcome,
        }
    }
}

/// Whether a server took the connection and ended it: it starts or stops, has too many connections,
/// or somebody cut the session.
fn was_cut(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(sqlx::Error::Io(error)) => matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        ),
        // To the driver, a connection that ends before its first answer is a protocol error.
        StoreError::Unavailable(sqlx::Error::Database(_) | sqlx::Error::Protocol(_)) => true,
        _ => false,
    }
}
