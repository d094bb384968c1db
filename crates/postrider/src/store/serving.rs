//! What a relay tells with each heartbeat: what it works on, and how that goes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Share;

/// Classes of ages: the upper end of class `n` is 2^(n/2) milliseconds, so the last one ends after
/// twelve days.
const CLASSES: u8 = 61;

/// An outbox that a relay works on, as its entry in the list of relays tells the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Name of the outbox.
    pub outbox: String,
    /// Epoch of the claim mode that it works in; it holds nothing of an older one any more.
    pub epoch: i64,
    /// The share it takes.
    pub share: Share,
    /// Destinations that are down, as this relay sees them; the first few.
    #[serde(default)]
    pub down: Vec<DownDestination>,
    /// What it has in flight, and what it did in the last minute.
    #[serde(default)]
    pub traffic: Traffic,
    /// Why its work does not get on, while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A destination to which a relay sends nothing but probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownDestination {
    /// The sink.
    pub sink: String,
    /// Host, broker or the like.
    pub destination: String,
    /// Since when, on the relay's clock.
    pub since: chrono::DateTime<chrono::Utc>,
    /// What it said.
    pub error: String,
}

/// Reads what a relay wrote about the outboxes it serves. Text of a newer program that this one
/// cannot read is no reason to stop.
pub(crate) fn parse_serving(text: &str) -> Vec<Serving> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn serving_text(serving: &[Serving]) -> String {
    serde_json::to_string(serving).unwrap_or_default()
}

/// What a relay has in flight, and what it did in the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Events that were sent and not answered yet.
    pub in_flight: u64,
    /// Attempts spent without delivery, within the last minute.
    pub failed_in_minute: u64,
    /// How old events were when they were settled as delivered, within the last minute.
    pub ages: Ages,
}

impl Traffic {
    /// Adds what another relay tells.
    pub fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.failed_in_minute += other.failed_in_minute;
        for (class, count) in &other.ages.0 {
            self.ages.add_to(*class, *count);
        }
    }
}

/// Ages of events, counted in classes, each 1.4 times as wide as the one before. Those of several
/// relays can be added up, which percentiles cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ages(Vec<(u8, u64)>);

impl Ages {
    /// Counts one event.
    pub fn note(&mut self, age: Duration) {
        let ms = age.as_secs_f64() * 1_000.0;
        let class = (ms.max(1.0).log2() * 2.0).ceil().min(f64::from(CLASSES - 1));
        self.add_to(class as u8, 1);
    }

    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in &other.0 {
            self.add_to(*class, *count);
        }
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The age that this share of the events (0 to 1) did not exceed, to within its class.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = self.count() as f64 * share.clamp(0.0, 1.0);
        let mut before = 0.0;
        for (class, count) in &self.0 {
            let count = *count as f64;
            if before + count >= wanted && count > 0.0 {
                let (from, to) = (lower_ms(*class), upper_ms(*class));
                let ms = from + (to - from) * ((wanted - before) / count).clamp(0.0, 1.0);
                return Some(Duration::from_secs_f64(ms / 1_000.0));
            }
            before += count;
        }
        None
    }

    /// The list is in the order of the classes. One that a newer program made up is passed over.
    fn add_to(&mut self, class: u8, count: u64) {
        if class >= CLASSES {
            return;
        }
        match self.0.binary_search_by_key(&class, |(known, _)| *known) {
            Ok(place) => self.0[place].1 += count,
            Err(place) => self.0.insert(place, (class, count)),
        }
    }
}

fn upper_ms(class: u8) -> f64 {
    (f64::from(class) / 2.0).exp2()
}

fn lower_ms(class: u8) -> f64 {
    class.checked_sub(1).map_or(0.0, upper_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(ms: &[u64]) -> Ages {
        let mut ages = Ages::default();
        ms.iter().for_each(|ms| ages.note(Duration::from_millis(*ms)));
        ages
    }

    #[test]
    fn a_quantile_is_within_its_class() {
        let ages = ages(&[0, 10, 10, 10, 10, 10, 10, 10, 10, 60_000]);
        let ms = |share| ages.quantile(share).unwrap().as_secs_f64() * 1_000.0;
        assert!((8.0..=11.4).contains(&ms(0.5)), "{}", ms(0.5));
        assert!((46_000.0..=65_600.0).contains(&ms(0.99)), "{}", ms(0.99));
        assert_eq!(Ages::default().quantile(0.5), None);
    }

    #[test]
    fn the_ages_of_two_relays_are_those_of_one() {
        let (mut first, second) = (ages(&[1, 5, 900]), ages(&[5, 7]));
        first.add(&second);
        assert_eq!(first, ages(&[1, 5, 900, 5, 7]));
        assert_eq!(first.count(), 5);
    }

    #[test]
    fn what_an_older_relay_does_not_tell_is_nothing() {
        assert_eq!(serde_json::from_str::<Traffic>("{}").unwrap(), Traffic::default());
        let newer = r#"{"in_flight":2,"ages":[[3,1],[200,9]],"warp":true}"#;
        let mut all = Traffic::default();
        all.add(&serde_json::from_str(newer).unwrap());
        assert_eq!((all.in_flight, all.ages.count()), (2, 1));
    }

    #[test]
    fn what_a_relay_serves_survives_the_table() {
        let serving = vec![Serving {
            outbox: "a".to_owned(),
            epoch: 3,
            share: Share::WHOLE,
            down: Vec::new(),
            traffic: Traffic { in_flight: 2, failed_in_minute: 1, ages: ages(&[3]) },
            trouble: None,
        }];
        assert_eq!(parse_serving(&serving_text(&serving)), serving);
        assert_eq!(parse_serving("something of a newer program"), []);
    }
}
