//! Events on their way from an outbox to a sink.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use chrono::{DateTime, Utc};
use postrider::content_hash;
use serde::{Deserialize, Serialize};

/// The states of an event, spelled in the tables as [`Status::as_str`] returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// It waits for its next delivery.
    Pending,
    /// A relay is delivering it.
    Processing,
    /// It was delivered; such rows are in the archive.
    Completed,
    /// The last attempt failed; it is tried again when due.
    Failed,
    /// It was given up; the row stays here only while the dead-letter table cannot take it.
    DeadLetter,
}

impl Status {
    /// Returns the spelling in the tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::DeadLetter => "DEAD_LETTER",
        }
    }
}

impl std::str::FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Pending, Self::Processing, Self::Completed, Self::Failed, Self::DeadLetter]
            .into_iter()
            .find(|status| status.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                format!(
                    "unknown status `{text}`; \
                     allowed: PENDING, PROCESSING, COMPLETED, FAILED, DEAD_LETTER"
                )
            })
    }
}

/// An event that a relay has claimed, to be sent to a sink.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Event {
    /// Row id in the outbox, assigned by the database in ascending order.
    pub id: i64,
    /// Identity of the event, for headers, `Idempotency-Key` and the inbox. A retry of a dead
    /// letter keeps it.
    pub event_id: String,
    /// Key of the producer, to detect repeats.
    pub request_id: Option<String>,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Second half of the ordering key.
    pub aggregate_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The body; JSON by convention.
    pub payload: String,
    /// A JSON object, as stored. [`Event::headers`] parses it.
    pub headers: Option<String>,
    /// Set by the library on append; see [`content_hash`].
    pub content_hash: Option<String>,
    /// When the row was inserted, on the database's clock.
    pub created_at: DateTime<Utc>,
    /// When the event becomes a dead letter (`expired`).
    pub expires_at: Option<DateTime<Utc>>,
    /// Attempts spent so far.
    pub retry_count: i32,
    /// Attempts allowed, if the event overrides its outbox.
    pub max_retries: Option<i32>,
    /// How often an operator or a policy retried it from the dead letters.
    pub redrive_count: i32,
    /// How often a relay died while it held this event. Owned by recovery.
    pub crash_count: i32,
    /// When a delivery last failed, whether it spent an attempt or not, on the database's clock.
    pub last_failed_at: Option<DateTime<Utc>>,
    /// When the event was claimed, on the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// Fences late writers: a settle with an older version changes nothing. Owned by the store.
    pub version: i64,
    /// Physical position of the row when it was read, if that lets the store find it faster. Owned
    /// by the store, which does not rely on it, because rows move.
    #[serde(skip)]
    pub place: Option<NonZeroU64>,
    /// Description of the part of the row that could not be read. Such an event is not delivered;
    /// it becomes a dead letter. Owned by the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<String>,
}

impl Event {
    /// Bytes that an event counts in a batch besides its payload and headers.
    pub const WEIGHT_BASE_BYTES: usize = 256;

    /// Returns the ordering key: in claim mode `lanes`, events of one key arrive in the order of
    /// their ids.
    pub fn key(&self) -> (&str, &str) {
        (&self.aggregate_type, &self.aggregate_id)
    }

    /// Returns the headers as names and values. Values that are not strings are returned as JSON.
    ///
    /// # Errors
    /// If the column does not hold a JSON object.
    pub fn headers(&self) -> Result<BTreeMap<String, String>, String> {
        headers(self.headers.as_deref())
    }

    /// Returns whether the stored hash matches the content; `None` if no hash is stored.
    pub fn hash_matches(&self) -> Option<bool> {
        let stored = self.content_hash.as_deref()?;
        let computed = content_hash(self.request_id.as_deref(), &self.event_type, &self.payload);
        Some(stored.eq_ignore_ascii_case(&computed))
    }

    /// Returns the number of bytes that this event counts in a batch.
    pub fn weight_bytes(&self) -> usize {
        self.payload.len() + self.headers.as_ref().map_or(0, String::len) + Self::WEIGHT_BASE_BYTES
    }
}

/// A live or archived event as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRecord {
    /// Row id.
    pub id: i64,
    /// Identity.
    pub event_id: String,
    /// The producer's key against repeats.
    pub request_id: Option<String>,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Second half of the ordering key.
    pub aggregate_id: String,
    /// What happened.
    pub event_type: String,
    /// The body; `None` in lists, where it could weigh gigabytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its size.
    pub payload_bytes: i64,
    /// JSON object.
    pub headers: Option<String>,
    /// See [`content_hash`](postrider::content_hash).
    pub content_hash: Option<String>,
    /// State.
    pub status: Status,
    /// Attempts spent.
    pub retry_count: i32,
    /// Sent again from the dead letters.
    pub redrive_count: i32,
    /// Due at; `None` is at once.
    pub next_retry_at: Option<DateTime<Utc>>,
    /// A dead letter after this.
    pub expires_at: Option<DateTime<Utc>>,
    /// The relay that works on it.
    pub locked_by: Option<String>,
    /// Since when.
    pub locked_at: Option<DateTime<Utc>>,
    /// Last error.
    pub last_error: Option<String>,
    /// Inserted at.
    pub created_at: DateTime<Utc>,
    /// Archived events: delivered at.
    pub delivered_at: Option<DateTime<Utc>>,
    /// Archived events: what the destination answered, where that is kept; `None` in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
}

/// Parses stored headers; see [`Event::headers`].
pub(crate) fn headers(stored: Option<&str>) -> Result<BTreeMap<String, String>, String> {
    let Some(text) = stored else { return Ok(BTreeMap::new()) };
    let map: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)
        .map_err(|error| format!("headers are not a JSON object: {error}"))?;
    Ok(map
        .into_iter()
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => (name, text),
            other => (name, other.to_string()),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn texts() -> impl Strategy<Value = String> {
        let pieces = [
            "{", "}", "[", "]", "\"a\":", ",", "\"", "\\", "\\u0000", "\\ud800", "1e999", "-",
            "null", " ", "\u{0}", "ü", "🦀",
        ];
        prop_oneof![
            vec(select(pieces.to_vec()), 0..12).prop_map(|pieces| pieces.concat()),
            any::<String>(),
            (0..100_000_usize).prop_map(|levels| format!("{{\"a\":{}", "[".repeat(levels))),
        ]
    }

    proptest! {
        /// Headers that were appended are read back unchanged.
        #[test]
        fn fuzz_headers(own in btree_map(any::<String>(), any::<String>(), 0..6)) {
            let stored = serde_json::json!(own).to_string();
            prop_assert_eq!(headers(Some(&stored)), Ok(own));
        }

        /// A column with any text is either read or refused, and deep nesting is not followed.
        #[test]
        fn fuzz_headers_of_any_text(text in texts()) {
            match headers(Some(&text)) {
                Ok(_) => prop_assert_eq!(text.trim_start().chars().next(), Some('{')),
                Err(why) => prop_assert!(why.contains("not a JSON object"), "{}", why),
            }
        }
    }
}
