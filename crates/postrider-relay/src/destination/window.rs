//! The number of events that a destination may have in flight. It works like TCP congestion
//! control: after an outage the window starts at one and doubles per round; an overload halves it,
//! and from there it grows by one per round. A destination without failures has no limit here.

use tokio::time::Instant;

/// From this size on, a window limits nothing: no batch is larger.
const UNLIMITED_FROM: f64 = 10_000.0;

#[derive(Debug)]
pub(crate) struct Window {
    /// Infinite if there is no limit.
    size: f64,
    /// Below this size the window doubles per round; above it, the window grows by one per round.
    doubling_below: f64,
    shrunk_at: Option<Instant>,
}

impl Window {
    pub(crate) fn unlimited() -> Self {
        Self { size: f64::INFINITY, doubling_below: f64::INFINITY, shrunk_at: None }
    }

    /// Returns how many events may be in flight; `None` means no limit.
    pub(crate) fn size(&self) -> Option<u32> {
        self.size.is_finite().then_some(self.size as u32)
    }

    /// Starts slowly: the destination is back, and the backlog must not hit it all at once.
    pub(crate) fn restart(&mut self) {
        *self = Self { size: 1.0, ..Self::unlimited() };
    }

    /// Grows the window after an outcome other than `Down`.
    pub(crate) fn grow(&mut self, in_flight: u32) {
        if self.size < self.doubling_below {
            self.size += 1.0;
        } else if f64::from(in_flight) * 2.0 >= self.size {
            // A window that is not used up proves nothing.
            self.size += 1.0 / self.size;
        }
        if self.size >= UNLIMITED_FROM {
            *self = Self::unlimited();
        }
    }

    /// Halves the window after a `Down` of an event that was sent at `sent_at`. An event that was
    /// sent before the last cut says nothing about the window since.
    pub(crate) fn shrink(&mut self, in_flight: u32, sent_at: Instant, now: Instant) {
        if self.shrunk_at.is_some_and(|at| sent_at <= at) {
            return;
        }
        self.size = (self.size.min(f64::from(in_flight.max(1))) / 2.0).max(1.0);
        self.doubling_below = self.size;
        self.shrunk_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn round(window: &mut Window) -> u32 {
        let size = window.size().unwrap();
        (0..size).for_each(|_| window.grow(size));
        size
    }

    #[test]
    fn after_an_outage_it_doubles_until_it_limits_nothing() {
        let mut window = Window::unlimited();
        assert_eq!(window.size(), None);
        window.restart();
        let rounds: Vec<u32> = (0..6).map(|_| round(&mut window)).collect();
        assert_eq!(rounds, [1, 2, 4, 8, 16, 32]);
        (0..10_000).for_each(|_| window.grow(0));
        assert_eq!(window.size(), None);
    }

    #[test]
    fn an_overload_halves_what_was_in_flight_and_it_grows_by_one_from_there() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut window = Window::unlimited();
        window.shrink(16, at(0), at(10));
        assert_eq!(window.size(), Some(8));
        // The other seven events of the same overload, sent before the cut, do not shrink it
        // further.
        (0..7).for_each(|_| window.shrink(8, at(5), at(11)));
        assert_eq!(window.size(), Some(8));
        let rounds: Vec<u32> = (0..4).map(|_| round(&mut window)).collect();
        assert!(rounds.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{rounds:?}");
        assert!(rounds[3] > 8, "{rounds:?}");
        (1..20).for_each(|ms| window.shrink(1, at(20 + ms), at(20 + ms)));
        assert_eq!(window.size(), Some(1), "never nothing at all");
    }

    #[test]
    fn a_window_that_is_not_made_use_of_does_not_grow() {
        let mut window = Window::unlimited();
        let now = Instant::now();
        window.shrink(40, now, now);
        (0..1_000).for_each(|_| window.grow(1));
        assert_eq!(window.size(), Some(20));
    }
}
