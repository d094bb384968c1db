//! Receives messages in the consumer's own transaction.

use sqlx::SqliteConnection;

use crate::inbox::receive_in_steps;
use crate::internal::sql;

receive_in_steps!(
    SqliteConnection,
    busy: "`SQLITE_BUSY` repeat the transaction, begun with BEGIN IMMEDIATE.",
    receive: sql!("sql/inbox.sql", "receive"),
    dead: sql!("sql/inbox.sql", "receive_dead"),
    letter: sql!("sql/inbox.sql", "receive_letter"),
    ledger: sql!("sql/inbox.sql", "receive_ledger"),
);
