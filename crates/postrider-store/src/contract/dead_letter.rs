//! Dead letters, and the actions of an operator on them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use postrider::{AppendError, Appended, NewEvent, limits};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Counted, Result, StoreKind};
use crate::StoreError;
use crate::error::refuses_values;

/// The reason why an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// No attempts left.
    Exhausted,
    /// The destination will never accept it.
    Rejected,
    /// The content does not match its hash, or cannot be read.
    Integrity,
    /// No route is configured for it.
    NoRoute,
    /// It passed its expiry time.
    Expired,
    /// It crashed the relay while it was the only event in flight.
    Crash,
}

impl DeadReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::Exhausted,
        Self::Rejected,
        Self::Integrity,
        Self::NoRoute,
        Self::Expired,
        Self::Crash,
    ];

    /// Returns the spelling in tables, metrics and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Rejected => "rejected",
            Self::Integrity => "integrity",
            Self::NoRoute => "no_route",
            Self::Expired => "expired",
            Self::Crash => "crash",
        }
    }

    /// Parses the reason of a stored dead letter. A reason that no relay writes was inserted by
    /// hand. It must not fail the read of the other dead letters, so it becomes `Integrity`.
    pub(crate) fn stored(text: &str) -> Self {
        text.parse().unwrap_or(Self::Integrity)
    }
}

impl std::str::FromStr for DeadReason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            let allowed = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown reason `{text}`; allowed: {allowed}")
        })
    }
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of the dead letter.
    pub id: i64,
    /// Row id that the event had in the outbox.
    pub original_id: i64,
    /// Identity of the event.
    pub event_id: String,
    /// Key of the producer, to detect repeats.
    pub request_id: Option<String>,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Second half of the ordering key.
    pub aggregate_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The body; `None` in lists, because it could add up to gigabytes there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Size of the payload in bytes.
    pub payload_bytes: i64,
    /// JSON object.
    pub headers: Option<String>,
    /// See [`content_hash`](postrider::content_hash).
    pub content_hash: Option<String>,
    /// Reason why it was given up.
    pub reason: DeadReason,
    /// The error in a sentence.
    pub error_message: String,
    /// Details of the error.
    pub error_detail: Option<String>,
    /// Errors of the same kind share it: see [`fingerprint`](crate::fingerprint). Empty for a row
    /// of an older program until maintenance has computed it.
    pub fingerprint: String,
    /// When the event was given up.
    pub failed_at: DateTime<Utc>,
    /// Attempts spent.
    pub retry_count: i32,
    /// Attempts that the event asked for.
    pub max_retries: Option<i32>,
    /// How often it was retried before.
    pub redrive_count: i32,
    /// When the event was appended.
    pub event_created_at: DateTime<Utc>,
    /// When the event expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is resolved.
    pub resolved: bool,
    /// When it was resolved.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Who resolved it.
    pub resolved_by: Option<String>,
    /// How it was resolved.
    pub resolution_note: Option<String>,
    /// Row id of the new event, if it was retried.
    pub retried_as: Option<i64>,
    /// When the row was inserted.
    pub created_at: DateTime<Utc>,
    /// When the row was last changed.
    pub updated_at: DateTime<Utc>,
}

/// Filter of dead letters to list or to act on. A `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DlqFilter {
    /// Only this event id.
    pub event_id: Option<String>,
    /// Only errors with this [`fingerprint`](crate::fingerprint).
    pub fingerprint: Option<String>,
    /// Only this event type.
    pub event_type: Option<String>,
    /// Only this aggregate type.
    pub aggregate_type: Option<String>,
    /// Only this aggregate.
    pub aggregate_id: Option<String>,
    /// Only errors that contain this text.
    pub error: Option<String>,
    /// Only this reason.
    pub reason: Option<DeadReason>,
    /// Only resolved, or only unresolved.
    pub resolved: Option<bool>,
    /// Given up at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Given up before this time.
    pub until: Option<DateTime<Utc>>,
}

impl DlqFilter {
    /// Returns whether this filter matches all unresolved dead letters, without other conditions.
    pub(crate) fn is_open_only(&self) -> bool {
        *self == Self { resolved: Some(false), ..Self::default() }
    }
}

