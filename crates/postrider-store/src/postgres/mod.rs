//! PostgreSQL 14 and newer: [`PostgresStore`], for the relay and operators.

mod adopt;
mod adopt_columns;
mod adopt_dialect;
mod adopt_identity;
mod adopt_import;
mod adopt_letters;
mod adopt_rules;
mod batches;
mod inspect;
mod json;
mod lanes;
mod maintenance;
mod operator;
mod schema;
mod sessions;
mod settle;
mod store;
mod tid;
mod time;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection, Executor, PgPool, Postgres, Transaction};

use self::sessions::Sessions;
use crate::ConnectOptions;
use crate::contract::{OldestRows, Result, begin};

/// Set on every connection of a relay. Its statements are few and known, and each has the index it
/// needs; a planner that finds the table just after it was empty would choose other plans. Lock
/// waits are short because a settle is retried in smaller pieces instead.
const SESSION: &str = "
    SET application_name = 'postrider';
    SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SET lock_timeout = '2s';
    SET idle_in_transaction_session_timeout = '60s'";

/// Timeout of getting a connection, after which the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// A PostgreSQL database with outboxes.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: PgPool,
    /// For the statements that a relay runs continuously.
    sessions: Arc<Sessions>,
    oldest_rows: Arc<OldestRows>,
}

impl PostgresStore {
    /// Creates a store on the application's own connections, to maintain its inbox.
    pub(crate) fn of_pool(pool: PgPool) -> Self {
        let connect = (*pool.connect_options()).clone();
        let sessions = Arc::new(Sessions::new(connect, pool.clone(), 0));
        Self { pool, sessions, oldest_rows: Arc::default() }
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// If the URL is malformed or the server cannot be reached.
    pub async fn connect(url: &str, options: &ConnectOptions) -> Result<Self> {
        let connect = PgConnectOptions::from_str(url)?;
        // Connects once without the pool, which would only report a timeout.
        connect.connect().await?.close().await?;
        let kept = sessions::kept(options.connections_max);
        let pool = pool_options()
            .max_connections(options.connections_max - kept)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SESSION).await.map(|_| ()) })
            })
            .connect_with(connect.clone())
            .await?;
        let sessions = Arc::new(Sessions::new(connect, pool.clone(), kept));
        Ok(Self { pool, sessions, oldest_rows: Arc::default() })
    }

    async fn begin(&self) -> Result<Transaction<'static, Postgres>> {
        Ok(begin(&self.pool, "BEGIN").await?)
    }
}

/// Returns options for Postrider's own pools: a session that the driver considers to be in a
/// transaction is closed.
pub(crate) fn pool_options() -> PgPoolOptions {
    PgPoolOptions::new().after_release(|connection, _| {
        let is_free = !connection.is_in_transaction();
        Box::pin(async move { Ok(is_free) })
    })
}
