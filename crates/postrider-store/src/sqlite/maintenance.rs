//! Maintenance.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use postrider::internal::minus;

use super::{On, ROWS_MAX, SqliteStore, json};
use crate::Dedupe;
use crate::columns::sql;
use crate::contract::{
    CLOSED_LETTERS_KEPT, Cleaned, DlqFilter, LEDGER_SUMMED_AFTER, Maintenance, MovedLetter,
    OldestLetters, Recovery, Result, Retention,
};
use crate::operator;

/// Pause between two steps of a long walk. Nothing here is urgent, and a program that waits for the
/// write lock retries only every 100 ms once it has waited for a while.
const BREATH: Duration = Duration::from_millis(10);

#[async_trait]
impl Maintenance for SqliteStore {
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64> {
        let (dead, live) = (json(recovery.dead)?, json(recovery.live)?);
        let (mut from, mut recovered) = (0, 0);
        while let Some((to, ids)) = self.next_step(outbox, from).await? {
            let step = sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "recover")))
                .bind(ids)
                .bind(&dead)
                .bind(&live)
                .bind(minus(recovery.stalled_after))
                .execute(&self.writer)
                .await
                .on(self)?;
            recovered += step.rows_affected();
            from = to;
            tokio::time::sleep(BREATH).await;
        }
        Ok(recovered)
    }

    async fn remove_relay(&self, relay_id: &str) -> Result<()> {
        sqlx::query(sql!("sql/lease.sql", "remove_relay"))
            .bind(relay_id)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn move_marked_within(
        &self,
        outbox: &Outbox,
        ids: RangeInclusive<i64>,
        chunk: u32,
    ) -> Result<Vec<MovedLetter>> {
        let mut tx = self.begin().await?;
        let moved: Vec<(i64, String)> =
            sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "move_marked_find")))
                .bind(chunk.min(ROWS_MAX))
                .bind(ids.start())
                .bind(ids.end())
                .fetch_all(&mut *tx)
                .await
                .on(self)?;
        if moved.is_empty() {
            return Ok(Vec::new());
        }
        let ids = json(&moved.iter().map(|(id, _)| *id).collect::<Vec<_>>())?;
        sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "move_marked")))
            .bind(&ids)
            .execute(&mut *tx)
            .await
            .on(self)?;
        self.record_and_remove(&mut tx, outbox, &ids, "dead").await?;
        tx.commit().await.on(self)?;
        Ok(moved.into_iter().map(MovedLetter::from).collect())
    }

    async fn marked_rows(&self, outbox: &Outbox, limit: u32) -> Result<Vec<i64>> {
        let marked = sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "marked_rows")));
        marked.bind(limit).fetch_all(&self.readers).await.on(self)
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

    /// Folds old minutes only: triggers and settles update the sums of a minute directly, because
    /// SQLite has one writer at a time.
    async fn fold_ledger(&self, outbox: &Outbox, chunk: u32) -> Result<u64> {
        let chunk = chunk.clamp(1, ROWS_MAX);
        let mut folded = 0;
        loop {
            let mut tx = self.begin().await?;
            let (last, lines): (Option<String>, u32) =
                sqlx::query_as(outbox.sql(sql!("sql/maintenance.sql", "fold_old_minutes_find")))
                    .bind(minus(LEDGER_SUMMED_AFTER))
                    .bind(chunk)
                    .fetch_one(&mut *tx)
                    .await
                    .on(self)?;
            let Some(last) = last else { return Ok(folded) };
            let fold = sql!("sql/maintenance.sql", "fold_old_minutes");
            for statement in [fold, sql!("sql/maintenance.sql", "fold_old_minutes_delete")] {
                sqlx::query(outbox.sql(statement)).bind(&last).execute(&mut *tx).await.on(self)?;
            }
            tx.commit().await.on(self)?;
            folded += u64::from(lines);
            tokio::time::sleep(BREATH).await;
        }
    }

    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned> {
        let chunk = retention.chunk.clamp(1, ROWS_MAX);
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
                Dedupe::Window(window) => {
                    clean(sql!("sql/maintenance.sql", "clean_keys"), window).await?
                }
                Dedupe::Open => 0,
            },
        })
    }
}

impl SqliteStore {
    async fn clean_jobs(&self, outbox: &Outbox, age: Duration) -> Result<u64> {
        operator::clean_jobs(self, outbox, age).await
    }

    /// Deletes in chunks until a chunk is not full: each statement is short, and other connections
    /// can write in between.
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
                .bind(minus(age))
                .bind(chunk)
                .execute(&self.writer)
                .await
                .on(self)?
                .rows_affected();
            removed += step;
            if step < u64::from(chunk) {
                return Ok(removed);
            }
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Like [`SqliteStore::clean`], and remembers each dead letter, in one transaction.
    async fn clean_letters(&self, outbox: &Outbox, age: Duration, chunk: u32) -> Result<u64> {
        let mut removed = 0;
        loop {
            let mut tx = self.begin().await?;
            let old: Vec<i64> =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "clean_dlq_find")))
                    .bind(minus(age))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await
                    .on(self)?;
            let ids = json(&old)?;
            for statement in [
                sql!("sql/maintenance.sql", "clean_dlq_note"),
                sql!("sql/maintenance.sql", "clean_dlq"),
            ] {
                let acting = sqlx::query(outbox.sql(statement)).bind(&ids);
                acting.execute(&mut *tx).await.on(self)?;
            }
            tx.commit().await.on(self)?;
            removed += old.len() as u64;
            if old.len() < chunk as usize {
                return Ok(removed);
            }
            tokio::time::sleep(BREATH).await;
        }
    }
}
