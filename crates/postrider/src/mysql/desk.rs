//! The operator's side: books, lists, dead letters.

use std::collections::BTreeMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{MySql, Row};

use super::MysqlStore;
use super::append::signed;
use crate::StoreError;
use crate::event::{fit, limits};
use crate::store::*;
use crate::{Outbox, Status};
use std::time::Duration;

#[async_trait]
impl Desk for MysqlStore {
    async fn books(&self, outbox: &Outbox) -> Result<Vec<Books>> {
        let rows =
            sqlx::query(outbox.sql(include_str!("sql/books.sql"))).fetch_all(&self.pool).await?;
        let mut lines: BTreeMap<DateTime<Utc>, Vec<(String, BookLine)>> = BTreeMap::new();
        for row in rows {
            let line = BookLine {
                count: row.try_get(2)?,
                id_sum: parse_stored("id_sum", &row.try_get::<String, _>(3)?)?,
            };
            lines.entry(row.try_get(0)?).or_default().push((row.try_get(1)?, line));
        }
        Ok(books_from_lines(lines))
    }

    async fn statistics(&self, outbox: &Outbox) -> Result<Statistics> {
        let rows = sqlx::query(outbox.sql(include_str!("sql/statistics.sql")))
            .fetch_all(&self.pool)
            .await?;
        let by_type = rows
            .iter()
            .map(|row| {
                Ok(TypeStatistics {
                    event_type: row.try_get(0)?,
                    appended: row.try_get(1)?,
                    delivered: row.try_get(2)?,
                    dead: row.try_get(3)?,
                })
            })
            .collect::<std::result::Result<Vec<_>, sqlx::Error>>()?;
        let now = sqlx::query(outbox.sql(include_str!("sql/statistics_now.sql")))
            .fetch_one(&self.pool)
            .await?;
        Ok(Statistics::from_types(by_type, now.try_get(0)?, now.try_get(1)?))
    }

    async fn events(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        page: Page,
    ) -> Result<Listed<EventRecord>> {
        let statement = match filter.status {
            Some(Status::Completed) => include_str!("sql/archived_events.sql"),
            _ => include_str!("sql/events.sql"),
        };
        let rows = sqlx::query(outbox.sql(statement))
            .bind(page.before_id.unwrap_or(i64::MAX))
            .bind(filter.status.map(Status::as_str))
            .bind(&filter.event_type)
            .bind(&filter.aggregate_type)
            .bind(&filter.aggregate_id)
            .bind(i64::from(page.limit))
            .fetch_all(&self.pool)
            .await?;
        Ok(listed(
            rows.iter().map(event_record).collect::<Result<_>>()?,
            page,
            |row: &EventRecord| row.id,
        ))
    }

    async fn event(&self, outbox: &Outbox, id: i64) -> Result<Option<EventRecord>> {
        let page = Page::first(1).below(Some(id.saturating_add(1)));
        for status in [None, Some(Status::Completed)] {
            let filter = EventFilter { status, ..EventFilter::default() };
            let found = self.events(outbox, &filter, page).await?;
            if let Some(record) = found.rows.into_iter().find(|record| record.id == id) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    async fn event_count(&self, _: &Outbox, _: &EventFilter, _: CountLimit) -> Result<Counted> {
        Err(StoreError::Refused("on its way".to_owned()))
    }

    async fn event_by_identity(&self, _: &Outbox, _: &str, _: Duration) -> Result<Identified> {
        Err(StoreError::Refused("on its way".to_owned()))
    }

    async fn dead_letter_groups(
        &self,
        _: &Outbox,
        _: &DlqFilter,
        _: Page,
    ) -> Result<DeadLetterGroups> {
        Err(StoreError::Refused("on its way".to_owned()))
    }

    async fn resend(&self, _: &Outbox, _: i64, _: &Edit, _: &str, _: &str) -> Result<Resent> {
        Err(StoreError::Refused("on its way".to_owned()))
    }

    async fn attempts(&self, outbox: &Outbox, event_id: &str) -> Result<Vec<Attempt>> {
        let rows = sqlx::query(outbox.sql(include_str!("sql/attempts.sql")))
            .bind(event_id)
            .fetch_all(&self.pool)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(Attempt {
                    attempt: row.try_get(0)?,
                    failed_at: row.try_get(1)?,
                    error: row.try_get(2)?,
                    took_ms: row.try_get(3)?,
                    relay_id: row.try_get(4)?,
                })
            })
            .collect()
    }

