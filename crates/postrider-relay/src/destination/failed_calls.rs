//! Failed calls, to distinguish a broken call from a destination that is down.

use std::collections::HashMap;

use tokio::time::Instant;

/// Calls remembered. One more evicts the call that failed longest ago.
const CALLS_MAX: usize = 256;

/// The calls of one destination that failed and have not been answered since.
#[derive(Debug, Default)]
pub(crate) struct FailedCalls {
    calls: HashMap<i64, FailedCall>,
    /// When the destination last answered any call.
    answered_at: Option<Instant>,
}

#[derive(Debug)]
struct FailedCall {
    failed_at: Instant,
    /// It failed again although other calls were answered in between.
    is_broken: bool,
}

impl FailedCalls {
    /// Records that the destination answered this call.
    pub(crate) fn answered(&mut self, call: i64, now: Instant) {
        self.calls.remove(&call);
        self.answered_at = Some(now);
    }

    /// Records a failure. Returns whether the call is known to be broken, in which case its
    /// failures say nothing about the destination. It stays broken until it is answered.
    pub(crate) fn failed(&mut self, call: i64, now: Instant) -> bool {
        if let Some(known) = self.calls.get_mut(&call) {
            known.is_broken |= self.answered_at.is_some_and(|at| at > known.failed_at);
            known.failed_at = now;
            return known.is_broken;
        }
        if self.calls.len() >= CALLS_MAX {
            let oldest = self.calls.iter().min_by_key(|(_, known)| known.failed_at);
            let oldest = oldest.map(|(call, _)| *call);
            oldest.and_then(|call| self.calls.remove(&call));
        }
        self.calls.insert(call, FailedCall { failed_at: now, is_broken: false });
        false
    }

    /// Returns whether this call failed and has not been answered since.
    #[cfg(feature = "gateway")]
    pub(crate) fn contains(&self, call: i64) -> bool {
        self.calls.contains_key(&call)
    }
}

#[cfg(all(test, feature = "gateway"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_is_broken_once_it_fails_although_others_were_answered() {
        let (mut calls, start) = (FailedCalls::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert!(!calls.failed(1, at(0)));
        assert!(!calls.failed(1, at(1)), "nothing else was answered: it may be the destination");
        calls.answered(2, at(2));
        assert!(calls.failed(1, at(3)));
        assert!(calls.failed(1, at(4)), "it stays broken");
        calls.answered(1, at(5));
        assert!(!calls.contains(1) && !calls.failed(1, at(6)), "until it is answered");
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let (mut calls, start) = (FailedCalls::default(), Instant::now());
        for call in 0..1_000 {
            calls.failed(call, start + Duration::from_millis(call.unsigned_abs()));
        }
        assert_eq!(calls.calls.len(), CALLS_MAX);
        assert!(calls.contains(999) && !calls.contains(0));
    }
}
