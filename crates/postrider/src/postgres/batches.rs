//! Batches of buffers.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::PostgresStore;
use super::append::{append_all, millis};
use super::desk::audit;
use crate::store::{
    Application, BATCHES_KEPT, Batch, BatchBook, BatchState, BatchTarget, Batches, IMPORT_ACTION,
    Lease, Result, TableTarget, importable, is_unfit, parse_stored,
};
use crate::{AppendError, StoreError};

#[async_trait]
impl Batches for PostgresStore {
    async fn check_target(&self, target: &BatchTarget) -> Result<()> {
        let BatchTarget::Table(target) = target else { return Ok(()) };
        let mut connection = self.pool.acquire().await?;
        key_type(&mut connection, target).await.map(drop)
    }

    async fn apply_batch(
        &self,
        lease: &Lease,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Application> {
        let mut tx = self.begin_held(lease).await?;
        let entries = entry_count(batch);
        if !record(&mut tx, batch.id, &batch.buffer, BatchState::Applied, entries).await? {
            return Ok(Application::Known(known(&mut tx, batch.id).await?));
        }
        if let Some(reason) = save(&mut tx, batch, target).await? {
            return Ok(Application::Unfit(reason));
        }
        book(&mut tx, &batch.buffer, BatchState::Applied, entries).await?;
        tx.commit().await?;
        Ok(Application::Applied)
    }

    async fn cancel_batch(&self, buffer: &str, id: Uuid, entries: u64) -> Result<BatchState> {
        let entries = i64::try_from(entries).unwrap_or(i64::MAX);
        let mut tx = self.begin().await?;
        if !record(&mut tx, id, buffer, BatchState::Cancelled, entries).await? {
            return known(&mut tx, id).await;
        }
        book(&mut tx, buffer, BatchState::Cancelled, entries).await?;
        tx.commit().await?;
        Ok(BatchState::Cancelled)
    }

    async fn bury_batch(&self, lease: &Lease, buffer: &str, id: Uuid) -> Result<BatchState> {
        let mut tx = self.begin_held(lease).await?;
        if !change(&mut tx, buffer, id, BatchState::Cancelled, BatchState::Dead).await? {
            return known(&mut tx, id).await;
        }
        tx.commit().await?;
        Ok(BatchState::Dead)
    }

    async fn import_batch(
        &self,
        batch: &Batch,
        target: &BatchTarget,
        operator: &str,
    ) -> Result<Application> {
        let mut tx = self.begin().await?;
        let found = locked(&mut tx, batch.id).await?;
        if let Some(known) = importable(batch.id, found)? {
            return Ok(known);
        }
        if let Some(reason) = save(&mut tx, batch, target).await? {
            return Ok(Application::Unfit(reason));
        }
        change(&mut tx, &batch.buffer, batch.id, BatchState::Dead, BatchState::Imported).await?;
        let entries = format!("{} entries", batch.entries().len());
        audit(&mut tx, operator, IMPORT_ACTION, &batch.buffer, batch.id, &entries).await?;
        tx.commit().await?;
        Ok(Application::Applied)
    }

    async fn batch_states(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, BatchState)>> {
        let rows: Vec<(Uuid, String)> = sqlx::query_as(include_str!("sql/batch_states.sql"))
            .bind(ids)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(|(id, state)| Ok((id, parse_stored("state", &state)?))).collect()
    }

    async fn batch_book(&self, buffer: &str) -> Result<BatchBook> {
        let lines = sqlx::query_as(include_str!("sql/batch_books.sql"))
            .bind(buffer)
            .fetch_all(&self.pool)
            .await?;
        BatchBook::from_lines(lines)
    }

    async fn clean_batches(&self, buffer: &str, chunk: u32) -> Result<u64> {
        let mut cleaned = 0;
        loop {
            let done = sqlx::query(include_str!("sql/clean_batches.sql"))
                .bind(buffer)
                .bind(millis(BATCHES_KEPT))
                .bind(i64::from(chunk))
                .execute(&self.pool)
                .await?;
            cleaned += done.rows_affected();
            if done.rows_affected() < u64::from(chunk) {
                return Ok(cleaned);
            }
        }
    }
}

impl PostgresStore {
    /// A transaction that only the holder of the lease gets.
    async fn begin_held(&self, lease: &Lease) -> Result<Transaction<'static, Postgres>> {
        let mut tx = self.begin().await?;
        let held: Option<i32> = sqlx::query_scalar(include_str!("sql/lease_hold.sql"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&mut *tx)
            .await?;
        held.map(|_| tx).ok_or(StoreError::LeaseLost)
    }
}

fn entry_count(batch: &Batch) -> i64 {
    i64::try_from(batch.entries().len()).unwrap_or(i64::MAX)
}

/// Whether it was undecided until now.
async fn record(
    connection: &mut PgConnection,
    id: Uuid,
    buffer: &str,
    state: BatchState,
    entries: i64,
) -> Result<bool> {
    let recorded = sqlx::query(include_str!("sql/batch_record.sql"))
        .bind(id)
        .bind(buffer)
        .bind(state.as_str())
        .bind(entries)
        .execute(connection)
        .await?;
    Ok(recorded.rows_affected() > 0)
}

async fn locked(connection: &mut PgConnection, id: Uuid) -> Result<Option<BatchState>> {
    let found: Option<String> = sqlx::query_scalar(include_str!("sql/batch_lock.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    found.map(|state| parse_stored("state", &state)).transpose()
}

async fn known(connection: &mut PgConnection, id: Uuid) -> Result<BatchState> {
    // It was there a moment ago; only a clean-up takes it away, after 30 days.
    Ok(locked(connection, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// From one state to the next, and booked; `false` if it is not in that state.
async fn change(
    connection: &mut PgConnection,
    buffer: &str,
    id: Uuid,
    from: BatchState,
    to: BatchState,
) -> Result<bool> {
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
    connection: &mut PgConnection,
    buffer: &str,
    kind: BatchState,
    entries: i64,
) -> Result<()> {
    sqlx::query(include_str!("sql/batch_book.sql"))
        .bind(buffer)
        .bind(kind.as_str())
        .bind(entries)
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes the entries. `Some`: why they do not fit; then the transaction must not be committed.
async fn save(
    connection: &mut PgConnection,
    batch: &Batch,
    target: &BatchTarget,
) -> Result<Option<String>> {
    let saved = match target {
        BatchTarget::Table(target) => {
            let of_type = key_type(connection, target).await?;
            // The type's name is the catalogue's own spelling.
            let statement = target.sql(include_str!("sql/batch_upsert.sql"));
            let statement = statement.replace("{type}", &of_type);
            let entries = batch.entries();
            let upserted = sqlx::query(AssertSqlSafe(statement))
                .bind(entries.iter().map(|entry| entry.field.as_str()).collect::<Vec<_>>())
                .bind(entries.iter().map(|entry| entry.count).collect::<Vec<_>>())
                .execute(connection)
                .await;
            upserted.map(drop)
        }
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
        Err(error) => Err(error.into()),
    }
}

/// The type of the key's column, once the target is known to be usable.
async fn key_type(connection: &mut PgConnection, target: &TableTarget) -> Result<String> {
    let (table, key, count) = (target.table(), target.key_column(), target.count_column());
    let found: (Option<String>, Option<String>, bool, bool) =
        sqlx::query_as(include_str!("sql/batch_target.sql"))
            .bind(table)
            .bind(key)
            .bind(count)
            .fetch_one(connection)
            .await?;
    let missing = match &found {
        (_, _, _, false) => format!("the table `{table}` does not exist"),
        (None, ..) => format!("the table `{table}` has no column `{key}`"),
        (_, None, ..) => format!("the table `{table}` has no column `{count}`"),
        (_, _, false, _) => format!(
            "the column `{key}` of the table `{table}` is neither its primary key nor alone in a \
             unique index; counts cannot be added to its rows"
        ),
        (Some(of_type), ..) => return Ok(of_type.clone()),
    };
    Err(StoreError::Schema(missing))
}
