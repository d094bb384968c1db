//! A timer for periodic work.

use std::time::Duration;

use tokio::time::Instant;

/// A timer for periodic work.
pub(crate) struct Every {
    period: Duration,
    last: Instant,
}

impl Every {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, last: Instant::now() }
    }

    pub(crate) fn due(&mut self) -> bool {
        let due = self.last.elapsed() >= self.period;
        if due {
            self.last = Instant::now();
        }
        due
    }
}
