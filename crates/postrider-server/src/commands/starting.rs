//! Start of a daemon. If the database goes away in the meantime, the daemon waits for it, as it
//! does later. If the database was never reachable, or rejects the login, the configuration is
//! probably wrong, and the start fails.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::internal::DoublingWait;
use postrider_command::Failure;
use postrider_store::{Database, StoreError};

/// First and longest wait between attempts.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time during which connections that the other end closes at once are tried again. It is limited
/// because the program that listens there may not be the database.
const CONNECT_FOR: Duration = Duration::from_secs(20);

/// Connects a daemon to its store.
pub(crate) async fn connect(url: &str, connections_max: u32) -> Result<Arc<dyn Database>, Failure> {
    let until = Instant::now() + CONNECT_FOR;
    let passes = |failure: &Failure| {
        matches!(failure, Failure::Connect { error, .. } if was_cut(error))
            && Instant::now() < until
    };
    repeat(async || postrider_command::connect(url, connections_max, true).await, passes).await
}

/// Runs a step of the start after the first connection, and repeats it while the database cannot be
/// reached.
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
    let mut wait = DoublingWait::new(WAIT.0, WAIT.1);
    loop {
        match step().await {
            Err(failure) if passes(&failure) => {
                tracing::warn!(error = %failure, "the start waits for the store; trying again");
                tokio::time::sleep(wait.take()).await;
            }
            outcome => return outcome,
        }
    }
}

/// Returns whether a server accepted the connection and then closed it: it is starting or stopping,
/// has too many connections, or an administrator ended the session.
fn was_cut(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(sqlx::Error::Io(error)) => matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        ),
        // The driver reports a connection that ends before its first answer as a protocol error.
        StoreError::Unavailable(sqlx::Error::Database(_) | sqlx::Error::Protocol(_)) => true,
        _ => false,
    }
}
