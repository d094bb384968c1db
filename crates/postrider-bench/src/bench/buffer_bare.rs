//! Counting by a client without Postrider: one upsert per batch, from memory, with no buffer in
//! between and nothing that prevents a batch from counting twice.

use postrider_command::Failure;
use postrider_store::{Appender, StoreError};
use sqlx::{AssertSqlSafe, QueryBuilder};

use super::bare::Bare;

/// Maximum number of rows per statement, if values are listed one by one.
const LISTED_ROWS_MAX: usize = 1_000;

/// Creates a table of keys and counts.
pub(super) async fn create(bare: &Bare, table: &str) -> Result<(), Failure> {
    run(bare, format!("CREATE TABLE {table} (post varchar(40) PRIMARY KEY, total bigint NOT NULL)"))
        .await
}

/// Removes the store's records of a buffer.
pub(super) async fn forget(bare: &Bare, buffer: &str) -> Result<(), Failure> {
    for table in ["postrider_buffer_batches", "postrider_buffer_ledger"] {
        run(bare, format!("DELETE FROM {table} WHERE buffer = '{buffer}'")).await?;
    }
    Ok(())
}

/// Returns the sum of all counts.
pub(super) async fn total(bare: &Bare, table: &str) -> Result<i64, Failure> {
    let kind = if matches!(bare.appender(), Appender::Mysql(_)) { "SIGNED" } else { "bigint" };
    let query = format!("SELECT CAST(COALESCE(SUM(total), 0) AS {kind}) FROM {table}");
    let query = AssertSqlSafe(query);
    let total: Result<i64, _> = match bare.appender() {
        Appender::Postgres(pool) => sqlx::query_scalar(query).fetch_one(pool).await,
        Appender::Mysql(pool) => sqlx::query_scalar(query).fetch_one(pool).await,
        Appender::Sqlite(pool) => sqlx::query_scalar(query).fetch_one(pool).await,
    };
    Ok(total.map_err(StoreError::from)?)
}

/// Adds the counts, one transaction per batch.
pub(super) async fn upsert(
    bare: &Bare,
    table: &str,
    entries: &[(String, i64)],
    batch: usize,
) -> Result<(), Failure> {
    for batch in entries.chunks(batch) {
        // Sorted, as a buffer does, so that concurrent batches do not deadlock.
        let mut batch = batch.to_vec();
        batch.sort_unstable();
        match bare.appender() {
            Appender::Postgres(pool) => {
                let statement = format!(
                    "INSERT INTO {table} AS target SELECT * FROM unnest($1::text[], $2::bigint[]) \
                     ON CONFLICT (post) DO UPDATE SET total = target.total + excluded.total"
                );
                sqlx::query(AssertSqlSafe(statement))
                    .bind(batch.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>())
                    .bind(batch.iter().map(|(_, count)| *count).collect::<Vec<_>>())
                    .execute(pool)
                    .await
                    .map_err(StoreError::from)?;
            }
            Appender::Mysql(pool) => {
                let mut tx = pool.begin().await.map_err(StoreError::from)?;
                for rows in batch.chunks(LISTED_ROWS_MAX) {
                    let mut query = QueryBuilder::new(format!("INSERT INTO {table} "));
                    query.push_values(rows, |mut row, (field, count)| {
                        row.push_bind(field).push_bind(count);
                    });
                    query.push(" ON DUPLICATE KEY UPDATE total = total + VALUES(total)");
                    query.build().execute(&mut *tx).await.map_err(StoreError::from)?;
                }
                tx.commit().await.map_err(StoreError::from)?;
            }
            Appender::Sqlite(pool) => {
                let entries = serde_json::to_string(&batch)
                    .map_err(|error| Failure::Output(std::io::Error::other(error)))?;
                let statement = format!(
                    "INSERT INTO {table} SELECT value ->> 0, value ->> 1 FROM json_each($1) \
                     WHERE true ON CONFLICT (post) DO UPDATE SET total = total + excluded.total"
                );
                sqlx::query(AssertSqlSafe(statement))
                    .bind(entries)
                    .execute(pool)
                    .await
                    .map_err(StoreError::from)?;
            }
        }
    }
    Ok(())
}

/// Runs a statement whose names all come from this bench.
async fn run(bare: &Bare, statement: String) -> Result<(), Failure> {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    match bare.appender() {
        Appender::Postgres(pool) => statement.execute(pool).await.map(drop),
        Appender::Mysql(pool) => statement.execute(pool).await.map(drop),
        Appender::Sqlite(pool) => statement.execute(pool).await.map(drop),
    }
    .map_err(|error| StoreError::from(error).into())
}
