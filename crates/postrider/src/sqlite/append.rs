//! Appends in the application's own transaction.

use std::collections::{BTreeMap, HashSet};

use sqlx::{Row, SqliteConnection};

use crate::append::insert_order;
use crate::duration::plus;
use crate::internal::sql;
use crate::{AppendError, Appended, NewEvent, Outbox};

/// Number of events per statement of [`append_all`], which limits the size of its JSON text.
const CHUNK: usize = 500;

/// Appends one event in the caller's transaction. It is delivered after the commit.
///
/// # Errors
/// [`AppendError::Invalid`] before anything is sent; [`AppendError::Database`] otherwise. The
/// transaction stays open; after `SQLITE_BUSY` repeat it from its beginning.
pub async fn append(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    event: &NewEvent,
) -> Result<Appended, AppendError> {
    event.validate()?;
    let id: Option<i64> = sqlx::query_scalar(outbox.sql(sql!("sql/append.sql", "append")))
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

/// Appends many events with few statements. Returns the results in the given order; a `request_id`
/// that occurs twice in the batch is new once.
///
/// # Errors
/// The errors of [`append`]; one invalid event refuses the batch before anything is sent.
pub async fn append_all(
    connection: &mut SqliteConnection,
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
        let event_id = event.event_id.to_string();
        let fits = |row: &Inserted| row.1 == event_id && row.2 == event.request_id;
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
    events
        .iter()
        .zip(ids)
        .map(|(event, id)| match id {
            Some(id) => Ok(Appended::New { id, event_id: event.event_id.to_string() }),
            // Unlike on other stores, the request id cannot become free: this transaction has the
            // write lock.
            None => event
                .request_id
                .as_ref()
                .and_then(|request_id| known.get(request_id))
                .map(|id| Appended::Duplicate { id: *id })
                .ok_or_else(|| sqlx::Error::RowNotFound.into()),
        })
        .collect()
}

/// Row id, event id, request id.
type Inserted = (i64, String, Option<String>);

async fn insert_all(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    events: &[&NewEvent],
) -> Result<Vec<Inserted>, sqlx::Error> {
    let mut inserted: Vec<Inserted> = Vec::with_capacity(events.len());
    for chunk in events.chunks(CHUNK) {
        let rows = sqlx::query_as(outbox.sql(sql!("sql/append.sql", "append_all")))
            .bind(rows_json(chunk)?)
            .fetch_all(&mut *connection)
            .await?;
        inserted.extend(rows);
    }
    // SQLite does not guarantee the order of RETURNING.
    inserted.sort_unstable_by_key(|row| row.0);
    Ok(inserted)
}

/// Formats the columns in the order of `append_all.sql`.
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

/// Returns which of these request ids are remembered: an append with one of them would be a
/// duplicate. Writes nothing.
///
/// # Errors
/// If the database does not answer.
pub async fn known_requests(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    request_ids: &[&str],
) -> Result<HashSet<String>, sqlx::Error> {
    Ok(find_keys(connection, outbox, request_ids).await?.into_keys().collect())
}

async fn find_keys(
    connection: &mut SqliteConnection,
    outbox: &Outbox,
    request_ids: &[&str],
) -> Result<BTreeMap<String, i64>, sqlx::Error> {
    let wanted =
        serde_json::to_string(request_ids).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let rows = sqlx::query(outbox.sql(sql!("sql/append.sql", "find_keys")))
        .bind(wanted)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
