//! Wake-ups inside the process: hints that something was appended.

use std::sync::Arc;

use tokio::sync::Notify;

/// Wakes the relay's loops, so that an event appended by the same process does not wait for the
/// next poll. A hint: losing one costs time, never an event.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    notify: Arc<Notify>,
}

impl Waker {
    /// Call it after the commit.
    pub fn wake(&self) {
        self.notify.notify_waiters();
        // For a loop that is just about to wait.
        self.notify.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}
