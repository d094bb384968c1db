//! Begins transactions that a caller cannot leave half begun.

use sqlx::{Connection, Database, Pool, SqlSafeStr, Transaction};

/// Begins a transaction. sqlx rolls back what its caller goes away from, but not while it begins:
/// the session returns to the pool with a transaction that nobody knows of, and what the next caller
/// writes on it is not committed. A task cannot be left; what it began in vain is rolled back.
///
/// A connection whose last transaction could not be rolled back is closed, also if the pool is the
/// application's.
pub(crate) async fn begin<DB: Database>(
    pool: &Pool<DB>,
    statement: &'static str,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move {
        let mut connection = pool.acquire().await?;
        while connection.is_in_transaction() {
            // What it says on leaving does not matter any more.
            drop(connection.close().await);
            connection = pool.acquire().await?;
        }
        Transaction::begin(connection, Some(statement.into_sql_str())).await
    });
    begun.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
