//! Batches of buffers.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;
use uuid::Uuid;

use super::append::{append_all, millis};
use super::desk::audit;
use super::{MysqlStore, error_number};
use crate::store::{
    Application, BATCHES_KEPT, Batch, BatchBook, BatchState, BatchTarget, Batches, IMPORT_ACTION,
    Lease, Result, TableTarget, importable, is_unfit, parse_stored,
};
use crate::{AppendError, StoreError};

/// Rows of one INSERT; the server takes 65,535 parameters and packets of 16 MiB.
const UPSERT_ROWS_MAX: usize = 1_000;
/// "Duplicate entry".
const DUPLICATE_ENTRY: u16 = 1062;

#[async_trait]
impl Batches for MysqlStore {
    async fn check_target(&self, target: &BatchTarget) -> Result<()> {
        let BatchTarget::Table(target) = target else { return Ok(()) };
        let mut connection = self.pool.acquire().await?;
        check_table(&mut connection, target).await
    }

    async fn apply_batch(
        &self,
        lease: &Lease,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Application> {
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
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
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
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
        let mut states = Vec::new();
        for id in ids {
            let found: Option<String> = sqlx::query_scalar(include_str!("sql/batch_state.sql"))
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
            if let Some(state) = found {
                states.push((*id, parse_stored("state", &state)?));
            }
        }
        Ok(states)
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
                .bind(chunk)
                .execute(&self.pool)
                .await?;
            cleaned += done.rows_affected();
            if done.rows_affected() < u64::from(chunk) {
                return Ok(cleaned);
            }
        }
    }
}

fn entry_count(batch: &Batch) -> i64 {
    i64::try_from(batch.entries().len()).unwrap_or(i64::MAX)
}

/// Whether it was undecided until now.
async fn record(
    connection: &mut MySqlConnection,
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
        .await;
    match recorded {
        Ok(_) => Ok(true),
        Err(error) if error_number(&error) == Some(DUPLICATE_ENTRY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn locked(connection: &mut MySqlConnection, id: Uuid) -> Result<Option<BatchState>> {
    let found: Option<String> = sqlx::query_scalar(include_str!("sql/batch_lock.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    found.map(|state| parse_stored("state", &state)).transpose()
}

async fn known(connection: &mut MySqlConnection, id: Uuid) -> Result<BatchState> {
    // It was there a moment ago; only a clean-up takes it away, after 30 days.
    Ok(locked(connection, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// From one state to the next, and booked; `false` if it is not in that state.
async fn change(
    connection: &mut MySqlConnection,
    buffer: &str,
    id: Uuid,
    from: BatchState,
    to: BatchState,
) -> Result<bool> {
    let changed = sqlx::query(include_str!("sql/batch_change.sql"))
        .bind(to.as_str())
        .bind(id)
        .bind(from.as_str())
        .execute(&mut *connection)
        .await?;
    if changed.rows_affected() == 0 {
        return Ok(false);
    }
    let entries: i64 = sqlx::query_scalar(include_str!("sql/batch_entries.sql"))
        .bind(id)
        .fetch_one(&mut *connection)
        .await?;
    book(connection, buffer, to, entries).await?;
    Ok(true)
}

async fn book(
    connection: &mut MySqlConnection,
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
    connection: &mut MySqlConnection,
    batch: &Batch,
    target: &BatchTarget,
) -> Result<Option<String>> {
    let saved = match target {
        BatchTarget::Table(target) => {
            check_table(connection, target).await?;
            upsert(connection, batch, target).await
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

async fn upsert(
    connection: &mut MySqlConnection,
    batch: &Batch,
    target: &TableTarget,
) -> Result<(), sqlx::Error> {
    for entries in batch.entries().chunks(UPSERT_ROWS_MAX) {
        let rows = vec!["(?, ?)"; entries.len()].join(", ");
        let statement = target.sql(include_str!("sql/batch_upsert.sql")).replace("{rows}", &rows);
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for entry in entries {
            query = query.bind(&entry.field).bind(entry.count);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Without a unique key every flush would add rows instead of counts, and nobody would notice.
async fn check_table(connection: &mut MySqlConnection, target: &TableTarget) -> Result<()> {
    let (table, key, count) = (target.table(), target.key_column(), target.count_column());
    let (exists, has_key, has_count, unique): (i64, i64, i64, i64) =
        sqlx::query_as(include_str!("sql/batch_target.sql"))
            .bind(table)
            .bind(table)
            .bind(key)
            .bind(table)
            .bind(count)
            .bind(table)
            .bind(key)
            .fetch_one(connection)
            .await?;
    let missing = match (exists > 0, has_key > 0, has_count > 0, unique > 0) {
        (false, ..) => format!("the table `{table}` does not exist"),
        (_, false, ..) => format!("the table `{table}` has no column `{key}`"),
        (_, _, false, _) => format!("the table `{table}` has no column `{count}`"),
        (_, _, _, false) => format!(
            "the column `{key}` of the table `{table}` is neither its primary key nor alone in a \
             unique index, or only its beginning is (a prefix index); counts cannot be added to \
             its rows"
        ),
        (true, true, true, true) => return Ok(()),
    };
    Err(StoreError::Schema(missing))
}
