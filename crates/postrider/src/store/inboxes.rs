//! The inboxes of a database, as operators and upkeep see them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Result, parse_stored};
use crate::StoreError;

/// The book of one consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConsumerBook {
    /// Whose it is.
    pub consumer: String,
    /// Messages that arrived: counted as they came.
    pub received: i64,
    /// Events whose effect is there: counted in the inbox itself, and as they left it.
    pub applied: i64,
    /// Messages that had come before: counted as they came.
    pub ignored: i64,
    /// Messages that could not be handled: counted as `applied` is.
    pub dead: i64,
    /// Dead letters that nobody resolved yet.
    pub unresolved: i64,
}

impl ConsumerBook {
    /// `received = applied + ignored + dead`.
    pub fn balanced(&self) -> bool {
        self.received == self.applied + self.ignored + self.dead
    }
}

/// A message that a consumer could not handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxLetter {
    /// Row id.
    pub id: i64,
    /// Whose it is.
    pub consumer: String,
    /// Identity of the event.
    pub event_id: String,
    /// Where the message came from.
    pub source: String,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub payload: Vec<u8>,
    /// Why it could not be handled.
    pub error_message: String,
    /// When that was.
    pub failed_at: DateTime<Utc>,
    /// Since when an operator wants it handled again.
    pub retry_asked_at: Option<DateTime<Utc>>,
}

/// What a clean-up of the inboxes removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboxCleaned {
    /// Identities that are remembered no more.
    pub forgotten: u64,
    /// Resolved dead letters.
    pub letters: u64,
    /// MariaDB: rows of locks that nobody used for a day.
    pub locks: u64,
}

/// Everything about inboxes that is not in the consumer's own transaction. Safe to run from several
/// programs at once.
#[async_trait]
pub trait Inboxes: Send + Sync {
    /// The books of all consumers, with the inbox, in one snapshot. Reads the whole inbox: this is
    /// the audit.
    async fn consumer_books(&self) -> Result<Vec<ConsumerBook>>;

    /// Sums up entries of the books, `chunk` at a time. Answers how many.
    async fn fold_inbox_books(&self, chunk: u32) -> Result<u64>;

    /// Forgets identities that one consumer, or any, received longer ago than the retention, `chunk`
    /// at a time, and removes letters resolved longer ago. What a letter waits for stays known.
    async fn clean_inbox(
        &self,
        consumer: Option<&str>,
        retention: Duration,
        chunk: u32,
    ) -> Result<InboxCleaned>;

    /// Unresolved dead letters, newest first, of one consumer or of all, below an id.
    async fn inbox_letters(
        &self,
        consumer: Option<&str>,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<InboxLetter>>;

    /// Closes a letter by hand.
    async fn resolve_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()>;

    /// Asks the consumer to handle a letter again. Asking twice is asking once.
    async fn retry_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()>;
}

/// Whose letter it is, or why an operator's action does not apply: from what its row says.
pub(crate) fn open_letter(
    id: i64,
    found: Option<(bool, Option<String>, String)>,
) -> Result<String> {
    match found {
        Some((false, _, consumer)) => Ok(consumer),
        Some((true, by, consumer)) => Err(StoreError::Refused(format!(
            "dead letter {id} of consumer `{consumer}` is resolved already, by {}",
            by.as_deref().unwrap_or("an unknown operator")
        ))),
        None => Err(StoreError::Refused(format!(
            "no consumer has a dead letter {id}; `postrider inbox list` shows what there is"
        ))),
    }
}

/// How many of the rows (consumer, identity, outcome) were applied and how many dead, by consumer.
pub(crate) fn leaving(rows: &[(String, String, String)]) -> BTreeMap<&str, (i64, i64)> {
    let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (consumer, _, outcome) in rows {
        let (applied, dead) = counts.entry(consumer).or_default();
        *(if outcome == "dead" { dead } else { applied }) += 1;
    }
    counts
}

/// What a row of the letters holds, before its headers are read.
pub(crate) struct StoredLetter {
    pub(crate) id: i64,
    pub(crate) consumer: String,
    pub(crate) event_id: String,
    pub(crate) source: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) headers: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) error_message: String,
    pub(crate) failed_at: DateTime<Utc>,
    pub(crate) retry_asked_at: Option<DateTime<Utc>>,
}

impl StoredLetter {
    pub(crate) fn read(self) -> Result<InboxLetter> {
        let headers: serde_json::Value = parse_stored("headers", &self.headers)?;
        let headers = serde_json::from_value(headers).unwrap_or_default();
        Ok(InboxLetter {
            id: self.id,
            consumer: self.consumer,
            event_id: self.event_id,
            source: self.source,
            key: self.key,
            headers,
            payload: self.payload,
            error_message: self.error_message,
            failed_at: self.failed_at,
            retry_asked_at: self.retry_asked_at,
        })
    }
}
