//! Searches: events, dead letters, the audit trail.

use std::ops::Range;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, Row};

use super::settle::ids_json;
use super::time::{stored, time, time_or_none};
use crate::store::search::{Below, Counting, Search};
use crate::store::{
    AuditEntry, AuditFilter, Bunch, DeadLetter, DeadReason, DlqFilter, EventFilter, EventRecord,
    Grouped, Result, parse_stored,
};
use crate::{Outbox, Status};

type MySqlQuery<'q> = Query<'q, MySql, MySqlArguments>;

async fn below(
    pool: &MySqlPool,
    sql: AssertSqlSafe<String>,
    before: i64,
    rows: i64,
) -> Result<Below> {
    let (from_id, now): (Option<i64>, DateTime<Utc>) =
        sqlx::query_as(sql).bind(before).bind(rows).fetch_one(pool).await?;
    Ok(Below { from_id, now })
}

/// Live events, or archived ones where the filter asks for them.
pub(super) struct EventSearch<'a> {
    pub(super) pool: &'a MySqlPool,
    pub(super) outbox: &'a Outbox,
    pub(super) filter: &'a EventFilter,
}

impl EventSearch<'_> {
    fn archived(&self) -> bool {
        self.filter.status == Some(Status::Completed)
    }

    fn sql(&self, live: &'static str, archived: &'static str) -> AssertSqlSafe<String> {
        match self.archived() {
            true => self.outbox.sql_where(archived, include_str!("sql/archived_filter.sql")),
            false => self.outbox.sql_where(live, include_str!("sql/events_filter.sql")),
        }
    }

    /// Rows that fit, newest first; their payloads only where they are asked for.
    pub(super) async fn find(
        &self,
        ids: Range<i64>,
        limit: i64,
        payloads: bool,
    ) -> Result<Vec<EventRecord>> {
        let sql = self.sql(include_str!("sql/events.sql"), include_str!("sql/archived_events.sql"));
        let rows = bind_events(sqlx::query(sql).bind(payloads).bind(payloads), self.filter)
            .bind(ids.start)
            .bind(ids.end)
            .bind(limit)
            .fetch_all(self.pool)
            .await?;
        rows.iter().map(event_record).collect()
    }
}

pub(super) fn bind_events<'q>(query: MySqlQuery<'q>, filter: &'q EventFilter) -> MySqlQuery<'q> {
    query
        .bind(filter.status.map(Status::as_str))
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.event_id)
        .bind(&filter.request_id)
        .bind(&filter.error)
        .bind(filter.created_since.map(stored))
        .bind(filter.created_until.map(stored))
        .bind(filter.delivered_since.map(stored))
        .bind(filter.delivered_until.map(stored))
        .bind(filter.replayed)
}

#[async_trait]
impl Search for EventSearch<'_> {
    type Row = EventRecord;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        let sql =
            self.sql(include_str!("sql/events_below.sql"), include_str!("sql/archived_below.sql"));
        below(self.pool, sql, before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<EventRecord>> {
        self.find(ids, limit, false).await
    }

    fn id(row: &EventRecord) -> i64 {
        row.id
    }
}

#[async_trait]
impl Counting for EventSearch<'_> {
    async fn count(&self, ids: Range<i64>) -> Result<i64> {
        let sql =
            self.sql(include_str!("sql/events_count.sql"), include_str!("sql/archived_count.sql"));
        let query = bind_events(sqlx::query(sql), self.filter).bind(ids.start).bind(ids.end);
        Ok(query.fetch_one(self.pool).await?.try_get(0)?)
    }
}

/// Dead letters.
pub(super) struct DlqSearch<'a> {
    pub(super) pool: &'a MySqlPool,
    pub(super) outbox: &'a Outbox,
    pub(super) filter: &'a DlqFilter,
}

impl DlqSearch<'_> {
    fn sql(&self, template: &'static str) -> AssertSqlSafe<String> {
        self.outbox.sql_where(template, include_str!("sql/dlq_filter.sql"))
    }
}

pub(super) fn bind_dlq<'q>(query: MySqlQuery<'q>, filter: &'q DlqFilter) -> MySqlQuery<'q> {
    query
        .bind(&filter.event_id)
        .bind(&filter.fingerprint)
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.error)
        .bind(filter.reason.map(DeadReason::as_str))
        .bind(filter.resolved)
        .bind(filter.since.map(stored))
        .bind(filter.until.map(stored))
}

#[async_trait]
impl Search for DlqSearch<'_> {
    type Row = DeadLetter;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        let sql = self.outbox.sql(include_str!("sql/dlq_below.sql"));
        below(self.pool, sql, before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<DeadLetter>> {
        let sql = self.sql(include_str!("sql/dlq_list.sql"));
        let rows = bind_dlq(sqlx::query(sql), self.filter)
            .bind(ids.start)
            .bind(ids.end)
            .bind(limit)
            .fetch_all(self.pool)
            .await?;
        rows.iter().map(dead_letter).collect()
    }

    fn id(row: &DeadLetter) -> i64 {
        row.id
    }
}

#[async_trait]
impl Counting for DlqSearch<'_> {
    async fn count(&self, ids: Range<i64>) -> Result<i64> {
        let sql = self.sql(include_str!("sql/dlq_count.sql"));
        let query = bind_dlq(sqlx::query(sql), self.filter).bind(ids.start).bind(ids.end);
        Ok(query.fetch_one(self.pool).await?.try_get(0)?)
    }
}