    async fn dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<Listed<DeadLetter>> {
        let query = sqlx::query(outbox.sql(include_str!("sql/dlq_list.sql")));
        let rows = bind_filter(query, page.before_id, filter)
            .bind(i64::from(page.limit))
            .fetch_all(&self.pool)
            .await?;
        Ok(listed(
            rows.iter().map(dead_letter).collect::<Result<_>>()?,
            page,
            |row: &DeadLetter| row.id,
        ))
    }

    async fn dead_letter_count(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        _: CountLimit,
    ) -> Result<Counted> {
        let query = sqlx::query(outbox.sql(include_str!("sql/dlq_count.sql")));
        let count = bind_filter(query, None, filter).fetch_one(&self.pool).await?.try_get(0)?;
        Ok(Counted { count, at_least: false })
    }

    async fn dead_letter(&self, outbox: &Outbox, id: i64) -> Result<Option<DeadLetter>> {
        let row = sqlx::query(outbox.sql(include_str!("sql/dlq_show.sql")))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(dead_letter).transpose()
    }

    async fn retry(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<i64> {
        let mut tx = self.pool.begin().await?;
        lock_open(&mut tx, outbox, id).await?;
        let appended = sqlx::query(outbox.sql(include_str!("sql/dlq_retry.sql")))
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let fresh = signed(appended.last_insert_id());
        mark_resolved(&mut tx, outbox, id, operator, note, Some(fresh)).await?;
        let detail = format!("retried as {fresh}: {note}");
        audit(&mut tx, operator, "dlq.retry", outbox, id, &detail).await?;
        tx.commit().await?;
        Ok(fresh)
    }

    async fn resolve(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        lock_open(&mut tx, outbox, id).await?;
        mark_resolved(&mut tx, outbox, id, operator, note, None).await?;
        audit(&mut tx, operator, "dlq.resolve", outbox, id, note).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn import(
        &self,
        outbox: &Outbox,
        entry: &ImportEntry,
        operator: &str,
    ) -> Result<Imported> {
        let mut tx = self.pool.begin().await?;
        let live: Option<i64> = sqlx::query_scalar(outbox.sql(include_str!("sql/dlq_is_live.sql")))
            .bind(entry.original_id)
            .fetch_optional(&mut *tx)
            .await?;
        if live.is_some() {
            return Ok(Imported::Live);
        }
        let inserted = sqlx::query(outbox.sql(include_str!("sql/dlq_import.sql")))
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .bind(&entry.request_id)
            .bind(&entry.aggregate_type)
            .bind(&entry.aggregate_id)
            .bind(&entry.event_type)
            .bind(&entry.payload)
            .bind(&entry.headers)
            .bind(&entry.content_hash)
            .bind(entry.reason.as_str())
            .bind(fit(&entry.error_message, limits::ERROR_MESSAGE_CHARS_MAX))
            .bind(entry.error_detail.as_ref().map(|t| fit(t, limits::ERROR_DETAIL_CHARS_MAX)))
            .bind(entry.failed_at)
            .bind(entry.retry_count)
            .bind(entry.max_retries)
            .bind(entry.redrive_count)
            .bind(entry.created_at)
            .execute(&mut *tx)
            .await;
        match inserted {
            Ok(_) => {}
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                return Ok(Imported::Known);
            }
            Err(error) => return Err(error.into()),
        }
        let detail = format!("event {} restored from a backup file", entry.event_id);
        audit(&mut tx, operator, "dlq.import", outbox, entry.original_id, &detail).await?;
        tx.commit().await?;
        Ok(Imported::Restored)
    }

    async fn audit(&self, _: &AuditFilter, page: Page) -> Result<Listed<AuditEntry>> {
        let rows = sqlx::query(include_str!("sql/audit_list.sql"))
            .bind(i64::from(page.limit))
            .fetch_all(&self.pool)
            .await?;
        let rows = rows
            .iter()
            .map(|row| {
                Ok(AuditEntry {
                    id: 0,
                    at: row.try_get(0)?,
                    operator: row.try_get(1)?,
                    action: row.try_get(2)?,
                    outbox: row.try_get(3)?,
                    target: row.try_get(4)?,
                    detail: row.try_get(5)?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(listed(rows, page, |row: &AuditEntry| row.id))
    }
}

fn listed<T>(rows: Vec<T>, page: Page, id: impl Fn(&T) -> i64) -> Listed<T> {
    let full = rows.len() >= page.limit as usize;
    let next = rows.last().filter(|_| full).map(id);
    Listed { rows, complete: true, next, as_of: Utc::now() }
}

/// Locks an entry that can be acted on, or says why it cannot.
async fn lock_open(connection: &mut MySqlConnection, outbox: &Outbox, id: i64) -> Result<()> {
    let found: Option<(bool, Option<String>)> =
        sqlx::query_as(outbox.sql(include_str!("sql/dlq_lock.sql")))
            .bind(id)
            .fetch_optional(connection)
            .await?;
    refuse_acting_on(outbox, id, found)
}

async fn mark_resolved(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    id: i64,
    operator: &str,
    note: &str,
    retried_as: Option<i64>,
) -> Result<()> {
    sqlx::query(outbox.sql(include_str!("sql/dlq_resolve.sql")))
        .bind(operator)
        .bind(note)
        .bind(retried_as)
        .bind(id)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn audit(
    connection: &mut MySqlConnection,
    operator: &str,
    action: &str,
    outbox: &Outbox,
    target: impl std::fmt::Display,
    detail: &str,
) -> Result<()> {
    sqlx::query(include_str!("sql/audit.sql"))
        .bind(operator)
        .bind(action)
        .bind(outbox.name())
        .bind(fit(&target.to_string(), limits::AUDIT_TARGET_CHARS_MAX))
        .bind(detail)
        .execute(connection)
        .await?;
    Ok(())
}

type MySqlQuery<'q> = Query<'q, MySql, MySqlArguments>;

fn bind_filter<'q>(
    query: MySqlQuery<'q>,
    before: Option<i64>,
    filter: &'q DlqFilter,
) -> MySqlQuery<'q> {
    query
        .bind(before.unwrap_or(i64::MAX))
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.error)
        .bind(filter.reason.map(|reason| reason.as_str()))
        .bind(filter.resolved)
        .bind(filter.since)
        .bind(filter.until)
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
        headers: row.try_get(7)?,
        content_hash: row.try_get(8)?,
        status: parse_stored("status", &row.try_get::<String, _>(9)?)?,
        retry_count: row.try_get(10)?,
        redrive_count: row.try_get(11)?,
        next_retry_at: row.try_get(12)?,
        expires_at: row.try_get(13)?,
        locked_by: row.try_get(14)?,
        locked_at: row.try_get(15)?,
        last_error: row.try_get(16)?,
        created_at: row.try_get(17)?,
        delivered_at: row.try_get(18)?,
    })
}

/// Columns in the order of `dlq_list.sql` and `dlq_show.sql`.
fn dead_letter(row: &MySqlRow) -> Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.try_get(0)?,
        original_id: row.try_get(1)?,
        event_id: row.try_get(2)?,
        request_id: row.try_get(3)?,
        aggregate_type: row.try_get(4)?,
        aggregate_id: row.try_get(5)?,
        event_type: row.try_get(6)?,
        payload: row.try_get(7)?,
        headers: row.try_get(8)?,
        content_hash: row.try_get(9)?,
        reason: parse_stored("reason", &row.try_get::<String, _>(10)?)?,
        error_message: row.try_get(11)?,
        error_detail: row.try_get(12)?,
        fingerprint: String::new(),
        failed_at: row.try_get(13)?,
        retry_count: row.try_get(14)?,
        max_retries: row.try_get(15)?,
        redrive_count: row.try_get(16)?,
        event_created_at: row.try_get(17)?,
        resolved: row.try_get(18)?,
        resolved_at: row.try_get(19)?,
        resolved_by: row.try_get(20)?,
        resolution_note: row.try_get(21)?,
        retried_as: row.try_get(22)?,
        created_at: row.try_get(23)?,
        updated_at: row.try_get(24)?,
    })
}
