//! House-keeping.

use std::time::Duration;

use async_trait::async_trait;

use super::{On, ROWS_MAX, SqliteStore, json, minus};
use crate::store::{Cleaned, Recovery, Result, Retention, Upkeep, fingerprints};
use crate::{Dedupe, Outbox};

/// Time between two steps of a long walk. Nothing here is urgent, and a program that waits for the
/// write lock only looks for it every 100 ms once it has waited for a while.
const BREATH: Duration = Duration::from_millis(10);

#[async_trait]
impl Upkeep for SqliteStore {
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64> {
        let (dead, live) = (json(recovery.dead)?, json(recovery.live)?);
        let (mut from, mut recovered) = (0, 0);
        while let Some((to, ids)) = self.next_step(outbox, from).await? {
            let step = sqlx::query(outbox.sql(include_str!("sql/recover.sql")))
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

    async fn bury(&self, relay_id: &str) -> Result<()> {
        sqlx::query(include_str!("sql/bury.sql"))
            .bind(relay_id)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn move_marked(&self, outbox: &Outbox, chunk: u32) -> Result<Vec<i64>> {
        let mut tx = self.begin().await?;
        let moved: Vec<i64> =
            sqlx::query_scalar(outbox.sql(include_str!("sql/move_marked_find.sql")))
                .bind(chunk.min(ROWS_MAX))
                .fetch_all(&mut *tx)
                .await
                .on(self)?;
        if moved.is_empty() {
            return Ok(moved);
        }
        let ids = json(&moved)?;
        sqlx::query(outbox.sql(include_str!("sql/move_marked.sql")))
            .bind(&ids)
            .execute(&mut *tx)
            .await
            .on(self)?;
        self.book_and_remove(&mut tx, outbox, &ids, "dead").await?;
        tx.commit().await.on(self)?;
        Ok(moved)
    }

    async fn fingerprint_dead_letters(&self, outbox: &Outbox, chunk: u32) -> Result<u64> {
        let unseen = sqlx::query_as(outbox.sql(include_str!("sql/dlq_unseen.sql")))
            .bind(chunk.min(ROWS_MAX))
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        let kinds = fingerprints(unseen)?;
        if kinds.is_empty() {
            return Ok(0);
        }
        let done = sqlx::query(outbox.sql(include_str!("sql/dlq_fingerprint.sql")))
            .bind(json(&kinds)?)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(done.rows_affected())
    }

    /// The triggers and settles keep the sums up themselves: writers are serial.
    async fn fold_books(&self, _: &Outbox, _: u32) -> Result<u64> {
        Ok(0)
    }

    async fn clean_up(&self, outbox: &Outbox, retention: &Retention) -> Result<Cleaned> {
        let chunk = retention.chunk.clamp(1, ROWS_MAX);
        let clean = |statement, age| self.clean(outbox, statement, age, chunk);
        Ok(Cleaned {
            archived: clean(include_str!("sql/clean_archive.sql"), retention.archive).await?,
            dead_letters: clean(include_str!("sql/clean_dlq.sql"), retention.resolved).await?,
            attempts: clean(include_str!("sql/clean_attempts.sql"), retention.resolved).await?,
            keys: match retention.dedupe {
                Dedupe::Window(window) => clean(include_str!("sql/clean_keys.sql"), window).await?,
                Dedupe::Open => 0,
            },
        })
    }
}

impl SqliteStore {
    /// Deletes in chunks until a chunk is not full: each statement is short, and others write in
    /// between.
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
}
