//! Searches: events, dead letters, the audit trail.

use std::ops::Range;

use async_trait::async_trait;
use postrider::Outbox;

use super::records::{dead_letter, event_record};
use super::row::Row;
use super::session::SqlStore;
use super::sql;
use super::statement::{Query, Statement, Value};
use crate::contract::search::{Below, Counting, Search};
use crate::contract::{
    AuditEntry, AuditFilter, Bunch, DeadLetter, DeadReason, DlqFilter, EventFilter, Grouped, Result,
};
use crate::{EventRecord, Status};

async fn below<S: SqlStore>(
    store: &S,
    step: Query<'_>,
    before_id: i64,
    rows: i64,
) -> Result<Below> {
    let row = store.fetch_one(step.bind("before", before_id).bind("rows", rows)).await?;
    Ok(Below { from_id: row.number_or_none("from_id")?, now: row.time("as_of")? })
}

/// Live events, or archived ones where the filter asks for them.
pub(super) struct EventSearch<'a, S> {
    pub(super) store: &'a S,
    pub(super) outbox: &'a Outbox,
    pub(super) filter: &'a EventFilter,
}

impl<S: SqlStore> EventSearch<'_, S> {
    fn archived(&self) -> bool {
        self.filter.status == Some(Status::Completed)
    }

    fn query(&self, live: Statement, archived: Statement) -> Query<'_> {
        let (statement, conditions) = match self.archived() {
            true => (archived, sql::ARCHIVED_FILTER),
            false => (live, sql::EVENTS_FILTER),
        };
        bind_events(statement.on(self.outbox).filtered(conditions), self.filter)
    }

    /// Rows that fit, newest first; their payloads only where they are asked for.
    pub(super) async fn find(
        &self,
        ids: Range<i64>,
        limit: i64,
        payloads: bool,
    ) -> Result<Vec<EventRecord>> {
        let query = within(self.query(sql::EVENTS, sql::ARCHIVED_EVENTS), ids);
        let query = query.bind("limit", limit).bind("payloads", payloads);
        self.store.fetch(query).await?.iter().map(event_record).collect()
    }
}

/// Binds the parameters of `events_filter` and `archived_filter`.
pub(super) fn bind_events<'q>(query: Query<'q>, filter: &EventFilter) -> Query<'q> {
    query
        .bind("status", filter.status.map(Status::as_str))
        .bind("event_type", &filter.event_type)
        .bind("aggregate_type", &filter.aggregate_type)
        .bind("aggregate_id", &filter.aggregate_id)
        .bind("event_id", Value::Identity(filter.event_id.clone()))
        .bind("request_id", &filter.request_id)
        .bind("error", &filter.error)
        .bind("created_since", filter.created_since)
        .bind("created_until", filter.created_until)
        .bind("delivered_since", filter.delivered_since)
        .bind("delivered_until", filter.delivered_until)
        .bind("replayed", filter.replayed)
}

fn within(query: Query<'_>, ids: Range<i64>) -> Query<'_> {
    query.bind("from", ids.start).bind("below", ids.end)
}

#[async_trait]
impl<S: SqlStore> Search for EventSearch<'_, S> {
    type Row = EventRecord;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        let step = if self.archived() { sql::ARCHIVED_BELOW } else { sql::EVENTS_BELOW };
        below(self.store, step.on(self.outbox), before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<EventRecord>> {
        self.find(ids, limit, false).await
    }

    fn id(row: &EventRecord) -> i64 {
        row.id
    }
}

#[async_trait]
impl<S: SqlStore> Counting for EventSearch<'_, S> {
    async fn count(&self, ids: Range<i64>) -> Result<i64> {
        let query = within(self.query(sql::EVENTS_COUNT, sql::ARCHIVED_COUNT), ids);
        self.store.fetch_one(query).await?.number("found")
    }
}

/// Dead letters.
pub(super) struct DlqSearch<'a, S> {
    pub(super) store: &'a S,
    pub(super) outbox: &'a Outbox,
    pub(super) filter: &'a DlqFilter,
}

