//! The application's transaction, with the same interface on every store.

use std::time::Duration;

use postrider::{
    AppendError, Appended, DeadMessage, Inbox, Incoming, LockError, NewEvent, Outbox, ReceiveError,
    Received,
};
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
    /// The errors of the store's `append`.
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
    /// The errors of the store's `append_all`.
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

    /// Receives one event.
    ///
    /// # Errors
    /// The errors of the store's `receive`.
    pub async fn receive(
        &mut self,
        inbox: &Inbox,
        event: &Incoming,
    ) -> Result<Received, ReceiveError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::receive(tx, inbox, event).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::receive(tx, inbox, event).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::receive(tx, inbox, event).await,
        }
    }

    /// Receives many events.
    ///
    /// # Errors
    /// The errors of the store's `receive_all`.
    pub async fn receive_all(
        &mut self,
        inbox: &Inbox,
        events: &[Incoming],
    ) -> Result<Vec<Received>, ReceiveError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::receive_all(tx, inbox, events).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::receive_all(tx, inbox, events).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::receive_all(tx, inbox, events).await,
        }
    }

    /// Receives a message that cannot be processed.
    ///
    /// # Errors
    /// The errors of the store's `receive_dead`.
    pub async fn receive_dead(
        &mut self,
        inbox: &Inbox,
        message: &DeadMessage<'_>,
    ) -> Result<Received, ReceiveError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::receive_dead(tx, inbox, message).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::receive_dead(tx, inbox, message).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::receive_dead(tx, inbox, message).await,
        }
    }

    /// Takes a named lock.
    ///
    /// # Errors
    /// The errors of the store's `lock`.
    pub async fn lock(&mut self, name: &str, timeout: Duration) -> Result<(), LockError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => postrider::postgres::lock(tx, name, timeout).await,
            #[cfg(feature = "mysql")]
            Self::Mysql(tx) => postrider::mysql::lock(tx, name, timeout).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => postrider::sqlite::lock(tx, name, timeout).await,
        }
    }

    /// Runs a statement; returns the number of changed rows.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn execute(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        on_each!(self, tx => Ok(statement.execute(&mut **tx).await?.rows_affected()))
    }

    /// Returns the integer result of a query, as this transaction sees it.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn integer(&mut self, query: &str) -> Result<i64, sqlx::Error> {
        let query = AssertSqlSafe(query.to_owned());
        on_each!(self, tx => sqlx::query_scalar(query).fetch_one(&mut **tx).await)
    }

    /// Commits.
    ///
    /// # Errors
    /// The error of the database; the outcome is unknown if the connection broke.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        on_each!(self, tx => tx.commit().await)
    }

    /// Rolls back.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        on_each!(self, tx => tx.rollback().await)
    }
}
