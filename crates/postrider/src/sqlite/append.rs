//! Appending in the application's own transaction.

use std::collections::{BTreeMap, HashMap};

use sqlx::{Row, SqliteConnection};

use super::plus;
use crate::append::insert_order;
use crate::{AppendError, Appended, NewEvent, Outbox};

/// Events per statement of [`append_all`], which bounds the JSON text that carries them.
const CHUNK: usize = 500;

/// Appends one event in the caller's transaction. It is delivered once that commits.
///
/// # Errors
/// [`AppendError::Invalid`] before anything is sent; [`AppendError::Database`] otherwise. The
/// transaction lives on; after `SQLITE_BUSY` repeat it from its beginning.
pub async fn append(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    event: &NewEvent,
) -> Result<Appended, AppendError> {
    event.validate()?;
    let id: Option<i64> = sqlx::query_scalar(outbox.sql(include_str!("sql/append.sql")))
        .bind(event.event_id.to_string())
        .bind(&event.request_id)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(&event.event_type)
        .bind(&event.payload)
        .bind(event.headers_json())
        .bind(event.content_hash())
        .bind(event.max_retries)
        .bind(event.deliver_after.map(plus))
        .bind(event.expires_after.map(plus))
        .fetch_optional(&mut *connection)
        .await?;
    match (id, &event.request_id) {
        (Some(id), _) => Ok(Appended::New { id, event_id: event.event_id.to_string() }),
        (None, Some(request_id)) => {
            let known = find_keys(connection, outbox, &[request_id]).await?;
            let id = known.get(request_id).copied().ok_or(sqlx::Error::RowNotFound)?;
            Ok(Appended::Duplicate { id })
        }
        (None, None) => Err(sqlx::Error::RowNotFound.into()),
    }
}

/// Appends many events with few statements. Answers in the order given; a `request_id` that occurs
/// twice in the batch is new once.
///
/// # Errors
/// As [`append`]; one invalid event refuses the batch before anything is sent.
pub async fn append_all(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    events: &[NewEvent],
) -> Result<Vec<Appended>, AppendError> {
    for event in events {
        event.validate()?;
    }
    let ordered: Vec<&NewEvent> =
        insert_order(events).into_iter().map(|position| &events[position]).collect();
    let mut ids: HashMap<String, i64> = HashMap::with_capacity(events.len());
    for chunk in ordered.chunks(CHUNK) {
        let rows = sqlx::query(outbox.sql(include_str!("sql/append_all.sql")))
            .bind(rows_json(chunk)?)
            .fetch_all(&mut *connection)
            .await?;
        for row in rows {
            ids.insert(row.try_get(1)?, row.try_get(0)?);
        }
    }
    let repeated: Vec<&String> = events
        .iter()
        .filter(|event| !ids.contains_key(&event.event_id.to_string()))
        .filter_map(|event| event.request_id.as_ref())
        .collect();
    let known = match repeated.is_empty() {
        true => BTreeMap::new(),
        false => find_keys(connection, outbox, &repeated).await?,
    };
    events
        .iter()
        .map(|event| match ids.get(&event.event_id.to_string()) {
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

/// The columns in the order of `append_all.sql`.
fn rows_json(events: &[&NewEvent]) -> Result<String, sqlx::Error> {
    let rows: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e.event_id.to_string(),
                &e.request_id,
                &e.aggregate_type,
                &e.aggregate_id,
                &e.event_type,
                &e.payload,
                e.headers_json(),
                e.content_hash(),
                e.max_retries,
                e.deliver_after.map(plus),
                e.expires_after.map(plus),
            )
        })
        .collect();
    serde_json::to_string(&rows).map_err(|error| sqlx::Error::Encode(error.into()))
}

async fn find_keys(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    request_ids: &[&String],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let wanted =
        serde_json::to_string(request_ids).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let rows = sqlx::query(outbox.sql(include_str!("sql/find_keys.sql")))
        .bind(wanted)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
