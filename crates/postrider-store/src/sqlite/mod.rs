//! SQLite 3.35 and newer: [`SqliteStore`], for the relay and operators.
//!
//! The store's transactions are short, so that the application's own writes get through: they write
//! at most [`ROWS_MAX`] rows, and payloads are read after the write lock is released.

mod adopt;
mod batches;
mod claim;
mod inspect;
mod lanes;
mod maintenance;
mod operator;
mod pool;
mod schema;
mod store;
mod value;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider::internal::{BUSY_TIMEOUT, WAL_BYTES_KEPT};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};
use sqlx::{Sqlite, Transaction};

use crate::contract::{Result, begin};
use crate::{ConnectOptions, StoreError};

pub(crate) use pool::pool_options;

/// Maximum number of rows that one transaction of the store writes, about 10 ms. A claim with a
/// higher limit takes this many and returns that there may be more; rows that are claimed together
/// are settled together.
pub const ROWS_MAX: u32 = 1_000;

/// Timeout of getting a connection, after which the database counts as busy: another caller's wait
/// and one's own.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of pages in the WAL after which they are copied into the file (4 KiB each). The default
/// of 1,000 copies after every third batch of a drain.
const CHECKPOINT_PAGES: &str = "4000";
/// Maximum number of connections for reading. More would only wait for the same two cores and the
/// same disk.
const READERS_MAX: u32 = 4;
/// Number of prepared statements kept per connection: about 50 per outbox.
const STATEMENTS_MAX: usize = 500;
/// Number of rows buffered between SQLite's thread and the caller. With a small buffer the two wake
/// each other alternately.
const ROW_BUFFER: usize = 1_024;

/// A SQLite file with outboxes.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    /// One connection: two writers of one process would only wait for each other inside SQLite,
    /// which waits by sleeping and polling.
    writer: SqlitePool,
    readers: SqlitePool,
    file: Arc<Path>,
}

impl SqliteStore {
    /// Creates a store on the application's own connections, to maintain its inbox.
    pub(crate) fn of_pool(pool: SqlitePool) -> Self {
        let file = pool.connect_options().get_filename().into();
        Self { writer: pool.clone(), readers: pool, file }
    }

    /// Opens the file, and creates it if `options` say so.
    ///
    /// # Errors
    /// If the URL is malformed, or the file is missing, not a database, or not writable.
    pub async fn connect(url: &str, options: &ConnectOptions) -> Result<Self> {
        let (file, create) = file_of(url, options)?;
        make_ready(&file, create).await?;
        let common = SqliteConnectOptions::new()
            .filename(&file)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(STATEMENTS_MAX)
            .row_buffer_size(ROW_BUFFER);
        let writing = common
            .clone()
            .journal_mode(SqliteJournalMode::Wal)
            // An event that was committed must survive a power cut, like the business change that
            // was committed with it. NORMAL does not sync the WAL at commit and can lose the last
            // transactions.
            .synchronous(SqliteSynchronous::Full)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
            .pragma("journal_size_limit", WAL_BYTES_KEPT);
        let file: Arc<Path> = file.into();
        let pool = || pool_options(&file).acquire_timeout(ACQUIRE_TIMEOUT);
        let store = Self {
            writer: pool()
                .max_connections(1)
                .idle_timeout(None)
                .max_lifetime(None)
                .connect_lazy_with(writing),
            readers: pool()
                .max_connections(options.connections_max.clamp(1, READERS_MAX))
                .connect_lazy_with(common.pragma("query_only", "ON")),
            file,
        };
        store.check_writable().await?;
        Ok(store)
    }