/// An event from a backup file, to be imported into the dead-letter table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportEntry {
    /// Row id that the event had in the outbox.
    pub original_id: i64,
    /// Identity of the event.
    pub event_id: String,
    /// Key of the producer, to detect repeats.
    pub request_id: Option<String>,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Second half of the ordering key.
    pub aggregate_id: String,
    /// Type of the event.
    pub event_type: String,
    /// The body.
    pub payload: String,
    /// JSON object.
    pub headers: Option<String>,
    /// See [`content_hash`](postrider::content_hash).
    pub content_hash: Option<String>,
    /// Reason why it was given up.
    pub reason: DeadReason,
    /// The error in a sentence.
    pub error_message: String,
    /// Details of the error.
    pub error_detail: Option<String>,
    /// When it was given up, on the relay's clock.
    pub failed_at: DateTime<Utc>,
    /// Attempts spent.
    pub retry_count: i32,
    /// Attempts that the event asked for.
    pub max_retries: Option<i32>,
    /// How often it was retried before.
    pub redrive_count: i32,
    /// When the event was appended.
    pub created_at: DateTime<Utc>,
    /// When the event expires. Older files do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

impl ImportEntry {
    /// A dead letter with its payload, as
    /// [`OperatorStore::dead_letter`](super::OperatorStore::dead_letter) answers it; `None` for one
    /// of a list.
    pub fn of(letter: DeadLetter) -> Option<Self> {
        Some(Self {
            original_id: letter.original_id,
            event_id: letter.event_id,
            request_id: letter.request_id,
            aggregate_type: letter.aggregate_type,
            aggregate_id: letter.aggregate_id,
            event_type: letter.event_type,
            payload: letter.payload?,
            headers: letter.headers,
            content_hash: letter.content_hash,
            reason: letter.reason,
            error_message: letter.error_message,
            error_detail: letter.error_detail,
            failed_at: letter.failed_at,
            retry_count: letter.retry_count,
            max_retries: letter.max_retries,
            redrive_count: letter.redrive_count,
            created_at: letter.event_created_at,
            expires_at: letter.expires_at,
        })
    }

    /// Refuses values that the outbox of this store could not hold, and nothing else: a file may
    /// come from anywhere, but every event that an outbox held can be imported again. The database
    /// checks whether headers are JSON, because each has its own limits of depth, numbers and
    /// escapes.
    pub(crate) fn check(&self, store: StoreKind) -> Result<()> {
        use limits::*;
        let fields = [
            ("event_id", Some(&self.event_id), EVENT_ID_CHARS),
            ("request_id", self.request_id.as_ref(), REQUEST_ID_CHARS_MAX),
            ("aggregate_type", Some(&self.aggregate_type), AGGREGATE_TYPE_CHARS_MAX),
            ("aggregate_id", Some(&self.aggregate_id), AGGREGATE_ID_CHARS_MAX),
            ("event_type", Some(&self.event_type), EVENT_TYPE_CHARS_MAX),
            ("content_hash", self.content_hash.as_ref(), CONTENT_HASH_CHARS_MAX),
            ("payload", Some(&self.payload), usize::MAX),
            ("headers", self.headers.as_ref(), usize::MAX),
        ];
        for (field, value, max) in fields {
            let Some(value) = value else { continue };
            if store == StoreKind::Postgres && value.contains('\0') {
                return Err(self.refuse(format!("{field} has a NUL")));
            }
            if value.len() > max && chars(value, store) > max {
                return Err(self.refuse(format!("{field} has more than {max} characters")));
            }
        }
        let is_identity = match store {
            StoreKind::Postgres => Uuid::parse_str(&self.event_id).is_ok(),
            StoreKind::Mysql => self.event_id.is_ascii(),
            StoreKind::Sqlite => chars(&self.event_id, store) == EVENT_ID_CHARS,
        };
        if !is_identity {
            return Err(self.refuse("event_id is not a UUID".to_owned()));
        }
        // The table in SQLite trims fewer characters than JSON has as white space.
        let space = if store == StoreKind::Sqlite { &[' '][..] } else { &[' ', '\t', '\n', '\r'] };
        let is_object = |text: &String| text.trim_start_matches(space).starts_with('{');
        if !self.headers.as_ref().is_none_or(is_object) {
            return Err(self.refuse("headers are not a JSON object".to_owned()));
        }
        let times = [Some(self.failed_at), Some(self.created_at), self.expires_at];
        match times.iter().flatten().all(|time| (1..=9999).contains(&time.year())) {
            true => Ok(()),
            false => Err(self.refuse("its times are not in the years 1 to 9999".to_owned())),
        }
    }

