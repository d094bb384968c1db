//! Receives messages in the consumer's own transaction.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use serde_json::json;
use sqlx::mysql::MySqlConnection;
use sqlx::{Either, Executor as _, Row as _};

use super::{DUPLICATE_ENTRY, error_number};
use crate::Inbox;
use crate::inbox::receive_in_steps;
use crate::internal::sql;

receive_in_steps!(
    MySqlConnection,
    busy: "a deadlock (1213) repeat the transaction; it is rarer under READ COMMITTED.",
    insert_new: insert_new,
    dead: sql!("sql/inbox.sql", "receive_dead"),
    letter: sql!("sql/inbox.sql", "receive_letter"),
    ledger: sql!("sql/inbox.sql", "receive_ledger"),
);

/// Inserts the identities that are new, and returns them.
async fn insert_new(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    ids: &[&str],
) -> Result<Vec<String>, sqlx::Error> {
    if let Some(fresh) = insert_all(connection, inbox, ids).await? {
        return Ok(fresh);
    }
    let known: Vec<String> = sqlx::query_scalar(sql!("sql/inbox.sql", "receive_known"))
        .bind(json!(ids).to_string())
        .bind(inbox.consumer())
        .fetch_all(&mut *connection)
        .await?;
    let known: HashSet<&str> = known.iter().map(String::as_str).collect();
    let unknown: Vec<&str> = ids.iter().copied().filter(|id| !known.contains(id)).collect();
    if let Some(fresh) = insert_all(connection, inbox, &unknown).await? {
        return Ok(fresh);
    }
    // Another consumer received some of them since the snapshot.
    let mut fresh = Vec::new();
    for id in unknown {
        let inserted = sqlx::query(sql!("sql/inbox.sql", "receive_one"))
            .bind(inbox.consumer())
            .bind(id)
            .execute(&mut *connection)
            .await?;
        fresh.extend((inserted.rows_affected() > 0).then(|| id.to_owned()));
    }
    Ok(fresh)
}

/// Inserts identities with one statement, and returns those that are new. `None`: at least one is
/// known, and MySQL inserted none.
async fn insert_all(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    ids: &[&str],
) -> Result<Option<Vec<String>>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let query = sqlx::query(sql!("sql/inbox.sql", "receive"))
        .bind(inbox.consumer())
        .bind(json!(ids).to_string());
    let (mut inserted, mut fresh) = (0, Vec::new());
    let mut answer = connection.fetch_many(query);
    loop {
        match answer.try_next().await {
            Ok(Some(Either::Left(done))) => inserted += done.rows_affected(),
            Ok(Some(Either::Right(row))) => fresh.push(row.try_get(0)?),
            Ok(None) => break,
            Err(error) if error_number(&error) == Some(DUPLICATE_ENTRY) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    // MySQL counts the rows, all of them; MariaDB returns those that are new, and counts none.
    Ok(Some(match inserted {
        0 => fresh,
        _ => ids.iter().map(|id| (*id).to_owned()).collect(),
    }))
}