    /// Checks that the file is writable. SQLite opens a file without write permission as read-only
    /// and reports it only at the first write, which would be the relay's first heartbeat.
    async fn check_writable(&self) -> Result<()> {
        match self.begin().await {
            Ok(tx) => tx.rollback().await.on(self)?,
            // Another program is writing, so the file is writable.
            Err(StoreError::Busy(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        let mode: String =
            sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&self.writer).await.on(self)?;
        if mode == "wal" {
            return Ok(());
        }
        Err(StoreError::File {
            path: self.file.display().to_string(),
            cause: sqlx::Error::Protocol(format!("the journal mode is `{mode}`, not `wal`")),
            fix: "put the file on a local disk: WAL needs shared memory, which network file \
                   systems do not have",
            lasting: true,
        })
    }

    /// Begins a transaction that takes the write lock at its start, as every writing transaction
    /// does.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>> {
        begin(&self.writer, "BEGIN IMMEDIATE").await.on(self)
    }
}

/// Returns the options of connections that only append, after the checks of a store's URL.
pub(crate) fn connect_options(url: &str) -> Result<SqliteConnectOptions> {
    file_of(url, &ConnectOptions::default())?;
    // Only `migrate` and a store create the file: a connection that is opened after the file was
    // deleted would put an empty one in its place.
    Ok(postrider::sqlite::connect_options(url)?.create_if_missing(false))
}

/// Returns the file that a URL names, and whether it may be created.
fn file_of(url: &str, options: &ConnectOptions) -> Result<(PathBuf, bool)> {
    let refuse = |what: &str| {
        Err(StoreError::Url(format!(
            "the store URL `{url}` {what}; allowed is sqlite:path/to/file.db, with ?mode=rwc to \
             create the file"
        )))
    };
    let create = match url.split_once('?').map(|(_, parameters)| parameters) {
        None | Some("" | "mode=rw") => options.create,
        Some("mode=rwc") => true,
        Some(_) => return refuse("has parameters that an outbox cannot work with"),
    };
    let Ok(parsed) = SqliteConnectOptions::from_str(url) else {
        return refuse("cannot be read");
    };
    if url.contains(":memory:") {
        return refuse("names a database in memory, where nothing survives the program");
    }
    match parsed.get_filename() {
        file if file.as_os_str().is_empty() => refuse("names no file"),
        file => Ok((file.to_owned(), create)),
    }
}

/// Checks the path before SQLite does, whose only message for all of these errors is "unable to
/// open".
async fn make_ready(file: &Path, create: bool) -> Result<()> {
    let error = |cause: std::io::Error, fix| StoreError::File {
        path: file.display().to_string(),
        cause: sqlx::Error::Io(cause),
        fix,
        lasting: true,
    };
    match tokio::fs::metadata(file).await {
        Ok(found) if found.is_dir() => Err(error(
            std::io::ErrorKind::IsADirectory.into(),
            "name a file inside of this folder in the store URL",
        )),
        Ok(_) => Ok(()),
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(error(cause, "give this program the right to enter the folder"))
        }
        Err(cause) if !create => Err(error(
            cause,
            "correct the path in the store URL, or have the file made: `postrider migrate`, or \
             ?mode=rwc in the URL",
        )),
        Err(_) => {
            if let Some(folder) = file.parent() {
                tokio::fs::create_dir_all(folder).await.map_err(|cause| {
                    error(cause, "its folder cannot be made: make it, or give the right to")
                })?;
            }
            // The file is created here and not by a connection: a connection that is opened after
            // the file was deleted would create an empty one in its place.
            make_private(file).await.map_err(|cause| {
                error(cause, "the file cannot be made: give this program the right to")
            })
        }
    }
}

/// Creates an empty file that only its owner can read, because it will hold payloads. SQLite gives
/// its `-wal` and `-shm` files the same mode.
async fn make_private(file: &Path) -> std::io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    match options.open(file).await {
        // Another program was faster, and decides the mode.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

/// Adds the path to errors that concern the file.
trait On<T> {
    fn on(self, store: &SqliteStore) -> Result<T>;
}

impl<T> On<T> for std::result::Result<T, sqlx::Error> {
    fn on(self, store: &SqliteStore) -> Result<T> {
        self.map_err(|error| explain(error, &store.file))
    }
}

fn explain(error: sqlx::Error, file: &Path) -> StoreError {
    // A timeout does not mean unreachable here: the one connection for writing is in use.
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return StoreError::Busy(error);
    }
    let code = error.as_database_error().and_then(|cause| cause.code()?.parse::<i32>().ok());
    // The low byte is the kind of error, the rest is more specific.
    let (fix, lasting) = match code.map(|code| code & 0xff) {
        Some(8) => (
            "give this program the right to write the file and its folder (SQLite keeps `-wal` \
             and `-shm` files beside it)",
            true,
        ),
        Some(10) => ("the disk reported an error: look into the system's log", false),
        Some(11) => ("the file is damaged: run `PRAGMA integrity_check`, restore a backup", true),
        Some(13) => ("make room on the disk: the work then goes on by itself", false),
        Some(14) if !file.exists() => (
            "the file was deleted or moved away while it was in use: put it back, and the work \
             goes on by itself",
            false,
        ),
        Some(14) => (
            "the file or its `-wal` and `-shm` cannot be opened: look at the rights on the file \
             and its folder, and at the limit of open files",
            false,
        ),
        Some(26) => ("this is not an SQLite database: correct the path in the store URL", true),
        _ => return error.into(),
    };
    StoreError::File { path: file.display().to_string(), cause: error, fix, lasting }
}

/// Formats a time as stored in the tables.
fn stored(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Formats a JSON array as a parameter: the only way to pass many values with one variable.
fn json<T: serde::Serialize>(values: &[T]) -> Result<String> {
    serde_json::to_string(values).map_err(|error| sqlx::Error::Encode(error.into()).into())
}