impl<S: SqlStore> DlqSearch<'_, S> {
    fn query(&self, statement: Statement) -> Query<'_> {
        bind_dlq(statement.on(self.outbox).filtered(sql::DLQ_FILTER), self.filter)
    }
}

/// Binds the parameters of `dlq_filter`.
pub(super) fn bind_dlq<'q>(query: Query<'q>, filter: &DlqFilter) -> Query<'q> {
    query
        .bind("event_id", Value::Identity(filter.event_id.clone()))
        .bind("fingerprint", &filter.fingerprint)
        .bind("event_type", &filter.event_type)
        .bind("aggregate_type", &filter.aggregate_type)
        .bind("aggregate_id", &filter.aggregate_id)
        .bind("error", &filter.error)
        .bind("reason", filter.reason.map(DeadReason::as_str))
        .bind("resolved", filter.resolved)
        .bind("since", filter.since)
        .bind("until", filter.until)
}

#[async_trait]
impl<S: SqlStore> Search for DlqSearch<'_, S> {
    type Row = DeadLetter;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        below(self.store, sql::DLQ_BELOW.on(self.outbox), before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<DeadLetter>> {
        let query = within(self.query(sql::DLQ_LIST), ids).bind("limit", limit);
        self.store.fetch(query).await?.iter().map(dead_letter).collect()
    }

    fn id(row: &DeadLetter) -> i64 {
        row.id
    }
}

#[async_trait]
impl<S: SqlStore> Counting for DlqSearch<'_, S> {
    async fn count(&self, ids: Range<i64>) -> Result<i64> {
        let query = within(self.query(sql::DLQ_COUNT), ids);
        self.store.fetch_one(query).await?.number("found")
    }
}

#[async_trait]
impl<S: SqlStore> Grouped for DlqSearch<'_, S> {
    async fn bunches(&self, ids: Range<i64>) -> Result<Vec<Bunch>> {
        let query = match self.filter.is_open_only() {
            true => sql::DLQ_GROUPS_OPEN.on(self.outbox),
            false => self.query(sql::DLQ_GROUPS),
        };
        let rows = self.store.fetch(within(query, ids)).await?;
        let bunch = |row: &Row| {
            Ok(Bunch {
                fingerprint: row.text("fingerprint")?,
                event_type: row.text("event_type")?,
                hour: row.number("hour")?,
                count: row.number("found")?,
                newest_id: row.number("newest_id")?,
                first_failed_at: row.time("first_failed_at")?,
                last_failed_at: row.time("last_failed_at")?,
            })
        };
        rows.iter().map(bunch).collect()
    }

    async fn samples(&self, ids: &[i64]) -> Result<Vec<(i64, DeadReason, String)>> {
        let query = sql::DLQ_SAMPLES.on(self.outbox).bind("ids", Value::Ids(ids.to_vec()));
        let rows = self.store.fetch(query).await?;
        let sample = |row: &Row| {
            let reason = DeadReason::stored(&row.text("reason")?);
            Ok((row.number("id")?, reason, row.text("error_message")?))
        };
        rows.iter().map(sample).collect()
    }
}

/// The audit trail.
pub(super) struct AuditSearch<'a, S> {
    pub(super) store: &'a S,
    pub(super) filter: &'a AuditFilter,
}

#[async_trait]
impl<S: SqlStore> Search for AuditSearch<'_, S> {
    type Row = AuditEntry;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        below(self.store, sql::AUDIT_BELOW.query(), before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<AuditEntry>> {
        let query = within(sql::AUDIT_LIST.query(), ids)
            .bind("operator", &self.filter.operator)
            .bind("action", &self.filter.action)
            .bind("outbox", &self.filter.outbox)
            .bind("target", &self.filter.target)
            .bind("since", self.filter.since)
            .bind("until", self.filter.until)
            .bind("limit", limit);
        self.store.fetch(query).await?.iter().map(audit_entry).collect()
    }

    fn id(row: &AuditEntry) -> i64 {
        row.id
    }
}

fn audit_entry(row: &Row) -> Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.number("id")?,
        at: row.time("at")?,
        operator: row.text("operator")?,
        action: row.text("action")?,
        outbox: row.text("outbox")?,
        target: row.text("target")?,
        detail: row.text("detail")?,
    })
}
