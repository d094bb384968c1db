//! Waits for a condition, with a deadline.

use std::time::Duration;

use tokio::time::Instant;

/// How long a test waits for something that must happen. Much longer than it takes, because a slow
/// machine is not a failure; a test that passes never waits this long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Polls `look` until it returns a value, often at first and then less often.
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
