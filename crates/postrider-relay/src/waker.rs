//! Wake-ups inside the process: hints that something was appended.

use std::sync::Arc;

use tokio::sync::watch;

/// Wakes the relay's loops, so that an event appended by the same process does not wait for the
/// next poll. It is only a hint: losing one costs time, never an event.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    calls: Arc<watch::Sender<()>>,
}

impl Waker {
    /// Wakes all loops. Call it after the commit.
    pub fn wake(&self) {
        self.calls.send_replace(());
    }

    /// Subscribes a loop. Every loop sees every call, including one that came while it was busy.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.calls.subscribe()
    }
}
