//! The inboxes of a database, as operators and maintenance see them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{Result, parse_stored};
use crate::StoreError;

/// The ledger of one consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConsumerLedger {
    /// Name of the consumer.
    pub consumer: String,
    /// Messages that arrived, counted on arrival.
    pub received: i64,
    /// Events that were processed, counted in the inbox itself and, once they are removed, on
    /// removal.
    pub applied: i64,
    /// Repeated messages, counted on arrival.
    pub ignored: i64,
    /// Messages that could not be processed, counted like `applied`.
    pub dead: i64,
    /// Unresolved dead letters.
    pub unresolved: i64,
}

impl ConsumerLedger {
    /// Returns whether `received = applied + ignored + dead`.
    pub fn balanced(&self) -> bool {
        self.received == self.applied + self.ignored + self.dead
    }
}

/// A message that a consumer could not process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxLetter {
    /// Row id.
    pub id: i64,
    /// Name of the consumer.
    pub consumer: String,
    /// Identity of the event.
    pub event_id: String,
    /// Origin of the message.
    pub source: String,
    /// Key of the message.
    pub key: Option<Vec<u8>>,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub payload: Vec<u8>,
    /// Reason why it could not be processed.
    pub error_message: String,
    /// When it failed.
    pub failed_at: DateTime<Utc>,
    /// When an operator asked for a retry.
    pub retry_asked_at: Option<DateTime<Utc>>,
}

/// The result of an inbox clean-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboxCleaned {
    /// Identities that were deleted.
    pub forgotten: u64,
    /// Resolved dead letters.
    pub letters: u64,
    /// MariaDB: rows of locks that had not been used for a day.
    pub locks: u64,
}

/// Everything about inboxes that is outside the consumer's own transaction. Several programs can
/// run it at once.
#[async_trait]
pub trait Inboxes: Send + Sync {
    /// Returns the ledgers of all consumers, checked against the inbox in one snapshot. Reads the
    /// whole inbox: this is the audit.
    async fn consumer_ledgers(&self) -> Result<Vec<ConsumerLedger>>;

    /// Sums up ledger entries, `chunk` at a time, and returns how many.
    async fn fold_inbox_ledger(&self, chunk: u32) -> Result<u64>;

    /// Deletes identities that one consumer, or any, received longer ago than the retention,
    /// `chunk` at a time, and dead letters resolved longer ago. The identity of an unresolved dead
    /// letter is kept.
    async fn clean_inbox(
        &self,
        consumer: Option<&str>,
        retention: Duration,
        chunk: u32,
    ) -> Result<InboxCleaned>;

    /// Lists unresolved dead letters, newest first, of one consumer or of all, below an id.
    async fn inbox_letters(
        &self,
        consumer: Option<&str>,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<InboxLetter>>;

    /// Resolves a dead letter by hand.
    async fn resolve_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()>;

    /// Asks the consumer to process a dead letter again. A second call has no further effect.
    async fn retry_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()>;
}

/// Returns the consumer of a dead letter, or the reason why an operator's action does not apply,
/// given its row.
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

/// A row of the inbox's dead letters before its headers are parsed.
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
