//! Named locks: transaction-level advisory locks.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use crate::LockError;
use crate::lock::{check, failed, timed_out};

/// "Lock not available": the wait was longer than `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Takes a named lock, and holds it until the caller's transaction ends. Taking it again in the
/// same transaction does nothing.
///
/// The name is hashed to 64 bits. Two names with the same hash are one lock: their transactions
/// then wait for each other without need, which is safe. Among a million names that happens with a
/// probability of about 1 in 37 million.
///
/// # Errors
/// [`LockError::Timeout`] if it was not free in time. PostgreSQL only accepts a rollback then.
pub async fn lock(
    connection: &mut PgConnection,
    name: &str,
    timeout: Duration,
) -> Result<(), LockError> {
    check(name)?;
    let key = key(name);
    let free: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(key)
        .fetch_one(&mut *connection)
        .await
        .map_err(|cause| failed(name, cause))?;
    match free {
        true => Ok(()),
        false => wait(connection, name, key, timeout).await,
    }
}

/// Waits for the lock, and restores the caller's own `lock_timeout` afterwards, because the setting
/// lasts for the rest of the transaction.
async fn wait(
    connection: &mut PgConnection,
    name: &str,
    key: i64,
    timeout: Duration,
) -> Result<(), LockError> {
    // 0 would mean "forever".
    let wanted = format!("{}ms", timeout.as_millis().clamp(1, i32::MAX as u128));
    let before: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .fetch_one(&mut *connection)
        .await
        .map_err(|cause| failed(name, cause))?;
    set_timeout(connection, &wanted).await.map_err(|cause| failed(name, cause))?;
    let had =
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(key).execute(&mut *connection).await;
    match had {
        Ok(_) => set_timeout(connection, &before).await.map_err(|cause| failed(name, cause)),
        Err(sqlx::Error::Database(cause))
            if cause.code().as_deref() == Some(LOCK_NOT_AVAILABLE) =>
        {
            Err(timed_out(name, timeout))
        }
        Err(cause) => Err(failed(name, cause)),
    }
}

async fn set_timeout(connection: &mut PgConnection, value: &str) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT set_config('lock_timeout', $1, true)")
        .bind(value)
        .execute(connection)
        .await
        .map(|_| ())
}

/// The prefix separates names from advisory locks that a program computes in the same way.
fn key(name: &str) -> i64 {
    let hash = Sha256::digest(format!("postrider lock {name}"));
    i64::from_be_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
}
