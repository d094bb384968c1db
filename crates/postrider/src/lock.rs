//! Named locks that end with the transaction. `lock` has the same name and shape in each store's
//! module.

use std::time::Duration;

use crate::{Transience, transience};

/// Maximum number of characters in a lock's name.
const NAME_CHARS_MAX: usize = 200;

/// The reason why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The name is empty, too long, or contains a NUL; nothing was sent.
    #[error("a lock cannot be named `{0}`: use 1 to 200 characters, and no NUL")]
    Name(String),
    /// Another transaction holds the lock for longer than the caller wanted to wait. Roll back, and
    /// tell the caller to try again.
    #[error(
        "lock `{name}` was not free within {} ms: another transaction holds it. Roll back and try \
         again; if that happens often, make the transactions that take it shorter",
        .waited.as_millis()
    )]
    Timeout {
        /// Name of the lock.
        name: String,
        /// How long the caller waited.
        waited: Duration,
    },
    /// SQLite: the transaction read before it tried to write, and another program has written
    /// since.
    #[error(
        "lock `{name}` cannot be had in this transaction: it read before it wrote, and another \
         program wrote meanwhile. Begin it with BEGIN IMMEDIATE"
    )]
    ReadFirst {
        /// Name of the lock.
        name: String,
    },
    /// The database refused for another reason.
    #[error("lock `{name}`: {cause}")]
    Database {
        /// Name of the lock.
        name: String,
        /// The error of the database.
        #[source]
        cause: sqlx::Error,
    },
}

impl LockError {
    /// Returns whether the same transaction may succeed when it is repeated.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::ReadFirst { .. } => true,
            Self::Database { cause, .. } => transience(cause) != Transience::Lasting,
            Self::Name(_) => false,
        }
    }
}

pub(crate) fn check(name: &str) -> Result<(), LockError> {
    let fits = !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.contains('\0');
    match fits {
        true => Ok(()),
        false => {
            let shown = name.chars().filter(|c| !c.is_control()).take(40).collect();
            Err(LockError::Name(shown))
        }
    }
}

/// Wraps an error of the database.
pub(crate) fn failed(name: &str, cause: sqlx::Error) -> LockError {
    LockError::Database { name: name.to_owned(), cause }
}

pub(crate) fn timed_out(name: &str, waited: Duration) -> LockError {
    LockError::Timeout { name: name.to_owned(), waited }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_away_makes_a_lock_worth_another_try() {
        let away = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(failed("guest:42", away).is_transient());
        assert!(failed("guest:42", sqlx::Error::PoolTimedOut).is_transient());
        assert!(!failed("guest:42", sqlx::Error::RowNotFound).is_transient());
        assert!(timed_out("guest:42", Duration::from_secs(1)).is_transient());
        assert!(!check("").unwrap_err().is_transient());
    }
}
