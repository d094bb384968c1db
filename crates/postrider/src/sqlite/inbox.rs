//! Receives messages in the consumer's own transaction.

use sqlx::SqliteConnection;

use crate::inbox::{answers, identities};
use crate::internal::sql;
use crate::{DeadMessage, Inbox, Incoming, ReceiveError, Received};

/// Records one event in the caller's transaction, together with the caller's changes.
///
/// # Errors
/// [`ReceiveError::Invalid`] before anything is sent; [`ReceiveError::Database`] otherwise. After
/// `SQLITE_BUSY` repeat the transaction, begun with BEGIN IMMEDIATE.
pub async fn receive(
    connection: &mut SqliteConnection,
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
    connection: &mut SqliteConnection,
    inbox: &Inbox,
    events: &[Incoming],
) -> Result<Vec<Received>, ReceiveError> {
    let ids = identities(events)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let fresh: Vec<String> = sqlx::query_scalar(sql!("sql/inbox.sql", "receive"))
        .bind(inbox.consumer())
        .bind(serde_json::json!(ids).to_string())
        .fetch_all(&mut *connection)
        .await?;
    ledger(connection, inbox, events.len(), fresh.len()).await?;
    Ok(answers(inbox, events, fresh))
}

/// Records a message that cannot be processed as a dead letter, which operators see. A message that
/// was received before does not get one.
///
/// # Errors
/// The errors of [`receive`].
pub async fn receive_dead(
    connection: &mut SqliteConnection,
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

async fn ledger(
    connection: &mut SqliteConnection,
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
