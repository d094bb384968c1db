//! Periods without faults, in which the relays catch up: the faults right after them hit relays
//! that work on the newest events, where late commits matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by everything that causes faults.
#[derive(Debug, Clone, Default)]
pub(super) struct Lull(Arc<AtomicBool>);

impl Lull {
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}
