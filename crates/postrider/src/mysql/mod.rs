//! MariaDB 10.6 and newer: `append` for applications, [`MysqlStore`] for the relay and operators.
//! MySQL does not work yet: `migrate` fails there.
//!
//! A repeated `request_id` in a plain `INSERT` fails with error 1062, which names the key
//! `<outbox>_keys`; only that statement is undone, and the transaction lives on. [`append`] answers
//! it as a duplicate under every isolation level.

mod adopt;
mod adopt_columns;
mod adopt_dialect;
mod adopt_identity;
mod adopt_import;
mod adopt_letters;
mod adopt_rules;
mod append;
mod batches;
mod claim;
mod inbox;
mod lanes;
mod lock;
mod operator;
mod schema;
mod settle;
mod store;
mod time;
mod upkeep;
mod watch;
mod writers;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions};
use sqlx::{ConnectOptions as _, Connection, Executor, MySql, MySqlPool, Transaction};
use tokio::sync::Mutex;

use crate::ConnectOptions;
use crate::store::{OldestRows, Result, begin};
use writers::Writers;

pub use append::{append, append_all};
pub use inbox::{receive, receive_all, receive_dead};
pub use lock::lock;

/// Set on every connection of a relay. READ COMMITTED: REPEATABLE READ would lock the gaps between
/// the rows it scans, and with them the application's inserts. Lock waits are short because a settle
/// is retried in smaller pieces instead. A relay that froze inside a transaction holds the lock on its
/// own row, and cannot be fenced before the server ends the transaction. `NOT IN` a list is a look
/// into a hash, whatever the planner expects of the list. The versioned comments are read by MySQL 8
/// or by MariaDB only.
const SESSION: &str = "
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION time_zone = '+00:00', SESSION autocommit = 1,
        SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
        SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 30
        /*!80000 , SESSION information_schema_stats_expiry = 0 */
        /*M!100301 , SESSION idle_transaction_timeout = 8,
            SESSION optimizer_switch = 'in_to_exists=off' */";

/// Begins a transaction of that kind on any connection, also an application's.
pub(crate) const READ_COMMITTED: &str =
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";

/// Time to get a connection before the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for what is left of an answer, before its session is closed: less than others wait for its locks.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// A session that was not used for this long is asked whether it lives.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// A MariaDB database with outboxes.
#[derive(Debug, Clone)]
pub struct MysqlStore {
    pool: MySqlPool,
    oldest_rows: Arc<OldestRows>,
    /// One list for all outboxes: it is the server's.
    writers: Arc<Mutex<Writers>>,
}

impl MysqlStore {
    /// Through the application's own connections, for the upkeep of its inbox.
    #[cfg(feature = "kafka-consumer")]
    pub(crate) fn of_pool(pool: MySqlPool) -> Self {
        Self { pool, oldest_rows: Arc::default(), writers: Arc::default() }
    }

    /// Connects.
    ///
    /// # Errors
    /// If the URL is malformed or the server cannot be reached.
    pub async fn connect(url: &str, options: &ConnectOptions) -> Result<Self> {
        let connect = MySqlConnectOptions::from_str(url)?.charset("utf8mb4").pipes_as_concat(false);
        // Once without the pool, which would only say that it waited in vain.
        connect.connect().await?.close().await?;
        let pool = pool_options()
            .max_connections(options.connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(connect)
            .await?;
        Ok(Self { pool, oldest_rows: Arc::default(), writers: Arc::default() })
    }

    async fn begin(&self) -> Result<Transaction<'static, MySql>> {
        Ok(begin(&self.pool, "BEGIN").await?)
    }
}

/// For pools whose callers may go away in the middle of an answer. Of such a session the driver may wait for ever
/// for an end of the answer that it has read already, and the pool would wait with it: one session fewer each time.
/// One that has just answered is not asked again before its next use.
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

/// The server's error number; SQLSTATE is too coarse to tell errors apart.
fn error_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}
