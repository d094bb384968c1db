//! Calls to a destination that no event of the relay made, such as a gateway's own. The breaker hears
//! of them at once; they are kept here for the relay, which tells people and metrics.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::health::Turn;
use crate::sink::Outcome;

/// Calls kept for a relay that does not listen, because it is paused or elsewhere. Older ones are
/// forgotten: they are counted for rates of the last minutes, which nobody looks at then.
#[cfg(feature = "gateway")]
const KEPT_MAX: usize = 10_000;

/// One answer.
#[derive(Debug)]
pub(crate) struct LiveCall {
    pub(crate) destination: String,
    pub(crate) outcome: Outcome,
    /// Whether the destination went down or came back by it.
    pub(crate) turn: Option<Turn>,
}

/// Those that the relay has not heard of yet.
#[derive(Debug, Default)]
pub(crate) struct LiveCalls {
    untold: Mutex<VecDeque<LiveCall>>,
    added: Notify,
}

impl LiveCalls {
    #[cfg(feature = "gateway")]
    pub(crate) fn add(&self, call: LiveCall) {
        let mut untold = self.lock();
        if untold.len() >= KEPT_MAX {
            untold.pop_front();
        }
        untold.push_back(call);
        drop(untold);
        self.added.notify_one();
    }

    /// Waits until there are some, and takes them.
    pub(crate) async fn next(&self) -> VecDeque<LiveCall> {
        loop {
            let untold = std::mem::take(&mut *self.lock());
            if !untold.is_empty() {
                return untold;
            }
            self.added.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LiveCall>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
