//! Maintenance.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use postrider::internal::millis;
use sqlx::AssertSqlSafe;

use super::PostgresStore;
use crate::Dedupe;
use crate::columns::sql;
use crate::contract::{
    CLOSED_LETTERS_KEPT, Cleaned, DlqFilter, LEDGER_SUMMED_AFTER, Maintenance, MovedLetter,
    OldestLetters, Recovery, Result, Retention, end,
};
use crate::operator;

#[async_trait]
impl Maintenance for PostgresStore {
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64> {
        let (mut from, mut recovered) = (0, 0);
        while let Some(to) = self.next_step(outbox, from).await? {
            let step = sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "recover")))
                .bind(from)
                .bind(to)
                .bind(recovery.dead)
                .bind(recovery.live)
                .bind(millis(recovery.stalled_after))
                .execute(&self.pool)
                .await?;
            recovered += step.rows_affected();
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
        let moved = sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "move_marked")))
            .bind(i64::from(chunk))
            .bind(ids.start())
            .bind(ids.end())
            .fetch_all(&mut *tx)
            .await;
        let moved: Vec<(i64, String)> = end(tx, moved.map_err(Into::into)).await?;
        Ok(moved.into_iter().map(MovedLetter::from).collect())
    }

    async fn marked_rows(&self, outbox: &Outbox, limit: u32) -> Result<Vec<i64>> {
        let marked = sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "marked_rows")))
            .bind(i64::from(limit));
        Ok(marked.fetch_all(&self.pool).await?)
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
        let chunk = i64::from(chunk);
        let mut folded = 0;
        loop {
            let step: i64 =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "fold_ledger")))
                    .bind(chunk)
                    .fetch_one(&self.pool)
                    .await?;
            folded += step;
            if step < chunk {
                break;
            }
        }
        loop {
            let step: i64 =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "fold_old_minutes")))
                    .bind(millis(LEDGER_SUMMED_AFTER))
                    .bind(chunk)
                    .fetch_one(&self.pool)
                    .await?;
            folded += step;
            if step < chunk {
                return Ok(u64::try_from(folded).unwrap_or(0));
            }
        }
    }

    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned> {
        self.add_archive_partitions(outbox).await?;
        self.drop_archive_partitions(outbox, retention.archive).await?;
        let chunk = retention.chunk;
        let clean = |statement, age| self.clean(outbox, statement, age, chunk);
        clean(sql!("sql/maintenance.sql", "clean_closed"), CLOSED_LETTERS_KEPT).await?;
        Ok(Cleaned {
            archived: clean(sql!("sql/maintenance.sql", "clean_archive"), retention.archive)
                .await?,
            dead_letters: clean(sql!("sql/maintenance.sql", "clean_dlq"), retention.resolved)
                .await?,
            attempts: clean(sql!("sql/maintenance.sql", "clean_attempts"), retention.resolved)
                .await?,
            jobs: self.clean_jobs(outbox, retention.resolved).await?,
            keys: match retention.dedupe {
                Dedupe::Window(window) => {
                    clean(sql!("sql/maintenance.sql", "clean_keys"), window).await?
                }
                Dedupe::Open => 0,
            },
        })
    }
}

impl PostgresStore {
    async fn clean_jobs(&self, outbox: &Outbox, age: Duration) -> Result<u64> {
        operator::clean_jobs(self, outbox, age).await
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
                .bind(i64::from(chunk))
                .execute(&self.pool)
                .await?
                .rows_affected();
            removed += step;
            if step < u64::from(chunk) {
                return Ok(removed);
            }
        }
    }

    /// Applies the retention with DROP. If the relay does not own the tables, the chunked delete
    /// does it.
    async fn drop_archive_partitions(&self, outbox: &Outbox, age: Duration) -> Result<()> {
        let partitions: Vec<String> =
            sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "archive_partitions")))
                .bind(millis(age))
                .fetch_all(&self.pool)
                .await?;
        for partition in partitions {
            let drop = AssertSqlSafe(format!("DROP TABLE IF EXISTS \"{partition}\""));
            match sqlx::raw_sql(drop).execute(&self.pool).await {
                Ok(_) => tracing::info!(outbox = outbox.name(), partition, "archive day dropped"),
                Err(error) => {
                    tracing::warn!(outbox = outbox.name(), partition, %error,
                        "archive day not dropped; its rows are deleted in chunks instead");
                }
            }
        }
        Ok(())
    }
}
