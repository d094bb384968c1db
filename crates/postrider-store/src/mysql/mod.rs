//! MariaDB 10.6 and newer, MySQL 8.0.16 and newer: [`MysqlStore`], for the relay and operators.

mod adopt;
mod adopt_columns;
mod adopt_dialect;
mod adopt_identity;
mod adopt_import;
mod adopt_letters;
mod adopt_rules;
mod batches;
mod claim;
mod inspect;
mod lanes;
mod maintenance;
mod operator;
mod schema;
mod server;
mod settle;
mod store;
mod time;
mod writers;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions};
use sqlx::{ConnectOptions as _, Connection, Executor, MySql, MySqlPool, Transaction};
use tokio::sync::{Mutex, OnceCell};

use crate::contract::{OldestRows, Result, begin};
use crate::{ConnectOptions, StoreError};
use server::Server;
use writers::Writers;

/// Set on every connection of a relay. READ COMMITTED: REPEATABLE READ would lock the gaps between
/// the rows it scans, and so block the application's inserts. Lock waits are short because a settle
/// is retried in smaller pieces instead. A relay that froze inside a transaction holds the lock on
/// its own row, and cannot be fenced before the server ends the transaction. Any session that is
/// silent for so long is ended: with TLS, the driver may wait for the server when it closes a
/// session whose reply was left halfway, and the pool would wait with it for ever. `NOT IN` a list
/// uses a hash, whatever the planner expects of the list (a hint of the statement on MySQL). The
/// comments are executed by MySQL or MariaDB only. MySQL would tell numbers of tables that are a
/// day old.
const SESSION: &str = "
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION time_zone = '+00:00', SESSION autocommit = 1,
        SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
        SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 30,
        SESSION wait_timeout = 8, SESSION sql_select_limit = 18446744073709551615,
        SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1
        /*!80000 , SESSION information_schema_stats_expiry = 0 */
        /*M!100301 , SESSION idle_transaction_timeout = 8, SESSION check_constraint_checks = 1,
            SESSION optimizer_switch = 'in_to_exists=off,materialization=on' */";

/// Begins a READ COMMITTED transaction on any connection, including an application's.
pub(crate) const READ_COMMITTED: &str =
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

/// Timeout of getting a connection, after which the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of reading the rest of a reply before the session is closed: shorter than other sessions
/// wait for its locks.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// Idle time after which a session is pinged before use.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// A MariaDB or MySQL database with outboxes.
#[derive(Debug, Clone)]
pub struct MysqlStore {
    pool: MySqlPool,
    oldest_rows: Arc<OldestRows>,
    /// Shared by all outboxes, because the list covers the whole server.
    writers: Arc<Mutex<Writers>>,
    /// Asked once.
    server: Arc<OnceCell<Server>>,
}

impl MysqlStore {
    /// Creates a store on the application's own connections, to maintain its inbox.
    pub(crate) fn of_pool(pool: MySqlPool) -> Self {
        Self { pool, oldest_rows: Arc::default(), writers: Arc::default(), server: Arc::default() }
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// If the URL is malformed, the server cannot be reached, or it is too old.
    pub async fn connect(url: &str, options: &ConnectOptions) -> Result<Self> {
        let connect = MySqlConnectOptions::from_str(url)?.charset("utf8mb4").pipes_as_concat(false);
        // Connects once without the pool, which would only report a timeout.
        let mut connection = connect.connect().await.map_err(explain_login)?;
        let server = Server::of(&mut connection).await?;
        connection.close().await?;
        let pool = pool_options()
            .max_connections(options.connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(connect)
            .await?;
        let server = Arc::new(OnceCell::new_with(Some(server)));
        Ok(Self { pool, oldest_rows: Arc::default(), writers: Arc::default(), server })
    }

    /// Returns which server it is.
    async fn server(&self) -> Result<Server> {
        let asked = async || Server::of(&mut *self.pool.acquire().await?).await;
        self.server.get_or_try_init(asked).await.copied()
    }

    async fn begin(&self) -> Result<Transaction<'static, MySql>> {
        Ok(begin(&self.pool, "BEGIN").await?)
    }
}

/// Returns options for pools whose callers may be dropped while a reply arrives. On such a session
/// the driver may wait forever for the end of a reply that it has read already, and the pool would
/// wait with it and lose one session each time. A session that has just replied is not pinged again
/// before its next use.
pub(crate) fn pool_options() -> MySqlPoolOptions {
    MySqlPoolOptions::new()
        .after_release(|connection, _| {
            Box::pin(async move {
                match tokio::time::timeout(RELEASE_TIMEOUT, connection.ping()).await {
                    Ok(answer) => answer.map(|()| !connection.is_in_transaction()),
                    Err(_) => Err(sqlx::Error::Protocol("an answer without an end".to_owned())),
                }
            })
        })
        .test_before_acquire(false)
        .before_acquire(|connection, of| {
            Box::pin(async move { Ok(of.idle_for < ASK_AFTER || connection.ping().await.is_ok()) })
        })
}

/// Explains the driver's "RSA auth backend disabled". RSA would protect a password without TLS; the
/// driver's implementation has a known weakness, so it is not in this build.
fn explain_login(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Configuration(cause) if cause.to_string().contains("RSA") => StoreError::Url(
            "the server asks for the password of this user (caching_sha2_password), which is only \
             sent by TLS: leave ssl-mode=DISABLED out of the URL of the store, and let the server \
             offer TLS"
                .to_owned(),
        ),
        error => error.into(),
    }
}

/// Returns the server's error number; SQLSTATE is too coarse to distinguish errors.
fn error_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}
