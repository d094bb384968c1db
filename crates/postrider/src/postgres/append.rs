//! Appends in the application's own transaction.

use std::collections::{BTreeMap, HashSet};

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::append::insert_order;
use crate::duration::millis;
use crate::internal::sql;
use crate::{AppendError, Appended, NewEvent, Outbox};

/// Appends one event in the caller's transaction. It is delivered after the commit.
///
/// # Errors
/// [`AppendError::Invalid`] before anything is sent; [`AppendError::Database`] otherwise, after
/// which PostgreSQL only accepts a rollback.
pub async fn append(
    connection: &mut PgConnection,
    outbox: &Outbox,
    event: &NewEvent,
) -> Result<Appended, AppendError> {
    event.validate()?;
    for _ in 0..FREED_MEANWHILE_MAX {
        if let Some(id) = insert(connection, outbox, event).await? {
            return Ok(Appended::New { id, event_id: event.event_id.to_string() });
        }
        let Some(request_id) = &event.request_id else { break };
        let known = find_keys(connection, outbox, &[request_id]).await?;
        if let Some(id) = known.get(request_id) {
            return Ok(Appended::Duplicate { id: *id });
        }
    }
    Err(sqlx::Error::RowNotFound.into())
}

/// With `dedupe = "open"`, the first event may leave the outbox between the refusal of its repeat
/// and the lookup of its id. Then the repeat becomes the first; if that happens this often in a
/// row, it is an error.
const FREED_MEANWHILE_MAX: usize = 10;

/// Returns the new id, or `None` if the trigger skipped a repeated request id.
async fn insert(
    connection: &mut PgConnection,
    outbox: &Outbox,
    event: &NewEvent,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(outbox.sql(sql!("sql/append.sql", "append")))
        .bind(event.event_id)
        .bind(&event.request_id)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(&event.event_type)
        .bind(&event.payload)
        .bind(event.headers_json())
        .bind(event.content_hash())
        .bind(event.max_retries)
        .bind(event.deliver_after.map(millis))
        .bind(event.expires_after.map(millis))
        .fetch_optional(connection)
        .await
}

/// Appends many events with one statement. Returns the results in the given order; a `request_id`
/// that occurs twice in the batch is new once.
///
/// # Errors
/// The errors of [`append`]; one invalid event refuses the batch before anything is sent.
pub async fn append_all(
    connection: &mut PgConnection,
    outbox: &Outbox,
    events: &[NewEvent],
) -> Result<Vec<Appended>, AppendError> {
    for event in events {
        event.validate()?;
    }
    let order = insert_order(events);
    let ordered: Vec<&NewEvent> = order.iter().map(|position| &events[*position]).collect();
    let inserted = insert_all(connection, outbox, &ordered).await?;
    // The inserted rows are the sent events, in that order, without the repeats. Event id and
    // request id show which: of events that share both, the first one is the new one.
    let mut ids: Vec<Option<i64>> = vec![None; events.len()];
    let mut inserted = inserted.into_iter().peekable();
    for position in order {
        let event = &events[position];
        let fits = |row: &Inserted| row.1 == event.event_id && row.2 == event.request_id;
        ids[position] = inserted.next_if(fits).map(|row| row.0);
    }
    let repeated: Vec<&str> = events
        .iter()
        .zip(&ids)
        .filter(|(_, id)| id.is_none())
        .filter_map(|(event, _)| event.request_id.as_deref())
        .collect();
    let known = match repeated.is_empty() {
        true => BTreeMap::new(),
        false => find_keys(connection, outbox, &repeated).await?,
    };
    let mut answers = Vec::with_capacity(events.len());
    for (event, id) in events.iter().zip(ids) {
        let first = event.request_id.as_ref().and_then(|request_id| known.get(request_id));
        answers.push(match (id, first) {
            (Some(id), _) => Appended::New { id, event_id: event.event_id.to_string() },
            (None, Some(id)) => Appended::Duplicate { id: *id },
            // The request id has become free since (see `append`): this event is the first now.
            (None, None) => append(connection, outbox, event).await?,
        });
    }
    Ok(answers)
}

/// Row id, event id, request id.
type Inserted = (i64, Uuid, Option<String>);

async fn insert_all(
    connection: &mut PgConnection,
    outbox: &Outbox,
    events: &[&NewEvent],
) -> Result<Vec<Inserted>, sqlx::Error> {
    sqlx::query_as(outbox.sql(sql!("sql/append.sql", "append_all")))
        .bind(events.iter().map(|e| e.event_id).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.request_id.as_deref()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.aggregate_type.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.aggregate_id.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.event_type.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.headers_json()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.content_hash()).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.max_retries).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.deliver_after.map(millis)).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.expires_after.map(millis)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
}

/// Returns which of these request ids are remembered: an append with one of them would be a
/// duplicate. Writes nothing.
///
/// # Errors
/// If the database does not answer.
pub async fn known_requests(
    connection: &mut PgConnection,
    outbox: &Outbox,
    request_ids: &[&str],
) -> Result<HashSet<String>, sqlx::Error> {
    Ok(find_keys(connection, outbox, request_ids).await?.into_keys().collect())
}

async fn find_keys(
    connection: &mut PgConnection,
    outbox: &Outbox,
    request_ids: &[&str],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let rows = sqlx::query(outbox.sql(sql!("sql/append.sql", "find_keys")))
        .bind(request_ids)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
