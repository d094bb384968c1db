//! Batches of buffers.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqliteConnection};
use uuid::Uuid;

use super::append::append_all;
use super::desk::audit;
use super::{On, SqliteStore, json, minus};
use crate::store::{
    Application, BATCHES_KEPT, Batch, BatchBook, BatchState, BatchTarget, Batches, IMPORT_ACTION,
    Lease, Result, TableTarget, importable, is_unfit, parse_stored,
};
use crate::{AppendError, StoreError};

#[async_trait]
impl Batches for SqliteStore {
    async fn check_target(&self, target: &BatchTarget) -> Result<()> {
        let BatchTarget::Table(target) = target else { return Ok(()) };
        // Only prepared: SQLite names the table, column or unique key that is missing.
        let statement = format!("EXPLAIN {}", target.sql(include_str!("sql/batch_upsert.sql")));
        let explained =
            sqlx::query(AssertSqlSafe(statement)).bind("[]").fetch_all(&self.readers).await;
        match explained {
            Ok(_) => Ok(()),
            Err(error)
                if error.as_database_error().is_some_and(|e| e.code().as_deref() == Some("1")) =>
            {
                Err(StoreError::Schema(format!(
                    "counts cannot be added to the table `{}`, key `{}`, count `{}`: {error}",
                    target.table(),
                    target.key_column(),
                    target.count_column()
                )))
            }
            Err(error) => Err(error).on(self),
        }
    }

    async fn apply_batch(
        &self,
        lease: &Lease,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Application> {
        let mut tx = self.begin_held(lease).await?;
        let entries = entry_count(batch);
        let recorded = record(&mut tx, batch.id, &batch.buffer, BatchState::Applied, entries).await;
        if !recorded.on(self)? {
            return Ok(Application::Known(self.known(&mut tx, batch.id).await?));
        }
        if let Some(reason) = self.save(&mut tx, batch, target).await? {
            return Ok(Application::Unfit(reason));
        }
        book(&mut tx, &batch.buffer, BatchState::Applied, entries).await.on(self)?;
        tx.commit().await.on(self)?;
        Ok(Application::Applied)
    }

    async fn cancel_batch(&self, buffer: &str, id: Uuid, entries: u64) -> Result<BatchState> {
        let entries = i64::try_from(entries).unwrap_or(i64::MAX);
        let mut tx = self.begin().await?;
        if !record(&mut tx, id, buffer, BatchState::Cancelled, entries).await.on(self)? {
            return self.known(&mut tx, id).await;
        }
        book(&mut tx, buffer, BatchState::Cancelled, entries).await.on(self)?;
        tx.commit().await.on(self)?;
        Ok(BatchState::Cancelled)
    }

    async fn bury_batch(&self, lease: &Lease, buffer: &str, id: Uuid) -> Result<BatchState> {
        let mut tx = self.begin_held(lease).await?;
        let changed = change(&mut tx, buffer, id, BatchState::Cancelled, BatchState::Dead).await;
        if !changed.on(self)? {
            return self.known(&mut tx, id).await;
        }
        tx.commit().await.on(self)?;
        Ok(BatchState::Dead)
    }

    async fn import_batch(
        &self,
        batch: &Batch,
        target: &BatchTarget,
        operator: &str,
    ) -> Result<Application> {
        let mut tx = self.begin().await?;
        let found = self.found(&mut tx, batch.id).await?;
        if let Some(known) = importable(batch.id, found)? {
            return Ok(known);
        }
        if let Some(reason) = self.save(&mut tx, batch, target).await? {
            return Ok(Application::Unfit(reason));
        }
        let (from, to) = (BatchState::Dead, BatchState::Imported);
        change(&mut tx, &batch.buffer, batch.id, from, to).await.on(self)?;
        let entries = format!("{} entries", batch.entries().len());
        audit(&mut tx, operator, IMPORT_ACTION, &batch.buffer, batch.id, &entries).await?;
        tx.commit().await.on(self)?;
        Ok(Application::Applied)
    }

    async fn batch_states(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, BatchState)>> {
        let mut connection = self.readers.acquire().await.on(self)?;
        let mut states = Vec::new();
        for id in ids {
            if let Some(state) = self.found(&mut connection, *id).await? {
                states.push((*id, state));
            }
        }
        Ok(states)
    }

    async fn batch_book(&self, buffer: &str) -> Result<BatchBook> {
        let lines = sqlx::query_as(include_str!("sql/batch_books.sql"))
            .bind(buffer)
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        BatchBook::from_lines(lines)
    }

    async fn clean_batches(&self, buffer: &str, chunk: u32) -> Result<u64> {
        let mut cleaned = 0;
        loop {
            let done = sqlx::query(include_str!("sql/clean_batches.sql"))
                .bind(buffer)
                .bind(minus(BATCHES_KEPT))
                .bind(chunk)
                .execute(&self.writer)
                .await
                .on(self)?;
            cleaned += done.rows_affected();
            if done.rows_affected() < u64::from(chunk) {
                return Ok(cleaned);
            }
        }
    }
}

impl SqliteStore {
    async fn found(
        &self,
        connection: &mut SqliteConnection,
        id: Uuid,
    ) -> Result<Option<BatchState>> {
        let found: Option<String> = sqlx::query_scalar(include_str!("sql/batch_state.sql"))
            .bind(id)
            .fetch_optional(connection)
            .await
            .on(self)?;
        found.map(|state| parse_stored("state", &state)).transpose()
    }

