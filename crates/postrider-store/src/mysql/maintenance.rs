//! Maintenance.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider::internal::millis;
use serde_json::json;
use sqlx::{MySql, Transaction};

use super::MysqlStore;
use super::settle::{LockedRow, act, ids_json};
use crate::Dedupe;
use crate::columns::sql;
use crate::contract::{
    CLOSED_LETTERS_KEPT, Cleaned, DlqFilter, LEDGER_SUMMED_AFTER, Maintenance, MovedLetter,
    OldestLetters, Recovery, Result, Retention, end,
};
use crate::operator;

#[async_trait]
impl Maintenance for MysqlStore {
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64> {
        let (mut from, mut recovered) = (0, 0);
        while let Some(to) = self.next_step(outbox, from).await? {
            let stalled: Vec<(i64, i64)> =
                sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "recover_find")))
                    .bind(from)
                    .bind(to)
                    .bind(json!(recovery.dead).to_string())
                    .bind(json!(recovery.live).to_string())
                    .bind(millis(recovery.stalled_after))
                    .fetch_all(&self.pool)
                    .await?;
            if !stalled.is_empty() {
                recovered += self.recover_step(outbox, &stalled).await?;
            }
            from = to;
        }
        Ok(recovered)
    }

    async fn remove_relay(&self, relay_id: &str) -> Result<()> {
        sqlx::query(sql!("sql/lease.sql", "remove_relay"))
            .bind(relay_id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn move_marked_within(
        &self,
        outbox: &Outbox,
        ids: RangeInclusive<i64>,
        chunk: u32,
    ) -> Result<Vec<MovedLetter>> {
        let mut tx = self.begin().await?;
        let moved = move_marked(&mut tx, outbox, ids, chunk).await;
        end(tx, moved).await
    }

    async fn marked_rows(&self, outbox: &Outbox, limit: u32) -> Result<Vec<i64>> {
        let marked = sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "marked_rows")));
        Ok(marked.bind(limit).fetch_all(&self.pool).await?)
    }

    async fn fingerprint_dead_letters(&self, outbox: &Outbox, chunk: u32) -> Result<u64> {
        operator::fingerprint_dead_letters(self, outbox, chunk).await
    }

    async fn oldest_dead_letters(
        &self,
        outbox: &Outbox,
        filter: &DlqFilter,
        after_id: i64,
        limit: u32,
    ) -> Result<OldestLetters> {
        operator::oldest_dead_letters(self, outbox, filter, after_id, limit).await
    }

    async fn fold_ledger(&self, outbox: &Outbox, chunk: u32) -> Result<u64> {
        let fold = [
            sql!("sql/maintenance.sql", "fold_ledger"),
            sql!("sql/maintenance.sql", "fold_ledger_delete"),
        ];
        let mut folded = 0;
        loop {
            let mut tx = self.begin().await?;
            let entries: Vec<i64> =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "fold_ledger_find")))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await?;
            if !entries.is_empty() {
                act(&mut tx, outbox, &ids_json(&entries), None, &fold).await?;
            }
            tx.commit().await?;
            folded += entries.len() as u64;
            if entries.len() < chunk as usize {
                return Ok(folded + self.fold_old_minutes(outbox, chunk).await?);
            }
        }
    }

    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned> {
        let chunk = retention.chunk;
        let clean = |statement, age| self.clean(outbox, statement, age, chunk);
        clean(sql!("sql/maintenance.sql", "clean_closed"), CLOSED_LETTERS_KEPT).await?;
        Ok(Cleaned {
            archived: clean(sql!("sql/maintenance.sql", "clean_archive"), retention.archive)
                .await?,
            dead_letters: self.clean_letters(outbox, retention.resolved, chunk).await?,
            attempts: clean(sql!("sql/maintenance.sql", "clean_attempts"), retention.resolved)
                .await?,
            jobs: self.clean_jobs(outbox, retention.resolved).await?,
            keys: match retention.dedupe {
                Dedupe::Window(window) => self.clean_keys(outbox, window, chunk).await?,
                Dedupe::Open => 0,
            },
        })
    }
}

