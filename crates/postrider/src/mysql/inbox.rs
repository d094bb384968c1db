//! Receives messages in the consumer's own transaction.

use sqlx::mysql::MySqlConnection;

use crate::inbox::receive_in_steps;
use crate::internal::sql;

receive_in_steps!(
    MySqlConnection,
    busy: "a deadlock (1213) repeat the transaction; it is rarer under READ COMMITTED.",
    receive: sql!("sql/inbox.sql", "receive"),
    dead: sql!("sql/inbox.sql", "receive_dead"),
    letter: sql!("sql/inbox.sql", "receive_letter"),
    ledger: sql!("sql/inbox.sql", "receive_ledger"),
);
