//! The commands.

pub(crate) mod adopt;
pub(crate) mod alert;
pub(crate) mod append;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod buffer;
pub(crate) mod buffer_ledger;
pub(crate) mod chaos;
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod inbox;
pub(crate) mod jobs;
pub(crate) mod migrate;
pub(crate) mod outbox;
pub(crate) mod pauses;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod starting;
pub(crate) mod stats;
pub(crate) mod token;

use std::path::PathBuf;
use std::sync::Arc;

use postrider::{AppendError, Outbox, buffer::BufferError};
use postrider_relay::{RelayError, SinkError};
use postrider_store::{ConnectOptions, Database, SchemaState, StoreError};

use crate::config::{self, Built, Config, ConfigError, without_password};

/// The reason why a command failed; the message names the cause and the fix.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "cannot use the store {url}: {error}\n\
         check `url` in [store] (or --store, POSTRIDER_STORE__URL), and that the database runs and \
         lets this user in"
    )]
    Connect { url: String, error: StoreError },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Schema(String),
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(
        "cannot listen on {address}: {error}\nchange `listen` in [server], or stop what uses it"
    )]
    Listen { address: std::net::SocketAddr, error: std::io::Error },
    #[error("{0}")]
    Usage(String),
    /// The event, dead letter or job does not exist.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Partly(String),
    #[error("the ledger does not balance: {0}")]
    Unbalanced(String),
    #[error("cannot write the output: {0}")]
    Output(std::io::Error),
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    /// Exit code for a wrong command line or configuration.
    pub(crate) const USAGE: u8 = 2;

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => Self::USAGE,
            Self::Unbalanced(_) => 3,
            // The exit code that shells use for a program that Ctrl-C ended.
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Returns a fix that the failing call could not know.
    pub(crate) fn hint(&self) -> Option<&'static str> {
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
            "let an administrator set log_bin_trust_function_creators = 1 in the server, or migrate \
             as a user with SUPER: the server has a binary log, and triggers are logged there",
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

/// Options that all commands share.
pub(crate) struct Context {
    pub(crate) config: Option<PathBuf>,
    pub(crate) store: Option<String>,
}

impl Context {
    pub(crate) fn load(&self) -> Result<Config, Failure> {
        Ok(config::load(self.config.as_deref(), self.store.as_deref())?)
    }

    /// Opens configuration, store and outboxes, for commands that need existing tables.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let config = self.load()?;
        let (url, connections_max) =
            (config.store.url.expose().to_owned(), config.store.connections_max);
        // Errors in the configuration are reported first, whether the database answers or not.
        let built = config.build()?;
        let store = connect(&url, connections_max, false).await?;
        let outboxes: Vec<Outbox> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
        require_schema(store.as_ref(), &outboxes).await?;
        Ok(Opened { url, store, built })
    }
}

/// A store that is ready for use.
pub(crate) struct Opened {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn Database>,
    pub(crate) built: Built,
}

impl Opened {
    /// Returns the outbox with this name; without a name, the only one.
    pub(crate) fn outbox(&self, name: Option<&str>) -> Result<Outbox, Failure> {
        let mut found = self.outboxes(name)?;
        match found.len() {
            1 => Ok(found.remove(0)),
            _ => {
                let names = found.iter().map(Outbox::name).collect::<Vec<_>>().join(", ");
                Err(Failure::Usage(format!("name one of the outboxes with --outbox: {names}")))
            }
        }
    }

    /// Returns all outboxes, or the one with this name.
    pub(crate) fn outboxes(&self, name: Option<&str>) -> Result<Vec<Outbox>, Failure> {
        let all: Vec<Outbox> = self.built.outboxes.iter().map(|o| o.outbox.clone()).collect();
        let Some(name) = name else { return Ok(all) };
        let names = all.iter().map(Outbox::name).collect::<Vec<_>>().join(", ");
        all.into_iter().find(|outbox| outbox.name() == name).map(|found| vec![found]).ok_or_else(
            || {
                Failure::Usage(format!(
                    "no outbox `{name}` is configured; there is: {names} (name one with --outbox)"
                ))
            },
        )
    }
}

/// Connects. An error names the store without its password.
pub(crate) async fn connect(
    url: &str,
    connections_max: u32,
    create: bool,
) -> Result<Arc<dyn Database>, Failure> {
    let options = ConnectOptions { connections_max, create };
    postrider_store::connect(url, &options)
        .await
        .map_err(|error| Failure::Connect { url: without_password(url), error })
}

pub(crate) async fn require_schema(
    store: &dyn Database,
    outboxes: &[Outbox],
) -> Result<(), Failure> {
    match store.schema_state(outboxes).await? {
        SchemaState::Ready => Ok(()),
        SchemaState::NeedsMigration(what) => {
            Err(Failure::Schema(format!("{what}; run `postrider migrate` first")))
        }
        SchemaState::TooNew(what) => {
            Err(Failure::Schema(format!("{what}; install a newer postrider")))
        }
    }
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
