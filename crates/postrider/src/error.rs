//! Errors of appending, and what a database error means for a caller.

use crate::event::limits;

/// The reason why an event cannot be appended at all. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        /// Unit of the length: characters or bytes.
        unit: &'static str,
    },
    /// PostgreSQL text cannot hold NUL, so all stores refuse it.
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

/// The reason why `append` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The event itself is invalid; the transaction is untouched.
    #[error("invalid event: {0}")]
    Invalid(#[from] InvalidEvent),
    /// The database refused the event; whether the transaction can continue depends on the
    /// database.
    #[error("append failed: {0}")]
    Database(#[from] sqlx::Error),
}

/// What a database error means for a caller who may repeat the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transience {
    /// The database cannot be reached; repeat when it is back.
    Unavailable,
    /// Deadlock or lock wait; repeat.
    Busy,
    /// Repeating is useless.
    Lasting,
}

/// Classifies an error of any of the databases.
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

/// Classifies by error code. The codes of the three databases do not overlap: PostgreSQL and
/// MariaDB report SQLSTATE (five characters), SQLite its own numbers. MariaDB's SQLSTATE is often
/// the catch-all HY000, so its own numbers are checked first.
fn by_code(cause: &dyn sqlx::error::DatabaseError) -> Transience {
    #[cfg(feature = "mysql")]
    if let Some(error) = cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        match error.number() {
            // Too many connections in total or of this user; server shutdown; connection killed
            // (MariaDB, MySQL); ended because it was silent (MySQL).
            1040 | 1203 | 1053 | 1927 | 3169 | 4031 => return Transience::Unavailable,
            // Lock wait, deadlock, a change between snapshot and lock (MariaDB 11), and a commit
            // that another server of the group was faster with (MySQL).
            1205 | 1213 | 1020 | 3101 => return Transience::Busy,
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
        // 15 PROTOCOL, which is a lost race for the WAL), the rest is more specific: 517
        // BUSY_SNAPSHOT.
        Some(code) if code.len() < 5 => match code.parse::<i32>().map(|code| code & 0xff) {
            Ok(5 | 6 | 15) => Transience::Busy,
            // The disk fails or is full, or the file is gone: the written values are not the cause.
            Ok(10 | 13 | 14) => Transience::Unavailable,
            _ => Transience::Lasting,
        },
        _ => Transience::Lasting,
    }
}
