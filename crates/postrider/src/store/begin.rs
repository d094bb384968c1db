//! Transactions that stay open for nobody.

use sqlx::{Database, Pool, Transaction};

/// Begins a transaction. sqlx rolls back what its caller goes away from, but not while it begins: the session
/// returns to the pool with a transaction that nobody knows of, and what the next caller writes on it is not
/// committed. A task cannot be left; what it began in vain is rolled back.
pub(crate) async fn begin<DB: Database>(
    pool: &Pool<DB>,
    statement: &'static str,
) -> Result<Transaction<'static, DB>, sqlx::Error> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin_with(statement).await }).await;
    begun.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
