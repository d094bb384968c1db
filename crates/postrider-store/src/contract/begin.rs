//! Begins and ends transactions. A caller that is dropped cannot leave one half begun.

use sqlx::{Connection, Database, Pool, SqlSafeStr, Transaction};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::Result;

/// Begins a transaction. sqlx rolls back a transaction whose future is dropped, but not while it is
/// being begun: the session then returns to the pool with an open transaction, and the writes of
/// the next caller are not committed. A task cannot be dropped halfway; a transaction that it
/// begins for a caller that is gone is rolled back.
///
/// A connection whose last transaction could not be rolled back is closed, even if the pool is the
/// application's.
pub(crate) async fn begin<DB: Database>(
    pool: &Pool<DB>,
    statement: &'static str,
) -> std::result::Result<Transaction<'static, DB>, sqlx::Error> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move {
        let mut connection = pool.acquire().await?;
        while connection.is_in_transaction() {
            // An error while closing no longer matters.
            drop(connection.close().await);
            connection = pool.acquire().await?;
        }
        Transaction::begin(connection, Some(statement.into_sql_str())).await
    });
    begun.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Commits a transaction that succeeded, and rolls back one that failed.
///
/// The rollback is awaited, so the locks are released when the caller learns of the failure. A
/// dropped transaction is rolled back later: the caller's next statement would find the rows locked
/// and skip them. An error alone does not release the locks, because the server reports it before
/// the transaction ends.
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
