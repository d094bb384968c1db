//! Calls to a destination that the relay did not make, such as those of a gateway's callers. The
//! breaker learns of them at once; they are queued here for the relay, which reports them in alerts
//! and metrics.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::destination::health::Turn;
use crate::outcome::Outcome;

/// Calls kept while no relay reads them, because it is paused or runs in another process. Older
/// calls are dropped: they only count towards rates of the last minutes.
#[cfg(feature = "gateway")]
const KEPT_MAX: usize = 10_000;

/// The outcome of one call.
#[derive(Debug)]
pub(crate) struct LiveCall {
    pub(crate) destination: String,
    pub(crate) outcome: Outcome,
    /// Whether this call made the destination go down or come back.
    pub(crate) turn: Option<Turn>,
}

/// Calls that the relay has not read yet.
#[derive(Debug, Default)]
pub(crate) struct LiveCalls {
    unreported: Mutex<VecDeque<LiveCall>>,
    added: Notify,
}

impl LiveCalls {
    #[cfg(feature = "gateway")]
    pub(crate) fn add(&self, call: LiveCall) {
        let mut unreported = self.lock();
        if unreported.len() >= KEPT_MAX {
            unreported.pop_front();
        }
        unreported.push_back(call);
        drop(unreported);
        self.added.notify_one();
    }

    /// Waits until there are calls, and takes all of them.
    pub(crate) async fn next(&self) -> VecDeque<LiveCall> {
        loop {
            let unreported = std::mem::take(&mut *self.lock());
            if !unreported.is_empty() {
                return unreported;
            }
            self.added.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<LiveCall>> {
        self.unreported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
