//! Errors of a store, grouped by what the caller can do about them.

use postrider::{Transience, transience};

/// The reason why a call on a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another relay declared this one dead. This relay no longer owns what it held.
    #[error("the relay's lease was lost: another relay took over")]
    LeaseLost,
    /// The database cannot be reached right now; the call may be repeated.
    #[error("the database cannot be reached: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// Lock wait or deadlock; the call may be repeated, with fewer rows.
    #[error("the database is busy (deadlock or lock wait): {0}")]
    Busy(#[source] sqlx::Error),
    /// SQLite: the file cannot be used as it is.
    #[error("{path}: {cause}; {fix}")]
    File {
        /// Path of the file.
        path: String,
        /// The error of SQLite or of the operating system.
        #[source]
        cause: sqlx::Error,
        /// What the operator can do about it.
        fix: &'static str,
        /// Whether repeating the call is useless until an operator has fixed the cause.
        lasting: bool,
    },
    /// Tables are missing or of another version.
    #[error("{0}")]
    Schema(String),
    /// An operator's action does not apply to the entry in its current state.
    #[error("{0}")]
    Refused(String),
    /// The URL does not name a store that this build supports.
    #[error("{0}")]
    Url(String),
    /// The outbox is not the one that the caller has read so far: its ids went back, or another
    /// server replied. It was truncated or restored, or a fail-over lost the last commits. An id
    /// that the caller remembers may belong to another event by now, so the caller forgets
    /// everything it has read and starts over; the [`Cursor`](crate::Cursor) of the call has
    /// been reset already.
    #[error("the outbox is not the one that was read before: {0}")]
    HistoryChanged(String),
    /// Any other error of the database.
    #[error("database error: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Returns whether repeating the call unchanged may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Busy(_) | Self::File { lasting: false, .. })
    }

    /// Returns whether the written values may be the cause: a value that does not fit, or a
    /// constraint or trigger that refuses it. A missing table, column or grant, a full disk, or a
    /// read-only server refuses every other row as well.
    pub fn may_be_the_rows_fault(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(cause)) => refuses_the_value(&**cause),
            Self::Database(sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_)) => true,
            _ => false,
        }
    }
}

/// Decides by the classes of SQLSTATE (22 data, 23 constraints, 54 limits, P0 and 45 raised by a
/// trigger), and by the numbers of MariaDB and SQLite that have no class of their own.
fn refuses_the_value(cause: &dyn sqlx::error::DatabaseError) -> bool {
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // Row too large, packet too large, incorrect value, a check (MySQL).
        if matches!(error.number(), 1118 | 1153 | 1366 | 3819) {
            return true;
        }
    }
    match cause.code().as_deref() {
        // The low byte of SQLite's numbers: 18 TOOBIG, 19 CONSTRAINT, 20 MISMATCH.
        Some(code) if code.len() < 5 => {
            code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 18..=20))
        }
        Some(code) => ["22", "23", "45", "54", "P0"].iter().any(|class| code.starts_with(class)),
        None => false,
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match transience(&error) {
            Transience::Unavailable => Self::Unavailable(error),
            Transience::Busy => Self::Busy(error),
            _ => Self::Database(error),
        }
    }
}

/// Returns whether the database rolled back the whole transaction because of another one: deadlock
/// (40P01; MariaDB's is 40001), serialization failure, MariaDB's change between snapshot and lock
/// (1020), or a conflict in a group of MySQL servers (3101).
pub(crate) fn lost_to_another(error: &sqlx::Error) -> bool {
    let Some(cause) = error.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return matches!(error.number(), 1213 | 1020 | 3101);
    }
    matches!(cause.code().as_deref(), Some("40001" | "40P01"))
}

/// Returns whether the database refused a statement because of its values: a constraint, a type, or
/// a limit of the server (such as the depth of JSON). Nothing was written then.
pub(crate) fn refuses_values(error: &sqlx::Error) -> bool {
    let Some(cause) = error.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        // A text that the column's character set cannot hold; a date that does not exist; a check
        // (MySQL).
        && matches!(error.number(), 1366 | 1292 | 3819)
    {
        return true;
    }
    match cause.code().as_deref() {
        // SQLite: too big, a constraint, another type.
        Some(code) if code.len() < 5 => {
            matches!(code.parse::<i32>().map(|code| code & 0xff), Ok(18..=20))
        }
        // Data exception, integrity constraint violation, limit of the program.
        Some(code) => ["22", "23", "54"].iter().any(|class| code.starts_with(class)),
        None => false,
    }
}