impl MysqlStore {
    /// Sums up minutes that readers no longer show one by one, by type and kind.
    async fn fold_old_minutes(&self, outbox: &Outbox, chunk: u32) -> Result<u64> {
        let fold = [
            sql!("sql/maintenance.sql", "fold_old_minutes"),
            sql!("sql/maintenance.sql", "fold_old_minutes_delete"),
        ];
        let mut folded = 0;
        loop {
            let mut tx = self.begin().await?;
            let lines: Vec<(String, String, String)> =
                sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "fold_old_minutes_find")))
                    .bind(millis(LEDGER_SUMMED_AFTER))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await?;
            if !lines.is_empty() {
                act(&mut tx, outbox, &json!(lines).to_string(), None, &fold).await?;
            }
            tx.commit().await?;
            folded += lines.len() as u64;
            if lines.len() < chunk as usize {
                return Ok(folded);
            }
        }
    }

    async fn clean_jobs(&self, outbox: &Outbox, age: Duration) -> Result<u64> {
        operator::clean_jobs(self, outbox, age).await
    }

    async fn recover_step(&self, outbox: &Outbox, stalled: &[(i64, i64)]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let locked: Vec<i64> =
            sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "recover_lock")))
                .bind(json!(stalled).to_string())
                .fetch_all(&mut *tx)
                .await?;
        if !locked.is_empty() {
            let recover = [sql!("sql/maintenance.sql", "recover")];
            act(&mut tx, outbox, &ids_json(&locked), None, &recover).await?;
        }
        tx.commit().await?;
        Ok(locked.len() as u64)
    }

    /// Deletes in chunks until a chunk is not full: each statement is short, and a lock is held for
    /// milliseconds only.
    async fn clean(
        &self,
        outbox: &Outbox,
        statement: &'static str,
        age: Duration,
        chunk: u32,
    ) -> Result<u64> {
        let mut removed = 0;
        loop {
            let step = sqlx::query(outbox.sql(statement))
                .bind(millis(age))
                .bind(chunk)
                .execute(&self.pool)
                .await?
                .rows_affected();
            removed += step;
            if step < u64::from(chunk) {
                return Ok(removed);
            }
        }
    }

    /// Like [`MysqlStore::clean`], and remembers each dead letter, in one transaction.
    async fn clean_letters(&self, outbox: &Outbox, age: Duration, chunk: u32) -> Result<u64> {
        let mut removed = 0;
        loop {
            let mut tx = self.begin().await?;
            let old: Vec<i64> =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "clean_dlq_find")))
                    .bind(millis(age))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await?;
            let remove = [
                sql!("sql/maintenance.sql", "clean_dlq_note"),
                sql!("sql/maintenance.sql", "clean_dlq"),
            ];
            act(&mut tx, outbox, &ids_json(&old), None, &remove).await?;
            tx.commit().await?;
            removed += old.len() as u64;
            if old.len() < chunk as usize {
                return Ok(removed);
            }
        }
    }

    /// Like [`MysqlStore::clean`], in two statements: see `clean_keys.sql`.
    async fn clean_keys(&self, outbox: &Outbox, window: Duration, chunk: u32) -> Result<u64> {
        let mut removed = 0;
        loop {
            let mut tx = self.begin().await?;
            let old: Vec<String> =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "clean_keys_find")))
                    .bind(millis(window))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await?;
            let forget = [sql!("sql/maintenance.sql", "clean_keys")];
            act(&mut tx, outbox, &json!(old).to_string(), None, &forget).await?;
            tx.commit().await?;
            removed += old.len() as u64;
            if old.len() < chunk as usize {
                return Ok(removed);
            }
        }
    }
}

/// Moves marked rows within a transaction.
async fn move_marked(
    tx: &mut Transaction<'static, MySql>,
    outbox: &Outbox,
    ids: RangeInclusive<i64>,
    chunk: u32,
) -> Result<Vec<MovedLetter>> {
    let mut found: Vec<(i64, String, DateTime<Utc>, String)> =
        sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "move_marked_find")))
            .bind(ids.start())
            .bind(ids.end())
            .bind(chunk)
            .fetch_all(&mut **tx)
            .await?;
    found.sort_unstable();
    let (mut marked, mut moved): (Vec<LockedRow>, Vec<MovedLetter>) = Default::default();
    for (id, event_type, created_at, event_id) in found {
        marked.push((id, event_type, created_at));
        moved.push(MovedLetter { original_id: id, event_id });
    }
    if !marked.is_empty() {
        let ids: Vec<i64> = marked.iter().map(|(id, ..)| *id).collect();
        let statements = [sql!("sql/maintenance.sql", "move_marked")];
        act(tx, outbox, &ids_json(&ids), Some(("dead", &marked)), &statements).await?;
    }
    Ok(moved)
}
