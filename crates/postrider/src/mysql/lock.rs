//! Named locks: rows of `postrider_locks`. `GET_LOCK` belongs to the session and, in a pool, would
//! outlive the transaction.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use super::error_number;
use crate::LockError;
use crate::lock::{check, failed, timed_out};

/// "You have an error in your SQL syntax": MySQL has no `SET STATEMENT`.
const SYNTAX_ERROR: u16 = 1064;
/// The transaction that writes the row holds the lock until it ends. One statement inserts or locks
/// the row: a separate read would leave gap locks, on which two concurrent inserts would deadlock.
const TAKE: &str = "INSERT INTO postrider_locks (name, used_on) VALUES (?, UTC_DATE())
    ON DUPLICATE KEY UPDATE used_on = UTC_DATE()";
/// "Lock wait timeout exceeded".
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Maximum of the server's `innodb_lock_wait_timeout`, in seconds.
const WAIT_S_MAX: u128 = 1_073_741_824;

/// Takes a named lock, and holds it until the caller's transaction ends. Taking it again in the
/// same transaction does nothing. The timeout is rounded up to whole seconds, at least one.
///
/// # Errors
/// [`LockError::Timeout`] if it was not free in time; the transaction stays open.
pub async fn lock(
    connection: &mut MySqlConnection,
    name: &str,
    timeout: Duration,
) -> Result<(), LockError> {
    check(name)?;
    let seconds = timeout.as_millis().div_ceil(1_000).clamp(1, WAIT_S_MAX);
    match take(connection, name, seconds).await {
        Ok(()) => Ok(()),
        Err(cause) if error_number(&cause) == Some(LOCK_WAIT_TIMEOUT) => {
            Err(timed_out(name, timeout))
        }
        Err(cause) => Err(failed(name, cause)),
    }
}

/// Writes the row. The time limit is for this statement only, because the session is the caller's.
async fn take(
    connection: &mut MySqlConnection,
    name: &str,
    seconds: u128,
) -> Result<(), sqlx::Error> {
    let statement = format!("SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR {TAKE}");
    match sqlx::query(AssertSqlSafe(statement)).bind(name).execute(&mut *connection).await {
        Err(error) if error_number(&error) == Some(SYNTAX_ERROR) => {}
        taken => return taken.map(drop),
    }
    let limit = format!(
        "SET @postrider_wait = @@SESSION.innodb_lock_wait_timeout,
            SESSION innodb_lock_wait_timeout = {seconds}"
    );
    sqlx::raw_sql(AssertSqlSafe(limit)).execute(&mut *connection).await?;
    let taken = sqlx::query(TAKE).bind(name).execute(&mut *connection).await;
    sqlx::raw_sql("SET SESSION innodb_lock_wait_timeout = @postrider_wait")
        .execute(connection)
        .await?;
    taken.map(drop)
}
