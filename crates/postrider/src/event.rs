//! Events: what a program appends and what a sink receives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::InvalidEvent;

/// The sizes that the tables allow. The columns have the same widths on every store.
pub mod limits {
    /// Characters in `aggregate_type`.
    pub const AGGREGATE_TYPE_CHARS_MAX: usize = 100;
    /// Characters in `aggregate_id`.
    pub const AGGREGATE_ID_CHARS_MAX: usize = 255;
    /// Characters in `event_type`.
    pub const EVENT_TYPE_CHARS_MAX: usize = 200;
    /// Characters in `request_id`.
    pub const REQUEST_ID_CHARS_MAX: usize = 255;
    /// Bytes of the JSON object in `headers`.
    pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
    /// Bytes in `payload`. Larger things belong in object storage, with a link in the event.
    pub const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;
    /// Attempts that one event may ask for.
    pub const MAX_RETRIES_MAX: i32 = 1_000;
    /// Characters kept of `last_error`.
    pub const LAST_ERROR_CHARS_MAX: usize = 500;
    /// Characters kept of a dead letter's `error_message`.
    pub const ERROR_MESSAGE_CHARS_MAX: usize = 1_000;
    /// Characters kept of a dead letter's `error_detail`.
    pub const ERROR_DETAIL_CHARS_MAX: usize = 8_000;
    /// `response`: what a `TEXT` column of MariaDB takes, so that an adopted table can have it too.
    pub const RESPONSE_BYTES_MAX: usize = 65_535;
    /// Characters of an operator's name in the audit trail.
    pub const OPERATOR_CHARS_MAX: usize = 100;
    /// Characters kept of what an operator's action was about.
    pub const AUDIT_TARGET_CHARS_MAX: usize = 100;
}

/// The states of an event, spelled in the tables as in [`Status::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Waits for its next delivery.
    Pending,
    /// A relay works on it.
    Processing,
    /// Delivered; such rows are in the archive.
    Completed,
    /// The last attempt failed; it is tried again when due.
    Failed,
    /// Given up; the row waits here only while the dead-letter table cannot take it.
    DeadLetter,
}

impl Status {
    /// The spelling in the tables.
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

/// An event to append.
#[derive(Debug, Clone)]
pub struct NewEvent {
    pub(crate) event_id: Uuid,
    pub(crate) request_id: Option<String>,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) event_type: String,
    pub(crate) payload: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) max_retries: Option<i32>,
    pub(crate) deliver_after: Option<Duration>,
    pub(crate) expires_after: Option<Duration>,
}

impl NewEvent {
    /// An event of `aggregate_type`/`aggregate_id` (together the ordering key).
    pub fn new(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
        payload: impl Into<String>,
    ) -> Self {
        Self {
            event_id: Uuid::now_v7(),
            request_id: None,
            aggregate_type: aggregate_type.into(),
            aggregate_id: aggregate_id.into(),
            event_type: event_type.into(),
            payload: payload.into(),
            headers: BTreeMap::new(),
            max_retries: None,
            deliver_after: None,
            expires_after: None,
        }
    }

    /// As [`NewEvent::new`], with a payload serialized as JSON.
    ///
    /// # Errors
    /// If `payload` does not serialize.
    pub fn json(
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        event_type: impl Into<String>,
        payload: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        let payload = serde_json::to_string(payload)?;
        Ok(Self::new(aggregate_type, aggregate_id, event_type, payload))
    }

    /// Recognises a repeat: a second event with this id is answered as a duplicate.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// The identity, where the program has one of its own; otherwise a fresh UUID.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = event_id;
        self
    }

    /// Adds a header that travels with the event.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Carries the W3C trace context, so that delivery joins the producer's trace.
    #[must_use]
    pub fn trace_context(self, traceparent: &str, tracestate: Option<&str>) -> Self {
        let event = self.header("traceparent", traceparent);
        match tracestate {
            Some(state) => event.header("tracestate", state),
            None => event,
        }
    }

    /// Attempts allowed for this event, the first included; otherwise the outbox's number.
    #[must_use]
    pub fn max_retries(mut self, attempts: i32) -> Self {
        self.max_retries = Some(attempts);
        self
    }

    /// Holds the first delivery back, counted on the database's clock.
    #[must_use]
    pub fn deliver_after(mut self, wait: Duration) -> Self {
        self.deliver_after = Some(wait);
        self
    }

    /// After this time the event is a dead letter (`expired`) instead of being delivered.
    #[must_use]
    pub fn expires_after(mut self, age: Duration) -> Self {
        self.expires_after = Some(age);
        self
    }

    /// Refuses what the columns cannot hold, before anything is written.
    ///
    /// # Errors
    /// Names the field, what it holds and what is allowed.
    pub fn validate(&self) -> Result<(), InvalidEvent> {
        use limits::*;
        chars("aggregate_type", &self.aggregate_type, AGGREGATE_TYPE_CHARS_MAX)?;
        chars("aggregate_id", &self.aggregate_id, AGGREGATE_ID_CHARS_MAX)?;
        chars("event_type", &self.event_type, EVENT_TYPE_CHARS_MAX)?;
        if let Some(request_id) = &self.request_id {
            chars("request_id", request_id, REQUEST_ID_CHARS_MAX)?;
        }
        bytes("payload", &self.payload, PAYLOAD_BYTES_MAX)?;
        if let Some(headers) = self.headers_json() {
            bytes("headers", &headers, HEADERS_BYTES_MAX)?;
            if self.headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0'))
            {
                return Err(InvalidEvent::Nul { field: "headers" });
            }
        }
        match self.max_retries {
            Some(attempts) if !(1..=MAX_RETRIES_MAX).contains(&attempts) => {
                Err(InvalidEvent::MaxRetries(attempts))
            }
            _ => Ok(()),
        }
    }

    /// The hash that the relay verifies before delivery.
    pub fn content_hash(&self) -> String {
        content_hash(self.request_id.as_deref(), &self.event_type, &self.payload)
    }

    pub(crate) fn headers_json(&self) -> Option<String> {
        // A map of strings always serializes.
        (!self.headers.is_empty()).then(|| serde_json::json!(self.headers).to_string())
    }
}

