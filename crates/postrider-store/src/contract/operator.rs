//! What operators look up, and what they do with dead letters.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use serde::{Deserialize, Serialize};

use super::{
    CountLimit, Counted, DeadLetter, DeadLetterGroups, DlqFilter, Edit, ImportEntry, Imported,
    LedgerWindow, Listed, Page, Resent, Result, Statistics,
};
use crate::{EventRecord, Status, StoreError};

/// Which live or archived events to list. What is `None` is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventFilter {
    /// Only this state; `COMPLETED` are the archived ones.
    pub status: Option<Status>,
    /// Only this event type.
    pub event_type: Option<String>,
    /// Only this aggregate type.
    pub aggregate_type: Option<String>,
    /// Only this aggregate.
    pub aggregate_id: Option<String>,
    /// Only this identity.
    pub event_id: Option<String>,
    /// Only this request id.
    pub request_id: Option<String>,
    /// Only with a last error that contains this text; archived events have none.
    pub error: Option<String>,
    /// Appended at or after.
    pub created_since: Option<DateTime<Utc>>,
    /// Appended before.
    pub created_until: Option<DateTime<Utc>>,
    /// Archived events: delivered at or after.
    pub delivered_since: Option<DateTime<Utc>>,
    /// Archived events: delivered before.
    pub delivered_until: Option<DateTime<Utc>>,
    /// Only copies that a replay made (`true`), or only others (`false`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
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

/// Everything that has one identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identified {
    /// Live first, then archived, newest first: a retry of a dead letter keeps the identity.
    pub events: Vec<EventRecord>,
    /// Dead letters, newest first.
    pub dead_letters: Vec<DeadLetter>,
    /// `false` where the budget ended before all live and archived events were looked at.
    pub complete: bool,
}

/// A line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Ascends with time.
    pub id: i64,
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub operator: String,
    /// What: `dlq.retry`, `dlq.resolve`, `dlq.reopen`, `dlq.resend`, `dlq.import`, `job.create`,
    /// `job.stop`, `job.resume`, `outbox.pause`, `sink.resume` …
    pub action: String,
    /// In which outbox; empty for what is not about one.
    pub outbox: String,
    /// On which entry.
    pub target: String,
    /// Note or outcome.
    pub detail: String,
}

/// Which lines of the audit trail to list. What is `None` is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditFilter {
    /// Only this operator.
    pub operator: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only this outbox.
    pub outbox: Option<String>,
    /// Only this entry.
    pub target: Option<String>,
    /// At or after.
    pub since: Option<DateTime<Utc>>,
    /// Before.
    pub until: Option<DateTime<Utc>>,
}

/// The operator's side of a store. Every change is audited in its own transaction.
#[async_trait]
pub trait OperatorStore: Send + Sync {
    /// The ledger by minute of `created_at`, with the live rows, in one snapshot. Reads the whole
    /// table: this is the audit, not the statistics.
    async fn ledger(&self, outbox: &Outbox) -> Result<Vec<LedgerWindow>>;

    /// Statistics from the ledger.
    async fn statistics(&self, outbox: &Outbox) -> Result<Statistics>;

    /// Live events, or archived ones where the filter asks for `COMPLETED`; newest first.
    async fn events(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        page: Page,
    ) -> Result<Listed<EventRecord>>;

    /// How many events fit the filter, live or archived as in [`OperatorStore::events`].
    async fn event_count(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        limit: CountLimit,
    ) -> Result<Counted>;

    /// One event, live or archived.
    async fn event(&self, outbox: &Outbox, id: i64) -> Result<Option<EventRecord>>;

    /// Live events, archived events and dead letters of one identity. There is no index for it on
    /// live and archived events, so the search is limited by the budget.
    async fn event_by_identity(
        &self,
        outbox: &Outbox,
        event_id: &str,
        budget: Duration,
    ) -> Result<Identified>;

    /// Failed attempts of an event, by identity, oldest first.
    async fn attempts(&self, outbox: &Outbox, event_id: &str) -> Result<Vec<Attempt>>;

    /// Dead letters, newest first.
    async fn dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<Listed<DeadLetter>>;

    /// How many dead letters fit the filter.
    async fn dead_letter_count(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        limit: CountLimit,
    ) -> Result<Counted>;

    /// Dead letters by the kind of their error: the newest `page.limit` groups of those that fit
    /// the filter, found within the page's budget.
    async fn dead_letter_groups(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<DeadLetterGroups>;

    /// One dead letter.
    async fn dead_letter(&self, outbox: &Outbox, id: i64) -> Result<Option<DeadLetter>>;

    /// Appends a fresh event with a fresh budget that keeps the identity and the stored hash, and
    /// resolves the dead letter, in one transaction. Returns the new row's id. Refused for
    /// unknown or resolved entries.
    async fn retry(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<i64>;

    /// Resolves a dead letter by hand. Refused for unknown or resolved entries.
    async fn resolve(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()>;

    /// Takes back a resolution by hand: the dead letter is open again. Refused for entries that are
    /// unknown, open, or sent again.
    async fn reopen(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()>;

    /// Appends an edited copy as a new event (new identity, new hash, a fresh budget, the
    /// original's identity in the header [`ORIGINAL_HEADER`](super::ORIGINAL_HEADER)), and resolves
    /// the dead letter, in one transaction. A request id becomes the new identity, since the old
    /// one stands for the old content. Refused for unknown or resolved entries, for an edit that
    /// changes nothing, and for content that is not valid.
    async fn resend(
        &self,
        outbox: &Outbox,
        id: i64,
        edit: &Edit,
        operator: &str,
        note: &str,
    ) -> Result<Resent>;

    /// Puts an event from a backup file into the dead letters, unless it is live or known.
    async fn import(
        &self,
        outbox: &Outbox,
        entry: &ImportEntry,
        operator: &str,
    ) -> Result<Imported>;

    /// Whether the dead letters had an event of a backup file until it was cleaned up, or the
    /// archive has it as delivered: what an import leaves alone beside what is live or there.
    async fn was_closed(&self, outbox: &Outbox, entry: &ImportEntry) -> Result<bool>;

    /// The audit trail, newest first.
    async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditEntry>>;
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

/// Why a resolution cannot be taken back.
pub(crate) fn refuse_reopening(outbox: &Outbox, id: i64, found: Option<DeadLetter>) -> StoreError {
    let name = outbox.name();
    StoreError::Refused(match found {
        Some(DeadLetter { retried_as: Some(event), .. }) => format!(
            "dead letter {id} of outbox `{name}` was sent again as event {event}; what was sent \
             cannot be taken back"
        ),
        Some(_) => format!("dead letter {id} of outbox `{name}` is not resolved"),
        None => format!(
            "outbox `{name}` has no dead letter {id}; `postrider dlq list` shows what there is"
        ),
    })
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
