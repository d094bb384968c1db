//! Appending in the application's own transaction.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::append::insert_order;
use crate::{AppendError, Appended, NewEvent, Outbox};

/// Appends one event in the caller's transaction. It is delivered once that commits.
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
    let id: Option<i64> = sqlx::query_scalar(outbox.sql(include_str!("sql/append.sql")))
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
        .fetch_optional(&mut *connection)
        .await?;
    match (id, &event.request_id) {
        (Some(id), _) => Ok(Appended::New { id, event_id: event.event_id.to_string() }),
        (None, Some(request_id)) => {
            let known = find_keys(connection, outbox, std::slice::from_ref(request_id)).await?;
            let id = known.get(request_id).copied().ok_or(sqlx::Error::RowNotFound)?;
            Ok(Appended::Duplicate { id })
        }
        (None, None) => Err(sqlx::Error::RowNotFound.into()),
    }
}

/// Appends many events with one statement. Answers in the order given; a `request_id` that occurs
/// twice in the batch is new once.
///
/// # Errors
/// As [`append`]; one invalid event refuses the batch before anything is sent.
pub async fn append_all(
    connection: &mut PgConnection,
    outbox: &Outbox,
    events: &[NewEvent],
) -> Result<Vec<Appended>, AppendError> {
    for event in events {
        event.validate()?;
    }
    let ordered: Vec<&NewEvent> =
        insert_order(events).into_iter().map(|position| &events[position]).collect();
    let rows = sqlx::query(outbox.sql(include_str!("sql/append_all.sql")))
        .bind(ordered.iter().map(|e| e.event_id).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.request_id.as_deref()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.aggregate_type.as_str()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.aggregate_id.as_str()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.event_type.as_str()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.payload.as_str()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.headers_json()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.content_hash()).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.max_retries).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.deliver_after.map(millis)).collect::<Vec<_>>())
        .bind(ordered.iter().map(|e| e.expires_after.map(millis)).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let mut ids: HashMap<Uuid, i64> = HashMap::with_capacity(rows.len());
    for row in rows {
        ids.insert(row.try_get(1)?, row.try_get(0)?);
    }
    let repeated: Vec<String> = events
        .iter()
        .filter(|event| !ids.contains_key(&event.event_id))
        .filter_map(|event| event.request_id.clone())
        .collect();
    let known = match repeated.is_empty() {
        true => BTreeMap::new(),
        false => find_keys(connection, outbox, &repeated).await?,
    };
    events
        .iter()
        .map(|event| match ids.get(&event.event_id) {
            Some(id) => Ok(Appended::New { id: *id, event_id: event.event_id.to_string() }),
            None => event
                .request_id
                .as_ref()
                .and_then(|request_id| known.get(request_id))
                .map(|id| Appended::Duplicate { id: *id })
                .ok_or_else(|| sqlx::Error::RowNotFound.into()),
        })
        .collect()
}

async fn find_keys(
    connection: &mut PgConnection,
    outbox: &Outbox,
    request_ids: &[String],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let rows = sqlx::query(outbox.sql(include_str!("sql/find_keys.sql")))
        .bind(request_ids)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// A wait or an age, at most a hundred years: `now() + $1` must stay a date whatever was asked for
/// ("keep for ever" is a way to write a retention).
pub(super) fn millis(duration: Duration) -> i64 {
    const CENTURY_MS: i64 = 100 * 366 * 24 * 3600 * 1000;
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(CENTURY_MS)
}
