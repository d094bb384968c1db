//! How the destinations of a sink are doing, as this relay sees it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use postrider::Event;

use crate::sink::Outcome;

/// Consecutive `Down` answers after which a destination counts as down.
const OPEN_AFTER: u32 = 5;
/// Destinations remembered. One more forgets the one that was heard of longest ago.
const DESTINATIONS_MAX: usize = 1_000;

#[derive(Debug)]
struct Destination {
    down_streak: u32,
    /// The different events of the streak, as many as it takes to open.
    down_ids: Vec<i64>,
    down_since: Option<Instant>,
    last_success_at: Option<DateTime<Utc>>,
    heard_at: Instant,
}

/// What the policy may know about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthView {
    /// It counts as down: nothing but probes should be sent.
    pub open: bool,
    /// `Down` answers since the last other one, of different events.
    pub down_streak: u32,
    /// Since when it has answered nothing but `Down`.
    pub down_for: Option<Duration>,
    /// When it last took an event, on the database's clock.
    pub last_success_at: Option<DateTime<Utc>>,
}

/// A change that people want to know about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It counts as down from now on.
    WentDown,
    /// It takes events again.
    CameBack {
        /// How long it was down.
        after: Duration,
    },
}

/// The destinations of one sink.
#[derive(Debug, Default)]
pub struct Health {
    destinations: Mutex<HashMap<String, Destination>>,
}

impl Health {
    /// Takes an outcome into account. Answers whether the destination went down or came back.
    pub fn record(
        &self,
        destination: &str,
        event: &Event,
        outcome: &Outcome,
        took: Duration,
    ) -> Option<Turn> {
        // They say nothing about the destination, which may never have been heard of.
        if matches!(outcome, Outcome::Untried | Outcome::NoRoute { .. }) {
            return None;
        }
        let mut destinations = self.lock();
        if destinations.len() >= DESTINATIONS_MAX && !destinations.contains_key(destination) {
            let oldest = destinations.iter().min_by_key(|(_, d)| d.heard_at);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                destinations.remove(&name);
            }
        }
        let now = Instant::now();
        let known = destinations.entry(destination.to_owned()).or_insert_with(|| Destination {
            down_streak: 0,
            down_ids: Vec::new(),
            down_since: None,
            last_success_at: None,
            heard_at: now,
        });
        known.heard_at = now;
        let was_open = known.down_streak >= OPEN_AFTER;
        let down_for = known.down_since.map_or(Duration::ZERO, |since| since.elapsed());
        match outcome {
            Outcome::Down { .. } => {
                known.down_since.get_or_insert(now);
                // A few events that always time out are not an outage of their destination.
                if was_open || !known.down_ids.contains(&event.id) {
                    known.down_streak = known.down_streak.saturating_add(1);
                }
                if !was_open && !known.down_ids.contains(&event.id) {
                    known.down_ids.push(event.id);
                }
            }
            Outcome::Untried | Outcome::NoRoute { .. } => {}
            Outcome::Delivered | Outcome::Rejected { .. } | Outcome::Retry { .. } => {
                known.down_streak = 0;
                known.down_ids.clear();
                known.down_since = None;
                if *outcome == Outcome::Delivered {
                    // The database's clock, as far as this process can know it: the claim's answer
                    // plus the time that has passed here since.
                    let passed = chrono::Duration::from_std(took).unwrap_or_default();
                    let at = event.claimed_at.checked_add_signed(passed);
                    known.last_success_at = known.last_success_at.max(at);
                }
            }
        }
        match (was_open, known.down_streak >= OPEN_AFTER) {
            (false, true) => Some(Turn::WentDown),
            (true, false) => Some(Turn::CameBack { after: down_for }),
            _ => None,
        }
    }

    /// What is known about a destination.
    pub fn view(&self, destination: &str) -> HealthView {
        self.lock().get(destination).map_or_else(HealthView::default, |known| HealthView {
            open: known.down_streak >= OPEN_AFTER,
            down_streak: known.down_streak,
            down_for: known.down_since.map(|since| since.elapsed()),
            last_success_at: known.last_success_at,
        })
    }

    /// Whether all destinations are down, so that claiming more than a probe is pointless.
    pub fn all_open(&self) -> bool {
        let destinations = self.lock();
        !destinations.is_empty() && destinations.values().all(|d| d.down_streak >= OPEN_AFTER)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Destination>> {
        // A panic while it was held left at worst one counter behind.
        self.destinations.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
