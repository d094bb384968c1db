//! Named locks: SQLite has one writer at a time, so the write lock serves as every named lock.

use std::time::Duration;

use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::LockError;
use crate::lock::{check, failed, timed_out};

/// Another connection is writing.
const BUSY: &str = "5";
/// This transaction has read before, and another connection has written since.
const BUSY_SNAPSHOT: &str = "517";
/// Takes the write lock without changing anything.
const WRITE_NOTHING: &str = "UPDATE postrider_schema SET version = version WHERE 0";

/// Takes a named lock, and holds it until the caller's transaction ends. A transaction that was
/// begun with `BEGIN IMMEDIATE` has it already; any other takes the file's write lock here.
///
/// # Errors
/// [`LockError::Timeout`] if other programs held the write lock all the time;
/// [`LockError::ReadFirst`] if this transaction has read before. The transaction stays open, but
/// can only read.
pub async fn lock(
    connection: &mut SqliteConnection,
    name: &str,
    timeout: Duration,
) -> Result<(), LockError> {
    check(name)?;
    let fail = |cause| failed(name, cause);
    let before: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
        .fetch_one(&mut *connection)
        .await
        .map_err(fail)?;
    let wanted = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).min(i64::from(i32::MAX));
    set_timeout(connection, wanted).await.map_err(fail)?;
    let had = sqlx::raw_sql(WRITE_NOTHING).execute(&mut *connection).await;
    // Restored on every path, because the connection is the caller's.
    set_timeout(connection, before).await.map_err(fail)?;
    let Err(cause) = had else { return Ok(()) };
    match cause.as_database_error().and_then(|error| error.code()).as_deref() {
        Some(BUSY) => Err(timed_out(name, timeout)),
        Some(BUSY_SNAPSHOT) => Err(LockError::ReadFirst { name: name.to_owned() }),
        _ => Err(fail(cause)),
    }
}

async fn set_timeout(connection: &mut SqliteConnection, millis: i64) -> Result<(), sqlx::Error> {
    let statement = format!("PRAGMA busy_timeout = {millis}");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(|_| ())
}
