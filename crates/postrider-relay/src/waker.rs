//! Wake-ups inside the process: hints that something was appended.

use std::sync::Arc;

use tokio::sync::watch;

/// Wakes the relay's loops, so that an event appended by the same process does not wait for the
/// next poll. A hint: losing one costs time, never an event.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    calls: Arc<watch::Sender<()>>,
}

impl Waker {
    /// Call it after the commit.
    pub fn wake(&self) {
        self.calls.send_replace(());
    }

    /// What one loop listens to. Every loop sees every call, also one that came while it was
    /// looking elsewhere.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.calls.subscribe()
    }
}
