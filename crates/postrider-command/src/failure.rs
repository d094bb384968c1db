//! Why a command failed, and the exit code for it.

use postrider::{AppendError, InvalidOutbox, buffer::BufferError};
use postrider_relay::{RelayError, SinkError};
use postrider_store::StoreError;

/// The reason why a command failed; the message names the cause and the fix.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(Box<dyn std::error::Error + Send + Sync>),
    /// The store cannot be opened.
    #[error(
        "cannot use the store {url}: {error}\n\
         check `url` in [store] (or --store, POSTRIDER_STORE__URL), and that the database runs and \
         lets this user in"
    )]
    Connect {
        /// The store, without its password.
        url: String,
        /// What it answered.
        error: StoreError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tables are missing, or of another version.
    #[error("{0}")]
    Schema(String),
    /// The relay does not start.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// The sink cannot be used.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The buffer failed.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The event was not appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The address is in use, or not one of this machine.
    #[error(
        "cannot listen on {address}: {error}\nchange `listen` in [server], or stop what uses it"
    )]
    Listen {
        /// Where it was to listen.
        address: std::net::SocketAddr,
        /// What the system answered.
        error: std::io::Error,
    },
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The event, dead letter or job does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Some of the work was not done.
    #[error("{0}")]
    Partly(String),
    /// Events are missing, or too many.
    #[error("the ledger does not balance: {0}")]
    Unbalanced(String),
    /// Standard output refused.
    #[error("cannot write the output: {0}")]
    Output(std::io::Error),
    /// A signal ended the command.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// Exit code for a wrong command line or configuration.
    pub const USAGE: u8 = 2;

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => Self::USAGE,
            Self::Unbalanced(_) => 3,
            // The exit code that shells use for a program that Ctrl-C ended.
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Returns a fix that the failing call could not know.
    pub fn hint(&self) -> Option<&'static str> {
        if matches!(self, Self::Store(StoreError::File { .. })) {
            return None;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(sqlx::Error::Database(error)) = error.downcast_ref() {
                return fix(error.code().as_deref(), error.message());
            }
            cause = error.source();
        }
        None
    }
}

impl From<InvalidOutbox> for Failure {
    fn from(error: InvalidOutbox) -> Self {
        Self::Config(Box::new(error))
    }
}

/// Suggests a fix for a database error. PostgreSQL has one code for missing privileges; MariaDB's
/// codes depend on what is denied.
fn fix(code: Option<&str>, message: &str) -> Option<&'static str> {
    if code == Some("42501") || message.contains("command denied") {
        return Some(
            "give this user the rights that `postrider migrate --print` ends with, or let the \
             owner of the tables run this",
        );
    }
    if message.contains("log_bin_trust_function_creators") {
        return Some(
            "let an administrator set log_bin_trust_function_creators = 1 in the server, or \
             migrate as a user with SUPER: the server has a binary log, and triggers are logged \
             there",
        );
    }
    if ["--read-only", "--super-read-only", "read only mode", "READ ONLY transaction"]
        .iter()
        .any(|mode| message.contains(mode))
        || code == Some("25006")
    {
        return Some("this server only reads, such as a replica: use the URL of the primary");
    }
    // A table does not exist: PostgreSQL, MariaDB, SQLite.
    if matches!(code, Some("42P01" | "42S02")) || message.contains("no such table") {
        return Some("run `postrider migrate`: it makes missing tables again");
    }
    // SQLITE_READONLY, from an append; the store's own errors already name the file and the fix.
    (code == Some("8") && message.contains("readonly")).then_some(
        "give this program the right to write the file in [store] and its folder (SQLite keeps \
         `-wal` and `-shm` files beside it)",
    )
}

#[cfg(test)]
mod tests {
    use super::fix;

    #[test]
    fn a_refusal_of_the_server_comes_with_a_fix() {
        for (code, message, says) in [
            ("42000", "TRIGGER command denied to user 'app'@'%' for table 'orders'", "rights"),
            (
                "HY000",
                "You do not have the SUPER privilege and binary logging is enabled (you *might* \
                 want to use the less safe log_bin_trust_function_creators variable)",
                "log_bin_trust_function_creators = 1",
            ),
            (
                "HY000",
                "The MySQL server is running with the --super-read-only option so it cannot \
                 execute this statement",
                "primary",
            ),
            ("25006", "cannot execute INSERT in a read-only transaction", "primary"),
            ("42S02", "Table 'app.orders_outbox' doesn't exist", "migrate"),
        ] {
            let found = fix(Some(code), message).unwrap_or_default();
            assert!(found.contains(says), "{message}: {found}");
        }
        assert_eq!(fix(Some("42000"), "syntax"), None);
    }
}
