//! Waits that double.

use std::time::Duration;

/// A wait that doubles each time, from the first to the longest: between repeats of a call that
/// fails, and between polls that find nothing.
#[derive(Debug, Clone, Copy)]
pub struct DoublingWait {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl DoublingWait {
    /// Starts with the first wait, or with the longest if that is shorter.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        let first = first.min(longest);
        Self { first, longest, next: first }
    }

    /// Returns the next wait; the one after it is twice as long.
    pub fn take(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        wait
    }

    /// Returns whether the next wait is longer than the first.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.next > self.first
    }

    /// Starts with the first wait again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_doubles_from_the_first_to_the_longest() {
        let mut wait = DoublingWait::new(ms(5), ms(70));
        let waits: Vec<_> = (0..6).map(|_| wait.take().as_millis()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 70, 70]);
        assert!(wait.has_grown());
        wait.reset();
        assert!(!wait.has_grown());
        assert_eq!(wait.take(), ms(5));
        assert_eq!(DoublingWait::new(ms(5), ms(2)).take(), ms(2), "never longer than the longest");
    }

    #[test]
    fn the_longest_wait_may_be_any_duration() {
        let mut wait = DoublingWait::new(Duration::MAX, Duration::MAX);
        assert_eq!((wait.take(), wait.take()), (Duration::MAX, Duration::MAX));
    }
}
