//! The events of a bench: a number, a key that follows from it, and a payload of the requested
//! size.

use std::time::Duration;

use chrono::Utc;
use postrider::{NewEvent, content_hash};
use postrider_store::Event;

const AGGREGATE_TYPE: &str = "bench";
const EVENT_TYPE: &str = "Measured";
/// The text before the number in a payload.
const BEFORE_NUMBER: &str = r#"{"n":"#;

/// Makes events to append.
#[derive(Debug, Clone)]
pub(super) struct Maker {
    keys: u64,
    payload_bytes: usize,
    /// Aggregate types that events get in turn.
    aggregate_types: Vec<String>,
    /// Prefix of the names of keys.
    key_prefix: &'static str,
    deliver_after: Option<Duration>,
    request_ids: Option<String>,
    /// Events whose numbers differ by less than this never share a key.
    writers: u64,
}

impl Maker {
    pub(super) fn new(keys: u64, payload_bytes: u32) -> Self {
        let payload_bytes = payload_bytes as usize;
        Self {
            keys,
            payload_bytes,
            aggregate_types: vec![AGGREGATE_TYPE.to_owned()],
            key_prefix: "",
            deliver_after: None,
            request_ids: None,
            writers: 1,
        }
    }

    /// Uses other keys than other makers.
    pub(super) fn keys_named(self, keys: u64, key_prefix: &'static str) -> Self {
        Self { keys, key_prefix, ..self }
    }

    /// Uses these aggregate types in turn.
    pub(super) fn of_types(self, aggregate_types: Vec<String>) -> Self {
        Self { aggregate_types, ..self }
    }

    /// Delays the events by this time.
    pub(super) fn deliver_after(self, wait: Duration) -> Self {
        Self { deliver_after: Some(wait), ..self }
    }

    /// Adds request ids with this prefix.
    pub(super) fn request_ids(self, prefix: &str) -> Self {
        Self { request_ids: Some(prefix.to_owned()), ..self }
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// Splits the keys into this many parts; event n has a key of part `n % writers`. The events
    /// that one writer appends to a key are then committed in the order of their ids, as by an
    /// application that locks what it changes.
    pub(super) fn for_writers(self, writers: u64) -> Self {
        Self { writers, ..self }
    }

    pub(super) fn make(&self, number: u64) -> NewEvent {
        let key = self.key(number);
        let payload = payload(number, self.payload_bytes);
        let mut event = NewEvent::new(self.aggregate_type(number), key, EVENT_TYPE, payload);
        if let Some(wait) = self.deliver_after {
            event = event.deliver_after(wait);
        }
        match &self.request_ids {
            Some(prefix) => event.request_id(format!("{prefix}-{number}")),
            None => event,
        }
    }

    /// Returns the columns that a plain insert fills: aggregate type and id, event type, payload.
    pub(super) fn columns(&self, number: u64) -> [String; 4] {
        let payload = payload(number, self.payload_bytes);
        [self.aggregate_type(number).to_owned(), self.key(number), EVENT_TYPE.to_owned(), payload]
    }

    fn aggregate_type(&self, number: u64) -> &str {
        let types = self.aggregate_types.len().max(1) as u64;
        let place = usize::try_from(number % types).unwrap_or(0);
        self.aggregate_types.get(place).map_or(AGGREGATE_TYPE, String::as_str)
    }

    fn key(&self, number: u64) -> String {
        let (part, keys) = (number % self.writers, (self.keys / self.writers).max(1));
        format!("{}{}", self.key_prefix, scattered(number) % keys * self.writers + part)
    }
}

/// Maps a number to a pseudo-random one, always the same: keys come in random order, so that some
/// repeat at once, and an event that overtakes another of its key is noticed. (The finalizer of
/// SplitMix64.)
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns an event as a relay holds it, to feed a sink without a store.
pub(super) fn sample(number: u64, keys: u64, payload_bytes: u32) -> Event {
    let [aggregate_type, aggregate_id, event_type, payload] =
        Maker::new(keys, payload_bytes).columns(number);
    let now = Utc::now();
    Event {
        id: i64::try_from(number).unwrap_or(i64::MAX),
        event_id: uuid::Uuid::now_v7().to_string(),
        content_hash: Some(content_hash(None, &event_type, &payload)),
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        created_at: now,
        claimed_at: now,
        version: 1,
        ..Event::default()
    }
}

/// Returns the number that a payload contains.
pub(super) fn number_in(payload: &str) -> Option<usize> {
    let digits = payload.strip_prefix(BEFORE_NUMBER)?;
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

/// Returns JSON of exactly this size, if that is large enough for its frame.
fn payload(number: u64, bytes: usize) -> String {
    let frame = format!(r#"{BEFORE_NUMBER}{number},"data":""#);
    let padding = bytes.saturating_sub(frame.len() + 2);
    format!(r#"{frame}{}"}}"#, "x".repeat(padding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_its_size_and_its_number_and_is_json() {
        for (number, bytes) in [(0, 32), (41, 256), (9_999_999, 1_000)] {
            let text = payload(number, bytes);
            assert_eq!(text.len(), bytes);
            assert_eq!(number_in(&text), Some(number as usize));
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
        assert_eq!(number_in("{}"), None);
    }

    #[test]
    fn keys_come_at_random_and_all_of_them_do() {
        let maker = Maker::new(100, 64);
        let keys: Vec<String> = (0..2_000).map(|number| maker.key(number)).collect();
        let distinct: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), 100);
        assert!(keys.windows(2).any(|pair| pair[0] == pair[1]), "some come again at once");
        assert_eq!(maker.clone().keys_named(1, "bad-").key(7), "bad-0");
        let shared = maker.for_writers(4);
        let part_of = |number: u64| shared.key(number).parse::<u64>().unwrap() % 4;
        assert!((0..500).all(|number| part_of(number) == number % 4), "no key has two writers");
    }
}
