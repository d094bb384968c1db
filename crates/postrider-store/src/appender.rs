//! Appends events in transactions of its own, for programs that only forward events, such as the
//! HTTP endpoint. A program with a business change appends in the transaction of that change
//! instead.

use std::collections::HashSet;
use std::time::Duration;

use postrider::{AppendError, Appended, NewEvent, Outbox};

use crate::StoreError;
use crate::contract::begin;
use crate::error::lost_to_another;

/// Maximum number of repeats of a transaction that failed because of another one, and the wait
/// before the first repeat. The second repeat waits twice as long, the third three times.
const REPEATS_MAX: u32 = 10;
const REPEAT_WAIT: Duration = Duration::from_millis(10);

/// A connection pool to append through.
#[derive(Debug, Clone)]
pub enum Appender {
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    /// MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(sqlx::MySqlPool),
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

impl Appender {
    /// Connects to the store that the URL names; see [`connect`](crate::connect).
    ///
    /// # Errors
    /// If the URL does not name a store of this build, or the database cannot be reached.
    pub async fn connect(url: &str, connections_max: u32) -> Result<Self, StoreError> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = crate::postgres::pool_options();
                Ok(Self::Postgres(options.max_connections(connections_max).connect(url).await?))
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options = crate::mysql::pool_options();
                Ok(Self::Mysql(options.max_connections(connections_max).connect(url).await?))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                // SQLite has one writer at a time; more connections would only wait for each other.
                let connect = crate::sqlite::connect_options(url)?;
                let options = crate::sqlite::pool_options(connect.get_filename())
                    .max_connections(connections_max.min(1));
                Ok(Self::Sqlite(options.connect_with(connect).await?))
            }
            _ => Err(crate::connect::unknown_scheme(scheme)),
        }
    }

    /// Returns which of these request ids are remembered: the events that an append would report as
    /// duplicates. Writes nothing.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn known(
        &self,
        outbox: &Outbox,
        request_ids: &[&str],
    ) -> Result<HashSet<String>, AppendError> {
        Ok(match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => {
                postrider::postgres::known_requests(
                    &mut *pool.acquire().await?,
                    outbox,
                    request_ids,
                )
                .await?
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(pool) => {
                postrider::mysql::known_requests(&mut *pool.acquire().await?, outbox, request_ids)
                    .await?
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => {
                postrider::sqlite::known_requests(&mut *pool.acquire().await?, outbox, request_ids)
                    .await?
            }
        })
    }

    /// Appends the events in one transaction: all or none. Returns the results in the order of the
    /// events. Repeats the transaction if the database rolled it back because of another one
    /// (deadlock, serialization).
    ///
    /// # Errors
    /// The errors of the store's `append_all`; nothing is appended then.
    pub async fn append_all(
        &self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        for repeat in 1..=REPEATS_MAX {
            match self.append_once(outbox, events).await {
                Err(AppendError::Database(error)) if lost_to_another(&error) => {
                    tracing::debug!(%error, repeat, "the append is repeated");
                    tokio::time::sleep(REPEAT_WAIT * repeat).await;
                }
                answer => return answer,
            }
        }
        self.append_once(outbox, events).await
    }

    async fn append_once(
        &self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => {
                let mut tx = begin(pool, "BEGIN").await?;
                let appended = postrider::postgres::append_all(&mut tx, outbox, events).await?;
                tx.commit().await?;
                Ok(appended)
            }
            #[cfg(feature = "mysql")]
            Self::Mysql(pool) => {
                let mut tx = begin(pool, "BEGIN").await?;
                let appended = postrider::mysql::append_all(&mut tx, outbox, events).await?;
                tx.commit().await?;
                Ok(appended)
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => {
                let mut tx = begin(pool, "BEGIN IMMEDIATE").await?;
                let appended = postrider::sqlite::append_all(&mut tx, outbox, events).await?;
                tx.commit().await?;
                Ok(appended)
            }
        }
    }
}
