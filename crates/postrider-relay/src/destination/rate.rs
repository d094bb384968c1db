//! A limit of events per second, shared by everything that sends to one sink.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket that fills at the rate and holds one burst.
#[derive(Debug)]
pub struct RateLimit {
    events_per_s: f64,
    burst: u32,
    /// When the bucket was, or will be, empty. The number of tokens is the time since then
    /// multiplied by the rate.
    empty_at: Mutex<Instant>,
}

impl RateLimit {
    /// Creates a limit of `events_per_s`, with up to `burst` events at once after a pause. The
    /// bucket starts full.
    ///
    /// # Errors
    /// If a number is out of range; the message names the configuration key.
    pub fn new(events_per_s: f64, burst: u32) -> Result<Self, String> {
        if !(0.001..=1_000_000.0).contains(&events_per_s) {
            return Err(format!("events_per_s = {events_per_s}: allowed is 0.001 to 1000000"));
        }
        if burst == 0 {
            return Err("burst = 0: at least 1".to_owned());
        }
        let (now, full) = (Instant::now(), f64::from(burst) / events_per_s);
        // Shortly after the machine started, no such time exists; the bucket then starts empty.
        let empty_at = now.checked_sub(Duration::from_secs_f64(full)).unwrap_or(now);
        Ok(Self { events_per_s, burst, empty_at: Mutex::new(empty_at) })
    }

    /// Returns the number of events per second.
    pub fn events_per_s(&self) -> f64 {
        self.events_per_s
    }

    /// Returns the number of events that may be sent at once after a pause.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns how many events can be sent within `time`, not counting a burst.
    pub(crate) fn events_in(&self, time: Duration) -> u32 {
        (self.events_per_s * time.as_secs_f64()) as u32
    }

    /// Takes one token, possibly in advance, and returns how long to wait before using it. Returns
    /// `None` and takes nothing if the wait would be longer than `patience`.
    pub(crate) fn take(&self, patience: Duration, now: Instant) -> Option<Duration> {
        // After a panic while the lock was held, any stored time is still valid.
        let mut empty_at = self.empty_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let oldest = now.checked_sub(self.time_for(self.burst)).unwrap_or(*empty_at);
        let usable_at = (*empty_at).max(oldest) + self.time_for(1);
        let wait = usable_at.saturating_duration_since(now);
        if wait > patience {
            return None;
        }
        *empty_at = usable_at;
        Some(wait)
    }

    fn time_for(&self, events: u32) -> Duration {
        Duration::from_secs_f64(f64::from(events) / self.events_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let limit = RateLimit::new(10.0, 3).unwrap();
        let start = Instant::now();
        let wait = |limit: &RateLimit, now| {
            limit.take(Duration::from_secs(60), now).map(|wait| wait.as_millis().div_ceil(10))
        };
        let waits: Vec<_> = (0..5).map(|_| wait(&limit, start)).collect();
        assert_eq!(waits, [Some(0), Some(0), Some(0), Some(10), Some(20)]);
        let later = start + Duration::from_secs(100);
        let waits: Vec<_> = (0..4).map(|_| wait(&limit, later)).collect();
        assert_eq!(
            waits,
            [Some(0), Some(0), Some(0), Some(10)],
            "no more than a burst is saved up"
        );
        assert_eq!(limit.take(Duration::from_millis(50), later), None);
        assert_eq!(wait(&limit, later), Some(20), "what was not taken is still there");
        assert_eq!(limit.events_in(Duration::from_secs(30)), 300);
    }

    #[test]
    fn numbers_without_sense_are_refused() {
        for (rate, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (1e9, 1), (10.0, 0)] {
            assert!(RateLimit::new(rate, burst).is_err(), "{rate} {burst}");
        }
    }
}
