//! Waiting for a condition, with a deadline.

use std::time::Duration;

use tokio::time::Instant;

/// How long a test waits for something that must happen. Far above what it takes, because a slow
/// machine is no failure; a test that passes never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Looks until `look` answers a value, at first often and then less so.
///
/// # Panics
/// After [`PATIENCE`], naming what did not happen.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    let mut rest = Duration::from_millis(5);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "within {PATIENCE:?}, this did not happen: {what}");
        tokio::time::sleep(rest).await;
        rest = (rest * 2).min(Duration::from_millis(40));
    }
}
