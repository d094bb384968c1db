//! The operator's side: books, lists, dead letters.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use super::MysqlStore;
use super::append::{append, millis, signed};
use super::search::{AuditSearch, DlqSearch, EventSearch, dead_letter};
use super::time::{stored, time};
use crate::event::{fit, limits};
use crate::store::search;
use crate::store::{
    Attempt, AuditEntry, AuditFilter, BOOKS_BY_MINUTE, BookLine, Books, CountLimit, Counted,
    DeadLetter, DeadLetterGroups, Desk, DlqFilter, Edit, EventFilter, EventRecord, Identified,
    ImportEntry, Imported, Listed, Oldest, Page, Resent, Result, Statistics, StoreKind,
    TypeStatistics, books_from_lines, edited, groups, parse_stored, refuse_acting_on,
    refuse_reopening, resent,
};
use crate::{Outbox, Status, fingerprint};

#[async_trait]
impl Desk for MysqlStore {
    async fn books(&self, outbox: &Outbox) -> Result<Vec<Books>> {
        let rows = sqlx::query(outbox.sql(include_str!("sql/books.sql")))
            .bind(millis(BOOKS_BY_MINUTE))
            .fetch_all(&self.pool)
            .await?;
        let mut lines: BTreeMap<DateTime<Utc>, Vec<(String, BookLine)>> = BTreeMap::new();
        for row in rows {
            let line = BookLine {
                count: row.try_get(2)?,
                id_sum: parse_stored("id_sum", &row.try_get::<String, _>(3)?)?,
            };
            lines.entry(time(&row, 0)?).or_default().push((row.try_get(1)?, line));
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
        let unresolved = sqlx::query_scalar(outbox.sql(include_str!("sql/unresolved.sql")))
            .fetch_one(&self.pool)
            .await?;
        let statistics = Statistics::from_types(by_type, unresolved);
        let look = |from| self.oldest(outbox, from);
        let oldest_age_s = self.oldest_rows.age_s(outbox, statistics.pending, look).await?;
        Ok(Statistics { oldest_age_s, ..statistics })
    }

    async fn events(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        page: Page,
    ) -> Result<Listed<EventRecord>> {
        search::list(&EventSearch { pool: &self.pool, outbox, filter }, page).await
    }

    async fn event_count(
        &self,
        outbox: &Outbox,
        filter: &EventFilter,
        limit: CountLimit,
    ) -> Result<Counted> {
        search::count(&EventSearch { pool: &self.pool, outbox, filter }, limit).await
    }

    async fn event(&self, outbox: &Outbox, id: i64) -> Result<Option<EventRecord>> {
        for status in [None, Some(Status::Completed)] {
            let filter = EventFilter { status, ..EventFilter::default() };
            let search = EventSearch { pool: &self.pool, outbox, filter: &filter };
            let found = search.find(id..id.saturating_add(1), 1, true).await?.pop();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    async fn event_by_identity(
        &self,
        outbox: &Outbox,
        event_id: &str,
        budget: Duration,
    ) -> Result<Identified> {
        let live = EventFilter { event_id: Some(event_id.to_owned()), ..EventFilter::default() };
        let archived = EventFilter { status: Some(Status::Completed), ..live.clone() };
        let rows = sqlx::query(outbox.sql(include_str!("sql/dlq_by_event.sql")))
            .bind(event_id)
            .bind(i64::from(search::IDENTICAL_MAX))
            .fetch_all(&self.pool)
            .await?;
        let dead_letters = rows.iter().map(dead_letter).collect::<Result<_>>()?;
        let search = |filter| EventSearch { pool: &self.pool, outbox, filter };
        search::identified(&search(&live), &search(&archived), dead_letters, budget).await
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
                    failed_at: time(row, 1)?,
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
        search::list(&DlqSearch { pool: &self.pool, outbox, filter }, page).await
    }

    async fn dead_letter_count(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        limit: CountLimit,
    ) -> Result<Counted> {
        if filter.is_open_only() {
            let found = sqlx::query_scalar(outbox.sql(include_str!("sql/dlq_count_open.sql")))
                .bind(limit.count_max.saturating_add(1))
                .fetch_one(&self.pool)
                .await?;
            return Ok(Counted::up_to(found, limit.count_max));
        }
        search::count(&DlqSearch { pool: &self.pool, outbox, filter }, limit).await
    }

    async fn dead_letter_groups(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        page: Page,
    ) -> Result<DeadLetterGroups> {
        groups(&DlqSearch { pool: &self.pool, outbox, filter }, page).await
    }

    async fn dead_letter(&self, outbox: &Outbox, id: i64) -> Result<Option<DeadLetter>> {
        let row = sqlx::query(outbox.sql(include_str!("sql/dlq_show.sql")))
            .bind(id)
            .fetch_optional(&self.pool)
            .await?;
        row.as_ref().map(dead_letter).transpose()
    }

    async fn retry(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<i64> {
        let mut tx = self.begin().await?;
        lock_open(&mut tx, outbox, id).await?;
        let appended = sqlx::query(outbox.sql(include_str!("sql/dlq_retry.sql")))
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let fresh = signed(appended.last_insert_id());
        mark_resolved(&mut tx, outbox, id, operator, note, Some(fresh)).await?;
        let detail = format!("retried as {fresh}: {note}");
        audit(&mut tx, operator, "dlq.retry", outbox.name(), id, &detail).await?;
        tx.commit().await?;
        Ok(fresh)
    }

    async fn resolve(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        lock_open(&mut tx, outbox, id).await?;
        mark_resolved(&mut tx, outbox, id, operator, note, None).await?;
        audit(&mut tx, operator, "dlq.resolve", outbox.name(), id, note).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn reopen(&self, outbox: &Outbox, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let reopened = sqlx::query(outbox.sql(include_str!("sql/dlq_reopen.sql")))
            .bind(id)
            .execute(&mut *tx)
            .await?;
        if reopened.rows_affected() == 0 {
            drop(tx);
            return Err(refuse_reopening(outbox, id, self.dead_letter(outbox, id).await?));
        }
        audit(&mut tx, operator, "dlq.reopen", outbox.name(), id, note).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn resend(
        &self,
        outbox: &Outbox,
        id: i64,
        edit: &Edit,
        operator: &str,
        note: &str,
    ) -> Result<Resent> {
        let mut tx = self.begin().await?;
        lock_open(&mut tx, outbox, id).await?;
        let row = sqlx::query(outbox.sql(include_str!("sql/dlq_show.sql")))
            .bind(id)
            .fetch_one(&mut *tx)
            .await?;
        let event = edited(&dead_letter(&row)?, edit)?;
        let resent = resent(append(&mut tx, outbox, &event).await)?;
        sqlx::query(outbox.sql(include_str!("sql/dlq_resend_expiry.sql")))
            .bind(resent.id)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        mark_resolved(&mut tx, outbox, id, operator, note, Some(resent.id)).await?;
        let detail = format!("sent edited as {}: {note}", resent.id);
        audit(&mut tx, operator, "dlq.resend", outbox.name(), id, &detail).await?;
        tx.commit().await?;
        Ok(resent)
    }

    async fn import(
        &self,
        outbox: &Outbox,
        entry: &ImportEntry,
        operator: &str,
    ) -> Result<Imported> {
        entry.check(StoreKind::Mysql)?;
        let mut tx = self.begin().await?;
        let live: Option<i64> = sqlx::query_scalar(outbox.sql(include_str!("sql/dlq_is_live.sql")))
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .fetch_optional(&mut *tx)
            .await?;
        // An end of its own on each way out: a transaction that is only dropped keeps its lock a
        // little longer, and upkeep would skip the row meanwhile.
        if live.is_some() {
            tx.rollback().await?;
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
            .bind(stored(entry.failed_at))
            .bind(entry.retry_count)
            .bind(entry.max_retries)
            .bind(entry.redrive_count)
            .bind(stored(entry.created_at))
            .bind(fingerprint(entry.reason, &entry.error_message))
            .bind(entry.expires_at.map(stored))
            .execute(&mut *tx)
            .await;
        match inserted {
            Ok(_) => {}
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                tx.rollback().await?;
                return Ok(Imported::Known);
            }
            Err(error) => return Err(entry.refused_by(error)),
        }
        let closed: bool = sqlx::query_scalar(outbox.sql(include_str!("sql/dlq_is_closed.sql")))
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .fetch_one(&mut *tx)
            .await?;
        if closed {
            tx.rollback().await?;
            return Ok(Imported::Known);
        }
        let detail = format!("event {} restored from a backup file", entry.event_id);
        audit(&mut tx, operator, "dlq.import", outbox.name(), entry.original_id, &detail).await?;
        tx.commit().await?;
        Ok(Imported::Restored)
    }

    async fn was_closed(&self, outbox: &Outbox, entry: &ImportEntry) -> Result<bool> {
        entry.check(StoreKind::Mysql)?;
        Ok(sqlx::query_scalar(outbox.sql(include_str!("sql/dlq_is_closed.sql")))
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .bind(entry.original_id)
            .bind(&entry.event_id)
            .fetch_one(&self.pool)
            .await?)
    }

    async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditEntry>> {
        search::list(&AuditSearch { pool: &self.pool, filter }, page).await
    }
}

impl MysqlStore {
    async fn oldest(&self, outbox: &Outbox, from: i64) -> Result<Oldest> {
        Ok(sqlx::query_as(outbox.sql(include_str!("sql/oldest.sql")))
            .bind(from)
            .fetch_optional(&self.pool)
            .await?)
    }
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
    outbox: &str,
    target: impl std::fmt::Display,
    detail: &str,
) -> Result<()> {
    sqlx::query(include_str!("sql/audit.sql"))
        .bind(operator)
        .bind(action)
        .bind(outbox)
        .bind(fit(&target.to_string(), limits::AUDIT_TARGET_CHARS_MAX))
        .bind(detail)
        .execute(connection)
        .await?;
    Ok(())
}
