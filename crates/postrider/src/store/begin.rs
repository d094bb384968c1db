//! Begins transactions that a caller cannot leave half begun, and ends them.

use sqlx::{Connection, Database, Pool, SqlSafeStr, Transaction};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::Result;

/// Begins a transaction. sqlx rolls back what its caller goes away from, but not while it begins:
/// the session returns to the pool with a transaction that nobody knows of, and what the next caller
/// writes on it is not committed. A task cannot be left; what it began in vain is rolled back.
///
/// A connection whose last transaction could not be rolled back is closed, also if the pool is the
/// application's.
pub(crate) async fn begin<DB: Database>(
    pool: &Pool<DB>,
    statement: &'static str,
) -> std::result::Result<Transaction<'static, DB>, sqlx::Error> {
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

/// Commits a transaction that succeeded, and rolls back one that failed.
///
/// The rollback is awaited, so the locks are gone when the caller learns of the failure. A dropped
/// transaction is rolled back later, and a server reports an error before it ends a statement of
/// its own: the caller's next statement would find the rows locked and skip them.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) async fn end<DB: Database, T>(
    tx: Transaction<'static, DB>,
    outcome: Result<T>,
) -> Result<T> {
    match outcome {
        Ok(done) => tx.commit().await.map(|()| done).map_err(Into::into),
        Err(error) => {
            // The session closes if it cannot roll back; the first error is the cause.
            drop(tx.rollback().await);
            Err(error)
        }
    }
}
