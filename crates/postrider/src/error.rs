//! Errors, sorted by what the caller can do about them.

use crate::event::limits;

/// Why an event cannot be appended at all. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// A required field is empty.
    #[error("{field} is empty; it is required")]
    Empty {
        /// Column name.
        field: &'static str,
    },
    /// A field is longer than its column.
    #[error("{field} has {length} {unit}; at most {max} are allowed")]
    TooLong {
        /// Column name.
        field: &'static str,
        /// Length found.
        length: usize,
        /// Length allowed.
        max: usize,
        /// What is counted: characters or bytes.
        unit: &'static str,
    },
    /// PostgreSQL text cannot hold NUL, so no store takes it.
    #[error(
        "{field} contains a NUL character; remove it or encode the payload (for example base64)"
    )]
    Nul {
        /// Column name.
        field: &'static str,
    },
    /// `max_retries` is outside of its range.
    #[error("max_retries is {0}; allowed is 1 to {max}", max = limits::MAX_RETRIES_MAX)]
    MaxRetries(i32),
}

/// Why `append` failed.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The event itself is not acceptable; the transaction is untouched.
    #[error("invalid event: {0}")]
    Invalid(#[from] InvalidEvent),
    /// The database refused; whether the transaction can go on depends on the database.
    #[error("append failed: {0}")]
    Database(#[from] sqlx::Error),
}

/// Why a call on a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another relay declared this one dead. Everything it held is no longer its own.
    #[error("the relay's lease was lost: another relay took over")]
    LeaseLost,
    /// The database cannot be reached right now; the call may be repeated.
    #[error("the database cannot be reached: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// Lock wait or deadlock; the call may be repeated, with fewer rows.
    #[error("the database is busy (deadlock or lock wait): {0}")]
    Busy(#[source] sqlx::Error),
    /// SQLite: the file cannot be used as it is.
    #[error("{path}: {cause}; {cure}")]
    File {
        /// Which file.
        path: String,
        /// What SQLite or the operating system said.
        #[source]
        cause: sqlx::Error,
        /// What to do about it.
        cure: &'static str,
        /// Whether repeating the call is useless until somebody did so.
        lasting: bool,
    },
    /// Tables are missing or of another version.
    #[error("{0}")]
    Schema(String),
    /// An operator's action does not apply to the entry as it is.
    #[error("{0}")]
    Refused(String),
    /// The URL names no store that this build knows.
    #[error("{0}")]
    Url(String),
    /// The outbox is not the one that the caller has read so far: its ids went back, or another
    /// server answers. It was truncated or restored, or a fail-over lost the last commits. An id that
    /// the caller remembers may be another event by now, so it forgets everything it has read and
    /// starts over; the [`Cursor`](crate::store::Cursor) of the call starts from nothing already.
    #[error("the outbox is not the one that was read before: {0}")]
    HistoryChanged(String),
    /// Anything else the database said.
    #[error("database error: {0}")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether repeating the call unchanged may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Busy(_) | Self::File { lasting: false, .. })
    }

    /// Whether what was written may be the cause: a value that does not fit, a rule or a trigger
    /// that refuses it. A table, column or right that is missing, a full disk, or a server that
    /// only reads refuses every other row as well.
    pub fn may_be_the_rows_fault(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(cause)) => refuses_the_value(&**cause),
            Self::Database(sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_)) => true,
            _ => false,
        }
    }
}

/// By the classes of SQLSTATE (22 data, 23 rules, 54 limits, P0 and 45 what a trigger raises), and
/// the numbers of MariaDB and SQLite that have no class of their own.
fn refuses_the_value(cause: &dyn sqlx::error::DatabaseError) -> bool {
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // Row too large, packet too large, incorrect value.
        if matches!(error.number(), 1118 | 1153 | 1366) {
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
            Transience::Lasting => Self::Database(error),
        }
    }
}

/// What an error of the database means for whoever repeats a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transience {
    /// The database cannot be reached; repeat when it is back.
    Unavailable,
    /// Deadlock or lock wait; repeat.
    Busy,
    /// Repeating is useless.
    Lasting,
}

/// Sorts an error of any of the databases.
pub fn transience(error: &sqlx::Error) -> Transience {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => Transience::Unavailable,
        sqlx::Error::Database(cause) => by_code(&**cause),
        _ => Transience::Lasting,
    }
}

/// The codes of the three databases do not overlap: PostgreSQL and MariaDB report SQLSTATE
/// (five characters), SQLite its own numbers. MariaDB's SQLSTATE is often the catch-all HY000, so
/// its own numbers come first.
fn by_code(cause: &dyn sqlx::error::DatabaseError) -> Transience {
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        match error.number() {
            // Too many connections, of all or of this user; shutting down; connection killed.
            1040 | 1203 | 1053 | 1927 => return Transience::Unavailable,
            // Lock wait, deadlock, and a change between snapshot and lock (MariaDB 11).
            1205 | 1213 | 1020 => return Transience::Busy,
            _ => {}
        }
    }
    match cause.code().as_deref() {
        // PostgreSQL: connection class, shutting down, starting up, out of connections.
        Some(code) if code.starts_with("08") || code.starts_with("57P") => Transience::Unavailable,
        Some("53300") => Transience::Unavailable,
        // Serialization failure, deadlock (both PostgreSQL; 40001 is MariaDB's deadlock too),
        // lock not available (PostgreSQL lock_timeout).
        Some("40001" | "40P01" | "55P03") => Transience::Busy,
        // SQLite's numbers are shorter than a SQLSTATE. The low byte is the kind (5 BUSY, 6 LOCKED,
        // 15 PROTOCOL, which is a lost race for the WAL), the rest tells more: 517 BUSY_SNAPSHOT.
        Some(code) if code.len() < 5 => match code.parse::<i32>().map(|code| code & 0xff) {
            Ok(5 | 6 | 15) => Transience::Busy,
            // The disk fails or is full, the file is gone: nothing that is written is at fault.
            Ok(10 | 13 | 14) => Transience::Unavailable,
            _ => Transience::Lasting,
        },
        _ => Transience::Lasting,
    }
}

/// Whether the database undid the whole transaction because of another one: deadlock (40P01;
/// MariaDB's is 40001), serialization failure, or MariaDB's change between snapshot and lock (1020).
pub(crate) fn lost_to_another(error: &sqlx::Error) -> bool {
    let Some(cause) = error.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return matches!(error.number(), 1213 | 1020);
    }
    matches!(cause.code().as_deref(), Some("40001" | "40P01"))
}

/// Whether the database refused a statement for the values in it: a constraint, a type, or a limit of
/// the server (such as the depth of JSON). Nothing else is wrong then, and nothing was written.
pub(crate) fn refuses_values(error: &sqlx::Error) -> bool {
    let Some(cause) = error.as_database_error() else { return false };
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
        // A text that the column's character set does not have; a date that does not exist.
        && matches!(error.number(), 1366 | 1292)
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
