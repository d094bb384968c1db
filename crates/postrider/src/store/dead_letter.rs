//! Dead letters, and what an operator does with them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Datelike, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Counted, Result, StoreKind};
use crate::error::refuses_values;
use crate::event::limits;
use crate::{AppendError, Appended, NewEvent, StoreError};

/// Why an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// No attempts left.
    Exhausted,
    /// The destination will never take it.
    Rejected,
    /// The content does not fit its hash, or cannot be read.
    Integrity,
    /// Nothing is configured to take it.
    NoRoute,
    /// Older than it may be.
    Expired,
    /// It killed the relay, alone in flight.
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

    /// The spelling in the tables, metrics and commands.
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

    /// The reason of a stored dead letter. One that no relay writes was put there by hand, which the
    /// other dead letters must not suffer from: it says nothing true about the event.
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
    /// See [`content_hash`](crate::content_hash).
    pub content_hash: Option<String>,
    /// Why it was given up.
    pub reason: DeadReason,
    /// The error in a sentence.
    pub error_message: String,
    /// More about the error.
    pub error_detail: Option<String>,
    /// Errors of the same kind share it: see [`fingerprint`](crate::fingerprint). Empty until
    /// upkeep has seen a row that an older program wrote.
    pub fingerprint: String,
    /// When the event was given up.
    pub failed_at: DateTime<Utc>,
    /// Attempts spent.
    pub retry_count: i32,
    /// Attempts the event asked for.
    pub max_retries: Option<i32>,
    /// Times it was sent again before.
    pub redrive_count: i32,
    /// When the event was appended.
    pub event_created_at: DateTime<Utc>,
    /// After this the event was not to be delivered.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether an operator dealt with it.
    pub resolved: bool,
    /// When.
    pub resolved_at: Option<DateTime<Utc>>,
    /// Who.
    pub resolved_by: Option<String>,
    /// How.
    pub resolution_note: Option<String>,
    /// Row id of the fresh event, where it was retried.
    pub retried_as: Option<i64>,
    /// Inserted at.
    pub created_at: DateTime<Utc>,
    /// Changed at.
    pub updated_at: DateTime<Utc>,
}

/// Which dead letters to list or act on. What is `None` is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DlqFilter {
    /// Only this identity.
    pub event_id: Option<String>,
    /// Only errors of this [`fingerprint`](crate::fingerprint).
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
    /// Given up at or after.
    pub since: Option<DateTime<Utc>>,
    /// Given up before.
    pub until: Option<DateTime<Utc>>,
}

impl DlqFilter {
    /// All unresolved ones, and nothing else is asked for.
    pub(crate) fn is_open_only(&self) -> bool {
        *self == Self { resolved: Some(false), ..Self::default() }
    }
}

/// An event from a backup file, to be put into the dead-letter table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportEntry {
    /// Row id that the event had in the outbox.
    pub original_id: i64,
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
    /// The body.
    pub payload: String,
    /// JSON object.
    pub headers: Option<String>,
    /// See [`content_hash`](crate::content_hash).
    pub content_hash: Option<String>,
    /// Why it was given up.
    pub reason: DeadReason,
    /// The error in a sentence.
    pub error_message: String,
    /// More about the error.
    pub error_detail: Option<String>,
    /// When it was given up, on the relay's clock.
    pub failed_at: DateTime<Utc>,
    /// Attempts spent.
    pub retry_count: i32,
    /// Attempts the event asked for.
    pub max_retries: Option<i32>,
    /// Times it was sent again before.
    pub redrive_count: i32,
    /// When the event was appended.
    pub created_at: DateTime<Utc>,
    /// After this the event was not to be delivered. Older files do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}

impl ImportEntry {
    /// A dead letter with its payload, as [`OperatorStore::dead_letter`](super::OperatorStore::dead_letter) answers
    /// it; `None` for one of a list.
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

    /// Refuses what the outbox of this store could not hold, and nothing else: a file may come from
    /// anywhere, but what an outbox held must get back. Whether headers are JSON is for the database
    /// to say, because each of them has its own limits of depth, numbers and escapes.
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
        // What the table of SQLite trims is less than what JSON has as white space.
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

    /// Why the table did not take it: its values, or anything that has nothing to do with them.
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

/// Characters as the store counts them: SQLite ends a text at a NUL.
fn chars(text: &str, store: StoreKind) -> usize {
    let ended = text.split('\0').next().filter(|_| store == StoreKind::Sqlite);
    ended.unwrap_or(text).chars().count()
}

/// Characters of an identity.
const EVENT_ID_CHARS: usize = 36;
/// A SHA-256 in hex.
const CONTENT_HASH_CHARS_MAX: usize = 64;

/// What became of one entry of a backup file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Imported {
    /// It is in the dead letters now.
    Restored,
    /// The outbox still has the row; upkeep moves it.
    Live,
    /// The dead letters have it, or had it until it was resolved and cleaned up; or the archive has
    /// the event as delivered.
    Known,
}

/// Dead letters from the oldest on, without their payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldestLetters {
    /// Oldest first; none, where none of the rows looked at fits.
    pub letters: Vec<LetterBrief>,
    /// Where to go on; `None` at the end.
    pub next: Option<i64>,
}

/// What a rule wants to know of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterBrief {
    /// Id of the dead letter.
    pub id: i64,
    /// The error in a sentence.
    pub error_message: String,
    /// Times it was sent again before.
    pub redrive_count: i32,
    /// Time since it was given up, on the database's clock.
    pub age: Duration,
}

