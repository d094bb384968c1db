//! Receives messages in the consumer's own transaction.

use sqlx::PgConnection;

use crate::inbox::{answers, identities};
use crate::internal::sql;
use crate::{DeadMessage, Inbox, Incoming, ReceiveError, Received};

/// Records one event in the caller's transaction, together with the caller's changes.
///
/// # Errors
/// [`ReceiveError::Invalid`] before anything is sent; [`ReceiveError::Database`] otherwise, after
/// which PostgreSQL only accepts a rollback. Under REPEATABLE READ and above, a repeat that another
/// transaction has committed since this one began fails with SQLSTATE 40001: repeat the
/// transaction.
pub async fn receive(
    connection: &mut PgConnection,
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
    connection: &mut PgConnection,
    inbox: &Inbox,
    events: &[Incoming],
) -> Result<Vec<Received>, ReceiveError> {
    let ids = identities(events)?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let fresh: Vec<String> = sqlx::query_scalar(sql!("sql/inbox.sql", "receive"))
        .bind(inbox.consumer())
        .bind(&ids)
        .bind(events.len() as i64)
        .fetch_all(connection)
        .await?;
    Ok(answers(inbox, events, fresh))
}

/// Records a message that cannot be processed as a dead letter, which operators see. A message that
/// was received before does not get one.
///
/// # Errors
/// The errors of [`receive`].
pub async fn receive_dead(
    connection: &mut PgConnection,
    inbox: &Inbox,
    message: &DeadMessage<'_>,
) -> Result<Received, ReceiveError> {
    identities(std::slice::from_ref(message.event))?;
    let fresh: bool = sqlx::query_scalar(sql!("sql/inbox.sql", "receive_dead"))
        .bind(inbox.consumer())
        .bind(&message.event.event_id)
        .bind(message.source())
        .bind(message.key)
        .bind(message.headers_json())
        .bind(message.payload)
        .bind(message.error())
        .fetch_one(connection)
        .await?;
    Ok(if fresh { Received::New } else { Received::Duplicate })
}
