//! The events that programs append, and their limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::InvalidEvent;

/// Size limits of the tables. The columns have the same widths on every store.
pub mod limits {
    /// Maximum number of characters in `aggregate_type`.
    pub const AGGREGATE_TYPE_CHARS_MAX: usize = 100;
    /// Maximum number of characters in `aggregate_id`.
    pub const AGGREGATE_ID_CHARS_MAX: usize = 255;
    /// Maximum number of characters in `event_type`.
    pub const EVENT_TYPE_CHARS_MAX: usize = 200;
    /// Maximum number of characters in `request_id`.
    pub const REQUEST_ID_CHARS_MAX: usize = 255;
    /// Maximum size of the JSON object in `headers`, in bytes.
    pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
    /// Maximum size of `payload`, in bytes. Larger data belongs in object storage, with a link in
    /// the event.
    pub const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;
    /// Maximum number of attempts that one event may ask for.
    pub const MAX_RETRIES_MAX: i32 = 1_000;
    /// Number of characters kept of `last_error`.
    pub const LAST_ERROR_CHARS_MAX: usize = 500;
    /// Number of characters kept of a dead letter's `error_message`.
    pub const ERROR_MESSAGE_CHARS_MAX: usize = 1_000;
    /// Number of characters kept of a dead letter's `error_detail`.
    pub const ERROR_DETAIL_CHARS_MAX: usize = 8_000;
    /// Maximum size of `response`, in bytes: the capacity of a `TEXT` column in MariaDB, so that an
    /// adopted table can have the column too.
    pub const RESPONSE_BYTES_MAX: usize = 65_535;
    /// Maximum number of characters in an operator's name in the audit trail.
    pub const OPERATOR_CHARS_MAX: usize = 100;
    /// Number of characters kept of the target of an operator's action.
    pub const AUDIT_TARGET_CHARS_MAX: usize = 100;
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
    /// Creates an event of `aggregate_type`/`aggregate_id` (together the ordering key).
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

    /// Like [`NewEvent::new`], with a payload serialized as JSON.
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

    /// Sets the key that detects repeats: an append of a second event with this id returns a
    /// duplicate.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Sets the event id, for programs that have one of their own. The default is a new UUID.
    #[must_use]
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = event_id;
        self
    }

    /// Adds a header, which is delivered with the event.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Adds the W3C trace context, so that the delivery joins the producer's trace.
    #[must_use]
    pub fn trace_context(self, traceparent: &str, tracestate: Option<&str>) -> Self {
        let event = self.header("traceparent", traceparent);
        match tracestate {
            Some(state) => event.header("tracestate", state),
            None => event,
        }
    }

    /// Sets the attempts allowed for this event, including the first. The default is the outbox's
    /// limit.
    #[must_use]
    pub fn max_retries(mut self, attempts: i32) -> Self {
        self.max_retries = Some(attempts);
        self
    }

    /// Delays the first delivery, measured on the database's clock.
    #[must_use]
    pub fn deliver_after(mut self, wait: Duration) -> Self {
        self.deliver_after = Some(wait);
        self
    }

    /// Sets the age at which an undelivered event becomes a dead letter (`expired`).
    #[must_use]
    pub fn expires_after(mut self, age: Duration) -> Self {
        self.expires_after = Some(age);
        self
    }

    /// Checks that the columns can hold the values, before anything is written.
    ///
    /// # Errors
    /// Names the field, its value or length, and the limit.
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

    /// Returns the hash that the relay verifies before delivery.
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
    // Compares bytes first: counting the characters of a 4 MiB value just to refuse it would be a
    // waste.
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

/// Returns `SHA-256(request_id | event_type | payload)` in hex, joined by `|`. A missing request id
/// counts as empty.
pub fn content_hash(request_id: Option<&str>, event_type: &str, payload: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(request_id.unwrap_or_default());
    hasher.update(b"|");
    hasher.update(event_type);
    hasher.update(b"|");
    hasher.update(payload);
    hex(&hasher.finalize())
}

/// Formats bytes in hex.
pub fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
        text
    })
}

/// Makes any text fit a column: no NUL (PostgreSQL refuses it), at most `chars_max` characters. An
/// error message must never be the reason why a settle fails.
pub fn fit(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.len() <= chars_max && !text.contains('\0') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| *c != '\0').take(chars_max).collect())
}
