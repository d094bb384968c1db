//! What a consumer needs of the database in which it makes its changes.

use async_trait::async_trait;
use postrider::{DeadMessage, Inbox, Incoming, ReceiveError, Received};
use sqlx::Transaction;

use crate::contract::{InboxCleaned, InboxLetter, Inboxes, Result};

/// A connection pool of the database in which a consumer makes its changes. Implemented for the
/// pools of sqlx.
#[async_trait]
pub trait ConsumerPool: Send + Sync + 'static {
    /// The database.
    type Db: sqlx::Database;

    /// Begins a transaction in the mode that an inbox needs.
    async fn begin(&self) -> Result<Transaction<'static, Self::Db>, sqlx::Error>;

    /// Calls `receive_all` of the store.
    async fn receive_all(
        tx: &mut Transaction<'static, Self::Db>,
        inbox: &Inbox,
        events: &[Incoming],
    ) -> Result<Vec<Received>, ReceiveError>;

    /// Returns whether the inbox has this identity, as this transaction sees it.
    async fn is_known(
        tx: &mut Transaction<'static, Self::Db>,
        consumer: &str,
        event_id: &str,
    ) -> Result<bool, sqlx::Error>;

    /// Calls `receive_dead` of the store.
    async fn receive_dead(
        tx: &mut Transaction<'static, Self::Db>,
        inbox: &Inbox,
        message: &DeadMessage<'_>,
    ) -> Result<Received, ReceiveError>;

    /// Locks and returns the oldest dead letter that an operator asked to retry and that no other
    /// process is working on.
    async fn asked_letter(
        tx: &mut Transaction<'static, Self::Db>,
        consumer: &str,
    ) -> Result<Option<InboxLetter>>;

    /// Notes that a dead letter's message was processed after all, in this transaction.
    async fn letter_handled(
        tx: &mut Transaction<'static, Self::Db>,
        letter: &InboxLetter,
    ) -> Result<()>;

    /// Notes that a dead letter's message failed again.
    async fn letter_failed(
        tx: &mut Transaction<'static, Self::Db>,
        id: i64,
        error: &str,
    ) -> Result<()>;

    /// Deletes identities that this inbox no longer needs, and sums up its ledger.
    async fn clean_inbox(&self, inbox: &Inbox, chunk: u32) -> Result<InboxCleaned>;
}

macro_rules! consumer_pool {
    ($feature:literal, $module:ident, $store:ident, $pool:ty, $db:ty, $begin:expr) => {
        #[cfg(feature = $feature)]
        #[async_trait]
        impl ConsumerPool for $pool {
            type Db = $db;

            async fn begin(&self) -> Result<Transaction<'static, $db>, sqlx::Error> {
                crate::contract::begin(self, $begin).await
            }

            async fn receive_all(
                tx: &mut Transaction<'static, $db>,
                inbox: &Inbox,
                events: &[Incoming],
            ) -> Result<Vec<Received>, ReceiveError> {
                postrider::$module::receive_all(tx, inbox, events).await
            }

            async fn is_known(
                tx: &mut Transaction<'static, $db>,
                consumer: &str,
                event_id: &str,
            ) -> Result<bool, sqlx::Error> {
                crate::operator::is_known(&mut **tx, consumer, event_id).await
            }

            async fn receive_dead(
                tx: &mut Transaction<'static, $db>,
                inbox: &Inbox,
                message: &DeadMessage<'_>,
            ) -> Result<Received, ReceiveError> {
                postrider::$module::receive_dead(tx, inbox, message).await
            }

            async fn asked_letter(
                tx: &mut Transaction<'static, $db>,
                consumer: &str,
            ) -> Result<Option<InboxLetter>> {
                crate::operator::asked_letter(&mut **tx, consumer).await
            }

            async fn letter_handled(
                tx: &mut Transaction<'static, $db>,
                letter: &InboxLetter,
            ) -> Result<()> {
                crate::operator::letter_handled(&mut **tx, letter).await
            }

            async fn letter_failed(
                tx: &mut Transaction<'static, $db>,
                id: i64,
                error: &str,
            ) -> Result<()> {
                crate::operator::letter_failed(&mut **tx, id, error).await
            }

            async fn clean_inbox(&self, inbox: &Inbox, chunk: u32) -> Result<InboxCleaned> {
                let store = crate::$module::$store::of_pool(self.clone());
                store.fold_inbox_ledger(chunk).await?;
                store.clean_inbox(Some(inbox.consumer()), inbox.remembers_for(), chunk).await
            }
        }
    };
}

consumer_pool!("postgres", postgres, PostgresStore, sqlx::PgPool, sqlx::Postgres, "BEGIN");
// READ COMMITTED: under REPEATABLE READ a repeat would lock the gap before it, and so block the
// inserts of others.
consumer_pool!(
    "mysql",
    mysql,
    MysqlStore,
    sqlx::MySqlPool,
    sqlx::MySql,
    crate::mysql::READ_COMMITTED
);
consumer_pool!("sqlite", sqlite, SqliteStore, sqlx::SqlitePool, sqlx::Sqlite, "BEGIN IMMEDIATE");