#[async_trait]
impl Grouped for DlqSearch<'_> {
    async fn bunches(&self, ids: Range<i64>) -> Result<Vec<Bunch>> {
        let query = match self.filter.is_open_only() {
            true => sqlx::query(self.outbox.sql(include_str!("sql/dlq_groups_open.sql"))),
            false => {
                let sql = self.sql(include_str!("sql/dlq_groups.sql"));
                bind_dlq(sqlx::query(sql), self.filter)
            }
        };
        let rows = query.bind(ids.start).bind(ids.end).fetch_all(self.pool).await?;
        rows.iter()
            .map(|row| {
                Ok(Bunch {
                    fingerprint: row.try_get(0)?,
                    event_type: row.try_get(1)?,
                    hour: row.try_get(2)?,
                    count: row.try_get(3)?,
                    newest_id: row.try_get(4)?,
                    first_failed_at: time(row, 5)?,
                    last_failed_at: time(row, 6)?,
                })
            })
            .collect()
    }

    async fn samples(&self, ids: &[i64]) -> Result<Vec<(i64, DeadReason, String)>> {
        let rows: Vec<(i64, String, String)> =
            sqlx::query_as(self.outbox.sql(include_str!("sql/dlq_samples.sql")))
                .bind(ids_json(ids))
                .fetch_all(self.pool)
                .await?;
        rows.into_iter()
            .map(|(id, reason, message)| Ok((id, DeadReason::stored(&reason), message)))
            .collect()
    }
}

/// The audit trail.
pub(super) struct AuditSearch<'a> {
    pub(super) pool: &'a MySqlPool,
    pub(super) filter: &'a AuditFilter,
}

#[async_trait]
impl Search for AuditSearch<'_> {
    type Row = AuditEntry;

    async fn below(&self, before_id: i64, rows: i64) -> Result<Below> {
        let sql = AssertSqlSafe(include_str!("sql/audit_below.sql").to_owned());
        below(self.pool, sql, before_id, rows).await
    }

    async fn rows(&self, ids: Range<i64>, limit: i64) -> Result<Vec<AuditEntry>> {
        let filter = include_str!("sql/audit_filter.sql").trim_end();
        let sql = include_str!("sql/audit_list.sql").replace("{filter}", filter);
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(&self.filter.operator)
            .bind(&self.filter.action)
            .bind(&self.filter.outbox)
            .bind(&self.filter.target)
            .bind(self.filter.since)
            .bind(self.filter.until)
            .bind(ids.start)
            .bind(ids.end)
            .bind(limit)
            .fetch_all(self.pool)
            .await?;
        rows.iter().map(audit_entry).collect()
    }

    fn id(row: &AuditEntry) -> i64 {
        row.id
    }
}

/// Columns in the order of `audit_list.sql`.
fn audit_entry(row: &MySqlRow) -> Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.try_get(0)?,
        at: row.try_get(1)?,
        operator: row.try_get(2)?,
        action: row.try_get(3)?,
        outbox: row.try_get(4)?,
        target: row.try_get(5)?,
        detail: row.try_get(6)?,
    })
}

/// Columns in the order of `events.sql` and `archived_events.sql`.
fn event_record(row: &MySqlRow) -> Result<EventRecord> {
    Ok(EventRecord {
        id: row.try_get(0)?,
        event_id: row.try_get(1)?,
        request_id: row.try_get(2)?,
        aggregate_type: row.try_get(3)?,
        aggregate_id: row.try_get(4)?,
        event_type: row.try_get(5)?,
        payload: row.try_get(6)?,
        payload_bytes: row.try_get(19)?,
        headers: row.try_get(7)?,
        content_hash: row.try_get(8)?,
        status: parse_stored("status", &row.try_get::<String, _>(9)?)?,
        retry_count: row.try_get(10)?,
        redrive_count: row.try_get(11)?,
        next_retry_at: time_or_none(row, 12)?,
        expires_at: time_or_none(row, 13)?,
        locked_by: row.try_get(14)?,
        locked_at: time_or_none(row, 15)?,
        last_error: row.try_get(16)?,
        created_at: time(row, 17)?,
        delivered_at: time_or_none(row, 18)?,
        response: row.try_get(20)?,
    })
}

/// Columns in the order of `dlq_list.sql`, `dlq_show.sql` and `dlq_by_event.sql`.
pub(super) fn dead_letter(row: &MySqlRow) -> Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.try_get(0)?,
        original_id: row.try_get(1)?,
        event_id: row.try_get(2)?,
        request_id: row.try_get(3)?,
        aggregate_type: row.try_get(4)?,
        aggregate_id: row.try_get(5)?,
        event_type: row.try_get(6)?,
        payload: row.try_get(7)?,
        payload_bytes: row.try_get(26)?,
        headers: row.try_get(8)?,
        content_hash: row.try_get(9)?,
        reason: DeadReason::stored(&row.try_get::<String, _>(10)?),
        error_message: row.try_get(11)?,
        error_detail: row.try_get(12)?,
        failed_at: time(row, 13)?,
        retry_count: row.try_get(14)?,
        max_retries: row.try_get(15)?,
        redrive_count: row.try_get(16)?,
        event_created_at: time(row, 17)?,
        resolved: row.try_get(18)?,
        resolved_at: time_or_none(row, 19)?,
        resolved_by: row.try_get(20)?,
        resolution_note: row.try_get(21)?,
        retried_as: row.try_get(22)?,
        created_at: time(row, 23)?,
        updated_at: time(row, 24)?,
        fingerprint: row.try_get(25)?,
        expires_at: row.try_get(27)?,
    })
}
