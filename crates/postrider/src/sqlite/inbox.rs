//! Receives messages in the consumer's own transaction.

use serde_json::json;
use sqlx::SqliteConnection;

use crate::Inbox;
use crate::inbox::receive_in_steps;
use crate::internal::sql;

receive_in_steps!(
    SqliteConnection,
    busy: "`SQLITE_BUSY` repeat the transaction, begun with BEGIN IMMEDIATE.",
    insert_new: insert_new,
    dead: sql!("sql/inbox.sql", "receive_dead"),
    letter: sql!("sql/inbox.sql", "receive_letter"),
    ledger: sql!("sql/inbox.sql", "receive_ledger"),
);

/// Inserts the identities that are new, and returns them.
async fn insert_new(
    connection: &mut SqliteConnection,
    inbox: &Inbox,
    ids: &[&str],
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(sql!("sql/inbox.sql", "receive"))
        .bind(inbox.consumer())
        .bind(json!(ids).to_string())
        .fetch_all(connection)
        .await
}