fn chars(field: &'static str, value: &str, max: usize) -> Result<(), InvalidEvent> {
    if value.is_empty() {
        return Err(InvalidEvent::Empty { field });
    }
    if value.contains('\0') {
        return Err(InvalidEvent::Nul { field });
    }
    // Bytes first: counting characters of a 4 MiB value to refuse it would be wasted work.
    let length = if value.len() <= max { value.len() } else { value.chars().count() };
    if length > max {
        return Err(InvalidEvent::TooLong { field, length, max, unit: "characters" });
    }
    Ok(())
}

fn bytes(field: &'static str, value: &str, max: usize) -> Result<(), InvalidEvent> {
    if value.len() > max {
        return Err(InvalidEvent::TooLong { field, length: value.len(), max, unit: "bytes" });
    }
    if value.contains('\0') {
        return Err(InvalidEvent::Nul { field });
    }
    Ok(())
}

/// An event as a relay holds it, on its way to a sink.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Row id in the outbox; ascending, assigned by the database.
    pub id: i64,
    /// The identity: headers, `Idempotency-Key`, inbox. Kept by retries of dead letters.
    pub event_id: String,
    /// The producer's own key against repeats.
    pub request_id: Option<String>,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Second half of the ordering key.
    pub aggregate_id: String,
    /// What happened.
    pub event_type: String,
    /// The body; JSON by convention.
    pub payload: String,
    /// A JSON object, as stored. Read it with [`Event::headers`].
    pub headers: Option<String>,
    /// Set on append by the library; see [`content_hash`].
    pub content_hash: Option<String>,
    /// When the row was inserted, on the database's clock.
    pub created_at: DateTime<Utc>,
    /// After this the event is a dead letter (`expired`).
    pub expires_at: Option<DateTime<Utc>>,
    /// Attempts spent so far.
    pub retry_count: i32,
    /// Attempts allowed, where the event overrides its outbox.
    pub max_retries: Option<i32>,
    /// How often an operator or a policy sent it again from the dead letters.
    pub redrive_count: i32,
    /// How often a relay died while it held this event. Owned by recovery.
    pub crash_count: i32,
    /// When the last try ended without delivery, on the database's clock.
    pub last_failed_at: Option<DateTime<Utc>>,
    /// The database's clock when the event was claimed.
    pub claimed_at: DateTime<Utc>,
    /// Fences late writers: a settle with an older version changes nothing. Owned by the store.
    pub version: i64,
    /// Where the row lay when it was read, if the store finds it faster by that. Owned by the store,
    /// which does not rely on it: rows move.
    #[serde(skip)]
    pub place: Option<NonZeroU64>,
    /// What of the row could not be read as it is. Such an event is not delivered, but set aside as a
    /// dead letter. Owned by the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defect: Option<String>,
}

impl Event {
    /// The ordering key: in claim mode `lanes`, events of one key arrive in the order of their ids.
    pub fn key(&self) -> (&str, &str) {
        (&self.aggregate_type, &self.aggregate_id)
    }

    /// The headers as names and values. Values that are not strings are given as JSON.
    ///
    /// # Errors
    /// If the column does not hold a JSON object.
    pub fn headers(&self) -> Result<BTreeMap<String, String>, String> {
        headers(self.headers.as_deref())
    }

    /// Whether the stored hash fits the content; `None` where no hash is stored.
    pub fn hash_matches(&self) -> Option<bool> {
        let stored = self.content_hash.as_deref()?;
        let computed = content_hash(self.request_id.as_deref(), &self.event_type, &self.payload);
        Some(stored.eq_ignore_ascii_case(&computed))
    }

    /// Bytes that this event weighs in a batch.
    pub fn weight_bytes(&self) -> usize {
        self.payload.len() + self.headers.as_ref().map_or(0, String::len) + 256
    }
}

/// See [`Event::headers`].
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

/// `SHA-256(request_id | event_type | payload)` in hex, joined by `|`; no request id is empty.
pub fn content_hash(request_id: Option<&str>, event_type: &str, payload: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(request_id.unwrap_or_default());
    hasher.update(b"|");
    hasher.update(event_type);
    hasher.update(b"|");
    hasher.update(payload);
    hex(&hasher.finalize())
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
        text
    })
}

/// Makes any text fit a column: no NUL (PostgreSQL refuses it), at most `chars_max` characters.
/// An error message must never be the reason that a settle fails.
pub(crate) fn fit(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.len() <= chars_max && !text.contains('\0') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| *c != '\0').take(chars_max).collect())
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
        /// What is appended as headers is read as headers.
        #[test]
        fn fuzz_headers(own in btree_map(any::<String>(), any::<String>(), 0..6)) {
            let mut event = NewEvent::new("order", "7", "OrderPlaced", "{}");
            event.headers = own.clone();
            prop_assert_eq!(headers(event.headers_json().as_deref()), Ok(own));
        }

        /// A column of any text is read or refused, and is not followed to any depth.
        #[test]
        fn fuzz_headers_of_any_text(text in texts()) {
            match headers(Some(&text)) {
                Ok(_) => prop_assert_eq!(text.trim_start().chars().next(), Some('{')),
                Err(why) => prop_assert!(why.contains("not a JSON object"), "{}", why),
            }
        }
    }
}
