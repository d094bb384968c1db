//! The report that a relay sends with each heartbeat: the outboxes it works on, and their traffic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Share;

/// Number of age classes. The upper end of class `n` is 2^(n/2) milliseconds, so the last one ends
/// after twelve days.
const CLASSES: u8 = 61;

/// An outbox that a relay works on, as reported to the other relays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Name of the outbox.
    pub outbox: String,
    /// Epoch of the claim mode that it works in; it no longer holds rows of an older epoch.
    pub epoch: i64,
    /// The share that it claims.
    pub share: Share,
    /// The first few destinations that are down, as this relay sees them.
    #[serde(default)]
    pub down: Vec<DownDestination>,
    /// Events in flight, and the counts of the last minute.
    #[serde(default)]
    pub traffic: Traffic,
    /// The reason why its work is stuck, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A destination to which a relay sends only probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownDestination {
    /// The sink.
    pub sink: String,
    /// Host, broker or similar.
    pub destination: String,
    /// When it went down, on the relay's clock.
    pub since: chrono::DateTime<chrono::Utc>,
    /// Last error of the destination.
    pub error: String,
}

/// Parses a relay's report about the outboxes that it serves. A text of a newer program that cannot
/// be parsed counts as empty, so it does not stop this relay.
pub(crate) fn parse_serving(text: &str) -> Vec<Serving> {
    serde_json::from_str(text).unwrap_or_default()
}

pub(crate) fn serving_text(serving: &[Serving]) -> String {
    serde_json::to_string(serving).unwrap_or_default()
}

/// Events in flight of a relay, and its counts of the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Events that were sent and have no answer yet.
    pub in_flight: u64,
    /// Failed attempts within the last minute.
    pub failed_in_minute: u64,
    /// Ages of the events that were settled as delivered within the last minute.
    pub ages: Ages,
}

impl Traffic {
    /// Adds the report of another relay.
    pub fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.failed_in_minute += other.failed_in_minute;
        for (class, count) in &other.ages.0 {
            self.ages.add_to(*class, *count);
        }
    }
}

/// Ages of events, counted in classes, each 1.4 times as wide as the previous one. The counts of
/// several relays can be added up; percentiles cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ages(Vec<(u8, u64)>);

impl Ages {
    /// Counts one event of this age.
    pub fn note(&mut self, age: Duration) {
        let ms = age.as_secs_f64() * 1_000.0;
        let class = (ms.max(1.0).log2() * 2.0).ceil().min(f64::from(CLASSES - 1));
        self.add_to(class as u8, 1);
    }

    /// Adds the counts of another relay.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in &other.0 {
            self.add_to(*class, *count);
        }
    }

    /// Returns the number of events.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns the age that this share of the events (0 to 1) did not exceed, to within its class.
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

    /// Adds to a class and keeps the list sorted by class. A class that only a newer program knows
    /// is ignored.
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