    async fn known(&self, connection: &mut SqliteConnection, id: Uuid) -> Result<BatchState> {
        // It was there a moment ago; only a clean-up takes it away, after 30 days.
        let found = self.found(connection, id).await?;
        found.ok_or(sqlx::Error::RowNotFound).on(self)
    }

    /// Writes the entries. `Some`: why they do not fit; then the transaction must not be committed.
    async fn save(
        &self,
        connection: &mut SqliteConnection,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Option<String>> {
        let saved = match target {
            BatchTarget::Table(target) => match upsert(connection, batch, target).await {
                Ok(rows) if rows < batch.entries().len() as u64 => {
                    return Ok(Some("a sum does not fit into 64 bits".to_owned()));
                }
                upserted => upserted.map(drop),
            },
            BatchTarget::Events(target) => {
                match append_all(connection, &target.outbox, &batch.events(target)).await {
                    Ok(_) => Ok(()),
                    Err(AppendError::Invalid(reason)) => return Ok(Some(reason.to_string())),
                    Err(AppendError::Database(error)) => Err(error),
                }
            }
        };
        match saved {
            Ok(()) => Ok(None),
            Err(error) if is_unfit(&error) => Ok(Some(error.to_string())),
            Err(error) => Err(error).on(self),
        }
    }
}

fn entry_count(batch: &Batch) -> i64 {
    i64::try_from(batch.entries().len()).unwrap_or(i64::MAX)
}

/// Whether it was undecided until now.
async fn record(
    connection: &mut SqliteConnection,
    id: Uuid,
    buffer: &str,
    state: BatchState,
    entries: i64,
) -> Result<bool, sqlx::Error> {
    let recorded = sqlx::query(include_str!("sql/batch_record.sql"))
        .bind(id)
        .bind(buffer)
        .bind(state.as_str())
        .bind(entries)
        .execute(connection)
        .await?;
    Ok(recorded.rows_affected() > 0)
}

/// From one state to the next, and booked; `false` if it is not in that state.
async fn change(
    connection: &mut SqliteConnection,
    buffer: &str,
    id: Uuid,
    from: BatchState,
    to: BatchState,
) -> Result<bool, sqlx::Error> {
    let entries: Option<i64> = sqlx::query_scalar(include_str!("sql/batch_change.sql"))
        .bind(id)
        .bind(to.as_str())
        .bind(from.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let Some(entries) = entries else { return Ok(false) };
    book(connection, buffer, to, entries).await?;
    Ok(true)
}

async fn book(
    connection: &mut SqliteConnection,
    buffer: &str,
    kind: BatchState,
    entries: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(include_str!("sql/batch_book.sql"))
        .bind(buffer)
        .bind(kind.as_str())
        .bind(entries)
        .execute(connection)
        .await?;
    Ok(())
}

async fn upsert(
    connection: &mut SqliteConnection,
    batch: &Batch,
    target: &TableTarget,
) -> Result<u64, sqlx::Error> {
    let entries: Vec<_> = batch.entries().iter().map(|e| (&e.field, e.count)).collect();
    let entries = json(&entries).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let statement = target.sql(include_str!("sql/batch_upsert.sql"));
    let upserted = sqlx::query(AssertSqlSafe(statement)).bind(entries).execute(connection).await?;
    Ok(upserted.rows_affected())
}
