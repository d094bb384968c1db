//! Receives messages in the consumer's own transaction.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use serde_json::json;
use sqlx::mysql::MySqlConnection;
use sqlx::{Either, Executor as _, Row as _};

use super::{DUPLICATE_ENTRY, error_number};

use crate::inbox::{answers, identities};
use crate::internal::sql;
use crate::{DeadMessage, Inbox, Incoming, ReceiveError, Received};

/// Records one event in the caller's transaction, together with the caller's changes.
///
/// # Errors
/// [`ReceiveError::Invalid`] before anything is sent; [`ReceiveError::Database`] otherwise. After a
/// deadlock (1213) repeat the transaction; it is rarer under READ COMMITTED.
pub async fn receive(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    event: &Incoming,
) -> Result<Received, ReceiveError> {
    let answers = receive_all(connection, inbox, std::slice::from_ref(event)).await?;
    Ok(answers.first().copied().unwrap_or(Received::Duplicate))
}

/// Records many events with one statement. Returns the results in the given order; an identity that
/// occurs twice is new once.
///
/// # Errors
/// The errors of [`receive`]; one invalid identity refuses the batch before anything is sent.
pub async fn receive_all(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    events: &[Incoming],
) -> Result<Vec<Received>, ReceiveError> {
    let ids = identities(events)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let fresh = insert_new(connection, inbox, &ids).await?;
    ledger(connection, inbox, events.len(), fresh.len()).await?;
    Ok(answers(inbox, events, fresh))
}

/// Records a message that cannot be processed as a dead letter, which operators see. A message that
/// was received before does not get one.
///
/// # Errors
/// The errors of [`receive`].
pub async fn receive_dead(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    message: &DeadMessage<'_>,
) -> Result<Received, ReceiveError> {
    identities(std::slice::from_ref(message.event))?;
    let fresh = sqlx::query(sql!("sql/inbox.sql", "receive_dead"))
        .bind(inbox.consumer())
        .bind(&message.event.event_id)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    ledger(connection, inbox, 1, usize::from(fresh > 0)).await?;
    if fresh == 0 {
        return Ok(Received::Duplicate);
    }
    sqlx::query(sql!("sql/inbox.sql", "receive_letter"))
        .bind(inbox.consumer())
        .bind(&message.event.event_id)
        .bind(message.source())
        .bind(message.key)
        .bind(message.headers_json())
        .bind(message.payload)
        .bind(message.error())
        .execute(connection)
        .await?;
    Ok(Received::New)
}

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

async fn ledger(
    connection: &mut MySqlConnection,
    inbox: &Inbox,
    received: usize,
    fresh: usize,
) -> Result<(), sqlx::Error> {
    sqlx::query(sql!("sql/inbox.sql", "receive_ledger"))
        .bind(inbox.consumer())
        .bind(received as i64)
        .bind((received - fresh) as i64)
        .execute(connection)
        .await
        .map(|_| ())
}
