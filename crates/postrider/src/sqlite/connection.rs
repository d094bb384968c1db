//! The options that an application's own connections should have.

use std::str::FromStr;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

/// Timeout of waiting for another process's write transaction.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Size in bytes that the WAL keeps when it starts over. Without a limit it would stay as large as
/// a long reader made it.
pub const WAL_BYTES_KEPT: &str = "16777216";

/// Returns the recommended options for an application's connections to a file that has outboxes:
/// WAL, a busy timeout of 5 seconds, and commits that survive a power cut.
///
/// # Errors
/// If the URL is malformed.
pub fn connect_options(url: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
    Ok(SqliteConnectOptions::from_str(url)?
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(SqliteJournalMode::Wal)
        // An event that was committed must survive a power cut, like the business change that was
        // committed with it. NORMAL does not sync the WAL at commit and can lose the last
        // transactions.
        .synchronous(SqliteSynchronous::Full)
        .pragma("journal_size_limit", WAL_BYTES_KEPT))
}