    /// Returns the reason why the table did not accept the entry: its values, or an unrelated
    /// error.
    pub(crate) fn refused_by(&self, error: sqlx::Error) -> StoreError {
        match refuses_values(&error) {
            true => self.refuse(format!("the database refuses its values: {error}")),
            false => error.into(),
        }
    }

    pub(crate) fn refuse(&self, why: String) -> StoreError {
        let Self { original_id, event_id, .. } = self;
        let event_id: String = event_id.chars().take(EVENT_ID_CHARS).collect();
        StoreError::Refused(format!("event {original_id} ({event_id}) cannot be imported: {why}"))
    }
}

/// Counts characters like the store: SQLite ends a text at a NUL.
fn chars(text: &str, store: StoreKind) -> usize {
    let ended = text.split('\0').next().filter(|_| store == StoreKind::Sqlite);
    ended.unwrap_or(text).chars().count()
}

/// Number of characters of an event id.
const EVENT_ID_CHARS: usize = 36;
/// Length of a SHA-256 in hex.
const CONTENT_HASH_CHARS_MAX: usize = 64;

/// The result for one entry of a backup file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Imported {
    /// It is now in the dead letters.
    Restored,
    /// The row is still in the outbox; maintenance moves it.
    Live,
    /// It is in the dead letters, or was there until it was resolved and cleaned up; or the event
    /// is in the archive as delivered.
    Known,
}

/// A page of dead letters, oldest first, without their payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestLetters {
    /// Oldest first; empty if none of the rows that were read matches.
    pub letters: Vec<LetterBrief>,
    /// Id after which the next call continues; `None` at the end.
    pub next: Option<i64>,
}

/// The part of a dead letter that a retry rule needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterBrief {
    /// Id of the dead letter.
    pub id: i64,
    /// The error in a sentence.
    pub error_message: String,
    /// How often it was retried before.
    pub redrive_count: i32,
    /// Time since it was given up, on the database's clock.
    pub age: Duration,
}

impl OldestLetters {
    /// Maximum number of rows that one call reads, so that a filter with few matches stays cheap.
    pub(crate) const WINDOW_ROWS: i64 = 10_000;

    /// Builds a result from rows in the order of `dlq_oldest.sql`, of a window that ends with the
    /// id `to`.
    pub(crate) fn found(rows: Vec<(i64, String, i32, i64)>, limit: u32, to: i64) -> Self {
        let full = rows.len() >= limit as usize;
        let next = rows.last().filter(|_| full).map_or(to, |(id, ..)| *id);
        let brief = |(id, error_message, redrive_count, age_ms): (i64, String, i32, i64)| {
            let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
            LetterBrief { id, error_message, redrive_count, age }
        };
        Self { letters: rows.into_iter().map(brief).collect(), next: Some(next) }
    }

    /// The result if there are no rows after the given id.
    pub(crate) const END: Self = Self { letters: Vec::new(), next: None };
}

/// Dead letters whose errors are of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterGroup {
    /// Fingerprint that they share, for [`DlqFilter::fingerprint`].
    pub fingerprint: String,
    /// Reason why they were given up.
    pub reason: DeadReason,
    /// How many were found; a lower bound if the search ran out of its budget.
    pub count: Counted,
    /// The error of the newest one.
    pub sample: String,
    /// The newest dead letter.
    pub newest_id: i64,
    /// When the first of them was given up.
    pub first_failed_at: DateTime<Utc>,
    /// When the last of them was given up.
    pub last_failed_at: DateTime<Utc>,
    /// Event types, most frequent first, at most [`GROUP_TYPES_MAX`].
    pub event_types: Vec<(String, i64)>,
    /// Counts per hour (its start, in UTC), oldest first: at most the newest [`GROUP_HOURS_MAX`].
    pub by_hour: Vec<(DateTime<Utc>, i64)>,
}

