//! The operator's desk: what can be looked up, and what can be done with dead letters.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Books, Result, Statistics};
use crate::{Outbox, Status, StoreError};

/// Why an event was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// No attempts left.
    Exhausted,
    /// The destination will never take it.
    Rejected,
    /// The content does not fit its hash.
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

/// Which live and archived events to list.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only this state.
    pub status: Option<Status>,
    /// Only this event type.
    pub event_type: Option<String>,
    /// Only this aggregate type.
    pub aggregate_type: Option<String>,
    /// Only this aggregate.
    pub aggregate_id: Option<String>,
}

/// One page of a list: newest first, below an id.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Rows below this id; `None` starts at the newest.
    pub before_id: Option<i64>,
    /// Rows at most.
    pub limit: u32,
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
    /// The body.
    pub payload: String,
    /// JSON object.
    pub headers: Option<String>,
    /// See [`content_hash`](crate::content_hash).
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
}

/// A failed attempt; the last 20 of each event are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// Which attempt it was, from 1.
    pub attempt: i32,
    /// When it ended.
    pub failed_at: DateTime<Utc>,
    /// What went wrong.
    pub error: String,
    /// How long it took, in milliseconds.
    pub took_ms: i64,
    /// Which relay made it.
    pub relay_id: String,
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

/// Which dead letters to list or act on.
#[derive(Debug, Clone, Default)]
pub struct DlqFilter {
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
}

/// What became of one entry of a backup file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Imported {
    /// It is in the dead letters now.
    Restored,
    /// The outbox still has the row; upkeep moves it.
    Live,
    /// The dead letters have it already.
    Known,
}

/// A line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub operator: String,
    /// What: `dlq.retry`, `dlq.resolve`, `dlq.import`.
    pub action: String,
    /// In which outbox.
    pub outbox: String,
    /// On which entry.
    pub target: String,
    /// Note or outcome.
    pub detail: String,
}

/// The operator's side of a store. Every change is audited in its own transaction.
#[async_trait]
pub trait Desk: Send + Sync {
    /// The books by minute of `created_at`, with the live rows, in one snapshot. Reads the whole
    /// table: this is the audit, not the statistics.
    async fn books(&self, outbox: &Outbox) -> Result<Vec<Books>>;

    /// Statistics from the books.
    async fn statistics(&self, outbox: &Outbox) -> Result<Statistics>;

    /// Live events, or archived ones where the filter asks for `COMPLETED`; newest first.
    async fn events(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        page: Page,
    ) -> Result<Vec<EventRecord>>;

    /// One event, live or archived.
    async fn event(&self, outbox: &Outbox, id: i64) -> Result<Option<EventRecord>>;

    /// Failed attempts of an event, by identity, oldest first.
    async fn attempts(&self, outbox: &Outbox, event_id: &str) -> Result<Vec<Attempt>>;

    /// Dead letters, newest first.
    async fn dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<Vec<DeadLetter>>;

    /// How many dead letters fit the filter.
    async fn dead_letter_count(&self, outbox: &Outbox, filter: &DlqFilter) -> Result<i64>;

    /// One dead letter.
    async fn dead_letter(&self, outbox: &Outbox, id: i64) -> Result<Option<DeadLetter>>;

    /// Appends a fresh event with a fresh budget that keeps the identity and the stored hash, and
    /// resolves the dead letter, in one transaction. Answers the fresh row's id. Refused for
    /// unknown or resolved entries.
    async fn retry(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<i64>;

    /// Resolves a dead letter by hand. Refused for unknown or resolved entries.
    async fn resolve(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()>;

    /// Puts an event from a backup file into the dead letters, unless it is live or known.
    async fn import(
        &self,
        outbox: &Outbox,
        entry: &ImportEntry,
        operator: &str,
    ) -> Result<Imported>;

    /// The audit trail, newest first.
    async fn audit(&self, limit: u32) -> Result<Vec<AuditEntry>>;
}

/// Why an operator's action does not apply, from what the entry's row says.
pub(crate) fn refuse_acting_on(
    outbox: &Outbox,
    id: i64,
    found: Option<(bool, Option<String>)>,
) -> Result<()> {
    let name = outbox.name();
    match found {
        Some((false, _)) => Ok(()),
        Some((true, by)) => Err(StoreError::Refused(format!(
            "dead letter {id} of outbox `{name}` is resolved already, by {}",
            by.as_deref().unwrap_or("an unknown operator")
        ))),
        None => Err(StoreError::Refused(format!(
            "outbox `{name}` has no dead letter {id}; `postrider dlq list` shows what there is"
        ))),
    }
}

/// Reads a value that the store wrote as text.
pub(crate) fn parse_stored<T>(column: &str, text: &str) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| {
        StoreError::Schema(format!("column {column} holds `{text}`: {error}"))
    })
}
