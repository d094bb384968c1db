//! The application's transaction, the same on every store.

use postrider::{AppendError, Appended, NewEvent, Outbox};
use sqlx::AssertSqlSafe;

/// An open transaction of the application. Dropping it rolls back.
pub enum TestTx {
    /// On PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    /// On MariaDB.
    #[cfg(feature = "mysql")]
    Mysql(sqlx::Transaction<'static, sqlx::MySql>),
    /// On SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

macro_rules! on_each {
    ($tx:expr, $name:ident => $body:expr) => {
        match $tx {
            #[cfg(feature = "postgres")]
            TestTx::Postgres($name) => $body,
            #[cfg(feature = "mysql")]
            TestTx::Mysql($name) => $body,
            #[cfg(feature = "sqlite")]
            TestTx::Sqlite($name) => $body,
        }
    };
}

impl TestTx {
    /// Appends one event.
    ///
    /// # Errors
    /// What `append` of the store answers.
    pub async fn append(
        &mut self,
        outbox: &Outbox,
        event: &NewEvent,
    ) -> Result<Appended, AppendError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::append(tx, outbox, event).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::append(tx, outbox, event).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::append(tx, outbox, event).await,
        }
    }

    /// Appends many events.
    ///
    /// # Errors
    /// What `append_all` of the store answers.
    pub async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::append_all(tx, outbox, events).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::append_all(tx, outbox, events).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::append_all(tx, outbox, events).await,
        }
    }

    /// Runs a statement; answers the rows changed.
    ///
    /// # Errors
    /// What the database said.
    pub async fn execute(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        on_each!(self, tx => Ok(statement.execute(&mut **tx).await?.rows_affected()))
    }

    /// Commits.
    ///
    /// # Errors
    /// What the database said; the outcome is unknown when the connection broke.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        on_each!(self, tx => tx.commit().await)
    }

    /// Rolls back.
    ///
    /// # Errors
    /// What the database said.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        on_each!(self, tx => tx.rollback().await)
    }
}