/// Maximum number of event types that a [`DeadLetterGroup`] names.
pub const GROUP_TYPES_MAX: usize = 10;
/// Maximum number of hours that a [`DeadLetterGroup`] counts.
pub const GROUP_HOURS_MAX: usize = 48;

/// The groups, the one with the newest dead letter first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterGroups {
    /// At most as many as were requested.
    pub groups: Vec<DeadLetterGroup>,
    /// Whether all dead letters were read. Otherwise those below `next` were not: counts are lower
    /// bounds, and older groups may be missing.
    pub complete: bool,
    /// Id at which the search stopped.
    pub next: Option<i64>,
}

/// An operator's changes to an event before it is sent again. A `None` keeps the value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Edit {
    /// First half of the ordering key.
    pub aggregate_type: Option<String>,
    /// Second half of the ordering key.
    pub aggregate_id: Option<String>,
    /// Type of the event.
    pub event_type: Option<String>,
    /// The body.
    pub payload: Option<String>,
    /// Headers to set, or to remove if `None`; the others stay.
    pub headers: BTreeMap<String, Option<String>>,
}

impl Edit {
    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Header of a resent event that holds the event id of the original dead letter.
pub const ORIGINAL_HEADER: &str = "postrider-original-event-id";

/// The new event of an edited dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resent {
    /// Row id in the outbox.
    pub id: i64,
    /// Event id, which is new.
    pub event_id: String,
}

/// Builds the new event from an edited dead letter.
pub(crate) fn edited(letter: &DeadLetter, edit: &Edit) -> Result<NewEvent> {
    let refuse = |why: String| StoreError::Refused(format!("dead letter {}: {why}", letter.id));
    if edit.is_empty() {
        let why = "the edit changes nothing; to send it again as it is, retry it".to_owned();
        return Err(refuse(why));
    }
    let or = |new: &Option<String>, old: &str| new.clone().unwrap_or_else(|| old.to_owned());
    let mut headers = crate::event::headers(letter.headers.as_deref())
        .map_err(|why| refuse(format!("its {why}")))?;
    for (name, value) in &edit.headers {
        match value {
            Some(value) => headers.insert(name.clone(), value.clone()),
            None => headers.remove(name),
        };
    }
    headers.insert(ORIGINAL_HEADER.to_owned(), letter.event_id.clone());
    let event_id = Uuid::now_v7();
    let event = NewEvent::new(
        or(&edit.aggregate_type, &letter.aggregate_type),
        or(&edit.aggregate_id, &letter.aggregate_id),
        or(&edit.event_type, &letter.event_type),
        or(&edit.payload, letter.payload.as_deref().unwrap_or_default()),
    )
    .event_id(event_id);
    let mut event =
        headers.into_iter().fold(event, |event, (name, value)| event.header(name, value));
    // The old request id stands for the old content, but some outboxes require one.
    if letter.request_id.is_some() {
        event = event.request_id(event_id.to_string());
    }
    if let Some(attempts) = letter.max_retries {
        event = event.max_retries(attempts);
    }
    event.validate().map_err(|error| refuse(format!("it cannot be sent like this: {error}")))?;
    Ok(event)
}

/// Converts the result of appending an edited event.
pub(crate) fn resent(appended: Result<Appended, AppendError>) -> Result<Resent> {
    match appended {
        Ok(Appended::New { id, event_id }) => Ok(Resent { id, event_id }),
        // Its request id is its own new event id.
        Ok(Appended::Duplicate { id }) => {
            Err(StoreError::Refused(format!("the edited event is known already, as event {id}")))
        }
        Err(AppendError::Database(error)) => Err(error.into()),
        Err(AppendError::Invalid(error)) => Err(StoreError::Refused(error.to_string())),
        Err(other) => Err(StoreError::Refused(other.to_string())),
    }
}