impl OldestLetters {
    /// Rows that one look passes at most, so that a filter that hardly anything fits stays cheap.
    pub(crate) const WINDOW_ROWS: i64 = 10_000;

    /// Rows in the order of `dlq_oldest.sql`, of a window that ends with an id.
    pub(crate) fn found(rows: Vec<(i64, String, i32, i64)>, limit: u32, to: i64) -> Self {
        let full = rows.len() >= limit as usize;
        let next = rows.last().filter(|_| full).map_or(to, |(id, ..)| *id);
        let brief = |(id, error_message, redrive_count, age_ms): (i64, String, i32, i64)| {
            let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
            LetterBrief { id, error_message, redrive_count, age }
        };
        Self { letters: rows.into_iter().map(brief).collect(), next: Some(next) }
    }

    /// There is nothing after the id asked for.
    pub(crate) const END: Self = Self { letters: Vec::new(), next: None };
}

/// Dead letters whose errors are of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterGroup {
    /// What they share; goes into [`DlqFilter::fingerprint`].
    pub fingerprint: String,
    /// Why they were given up.
    pub reason: DeadReason,
    /// How many were found; at least so many where the search was cut off by its budget.
    pub count: Counted,
    /// The error of the newest one.
    pub sample: String,
    /// The newest dead letter.
    pub newest_id: i64,
    /// First one given up, of those found.
    pub first_failed_at: DateTime<Utc>,
    /// Last one given up.
    pub last_failed_at: DateTime<Utc>,
    /// Event types, most frequent first, at most [`GROUP_TYPES_MAX`].
    pub event_types: Vec<(String, i64)>,
    /// Per hour (its start, in UTC), oldest first: at most [`GROUP_HOURS_MAX`], the newest.
    pub by_hour: Vec<(DateTime<Utc>, i64)>,
}

/// Event types that a [`DeadLetterGroup`] names.
pub const GROUP_TYPES_MAX: usize = 10;
/// Hours that a [`DeadLetterGroup`] counts.
pub const GROUP_HOURS_MAX: usize = 48;

/// The groups, the one with the newest dead letter first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetterGroups {
    /// At most as many as asked for.
    pub groups: Vec<DeadLetterGroup>,
    /// Whether all dead letters were looked at. Otherwise those below `next` were not: counts are
    /// lower bounds, and older groups may be missing.
    pub complete: bool,
    /// Where the search was cut off.
    pub next: Option<i64>,
}

/// What an operator changes before an event is sent again. What is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Edit {
    /// First half of the ordering key.
    pub aggregate_type: Option<String>,
    /// Second half of the ordering key.
    pub aggregate_id: Option<String>,
    /// What happened.
    pub event_type: Option<String>,
    /// The body.
    pub payload: Option<String>,
    /// Headers to set, or with `None` to remove; the others stay.
    pub headers: BTreeMap<String, Option<String>>,
}

impl Edit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The header of a resent event that holds the identity of the dead letter it was made from.
pub const ORIGINAL_HEADER: &str = "postrider-original-event-id";

/// The event that an edited dead letter became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resent {
    /// Row id in the outbox.
    pub id: i64,
    /// Its identity, which is new.
    pub event_id: String,
}

/// The new event that an edited dead letter becomes.
pub(crate) fn edited(letter: &DeadLetter, edit: &Edit) -> Result<NewEvent> {
    let refuse = |why: String| StoreError::Refused(format!("dead letter {}: {why}", letter.id));
    if edit.is_empty() {
        let why = "the edit changes nothing; to send it again as it is, retry it".to_owned();
        return Err(refuse(why));
    }
    let or = |new: &Option<String>, old: &str| new.clone().unwrap_or_else(|| old.to_owned());
    let mut event = NewEvent::new(
        or(&edit.aggregate_type, &letter.aggregate_type),
        or(&edit.aggregate_id, &letter.aggregate_id),
        or(&edit.event_type, &letter.event_type),
        or(&edit.payload, letter.payload.as_deref().unwrap_or_default()),
    );
    let headers = crate::event::headers(letter.headers.as_deref())
        .map_err(|why| refuse(format!("its {why}")))?;
    event.headers = headers;
    for (name, value) in &edit.headers {
        match value {
            Some(value) => event.headers.insert(name.clone(), value.clone()),
            None => event.headers.remove(name),
        };
    }
    event.headers.insert(ORIGINAL_HEADER.to_owned(), letter.event_id.clone());
    // The old request id stands for the old content, but some outboxes ask for one.
    event.request_id = letter.request_id.as_ref().map(|_| event.event_id.to_string());
    event.max_retries = letter.max_retries;
    event.validate().map_err(|error| refuse(format!("it cannot be sent like this: {error}")))?;
    Ok(event)
}

/// What an append of an edited event answered.
pub(crate) fn resent(appended: Result<Appended, AppendError>) -> Result<Resent> {
    match appended {
        Ok(Appended::New { id, event_id }) => Ok(Resent { id, event_id }),
        // Its request id is its own new identity.
        Ok(Appended::Duplicate { id }) => {
            Err(StoreError::Refused(format!("the edited event is known already, as event {id}")))
        }
        Err(AppendError::Invalid(error)) => Err(StoreError::Refused(error.to_string())),
        Err(AppendError::Database(error)) => Err(error.into()),
    }
}
