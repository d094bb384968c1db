//! Appends in the application's own transaction. Works with any time zone, isolation level and SQL
//! mode of its session.

use std::collections::{HashMap, HashSet};

use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql};

use super::reported_ids::{insert_reporting_ids, signed};
use super::{DUPLICATE_ENTRY, error_number};
use crate::append::insert_order;
use crate::duration::millis;
use crate::internal::sql;
use crate::{AppendError, Appended, NewEvent, Outbox};

/// Maximum number of rows and bytes per INSERT; the server's default packet limit is 16 MiB.
const INSERT_ROWS_MAX: usize = 500;
const INSERT_BYTES_MAX: usize = 1024 * 1024;
/// Approximate number of bytes of a row besides payload and headers.
const ROW_BYTES: usize = 1024;
/// With `dedupe = "open"`, the first event may leave the outbox between the refusal of its repeat
/// and the lookup of its id. Then the repeat becomes the first; if that happens this often in a
/// row, it is an error.
const FREED_MEANWHILE_MAX: usize = 10;

/// Appends one event in the caller's transaction. It is delivered after the commit.
///
/// # Errors
/// [`AppendError::Invalid`] before anything is sent; [`AppendError::Database`] otherwise.
pub async fn append(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    event: &NewEvent,
) -> Result<Appended, AppendError> {
    event.validate()?;
    let mut repeats = 0;
    loop {
        let query = sqlx::query(outbox.sql(sql!("sql/append.sql", "append")));
        let refused = match bind_event(query, event).execute(&mut *connection).await {
            Ok(done) => return Ok(new(event, signed(done.last_insert_id()))),
            Err(error) if is_repeat(&error, outbox) => error,
            Err(error) => return Err(error.into()),
        };
        let id: Option<i64> = sqlx::query_scalar(outbox.sql(sql!("sql/append.sql", "find_key")))
            .bind(&event.request_id)
            .fetch_optional(&mut *connection)
            .await?;
        repeats += 1;
        match id {
            Some(id) => return Ok(Appended::Duplicate { id }),
            None if repeats >= FREED_MEANWHILE_MAX => return Err(refused.into()),
            None => {}
        }
    }
}

/// Appends many events with few statements. Returns the results in the given order; a `request_id`
/// that occurs twice in the batch is new once.
///
/// # Errors
/// The errors of [`append`]; one invalid event refuses the batch before anything is sent.
pub async fn append_all(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    events: &[NewEvent],
) -> Result<Vec<Appended>, AppendError> {
    for event in events {
        event.validate()?;
    }
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut repeated: Vec<(usize, usize)> = Vec::new();
    let mut order = Vec::with_capacity(events.len());
    for position in insert_order(events) {
        match events[position].request_id.as_deref().map(|id| *first.entry(id).or_insert(position))
        {
            Some(known) if known != position => repeated.push((position, known)),
            _ => order.push(position),
        }
    }
    let mut answers: HashMap<usize, Appended> = HashMap::with_capacity(events.len());
    for chunk in chunks(events, &order) {
        append_chunk(connection, outbox, events, chunk, &mut answers).await?;
    }
    for (position, known) in repeated {
        if let Some(id) = answers.get(&known).map(Appended::id) {
            answers.insert(position, Appended::Duplicate { id });
        }
    }
    (0..events.len())
        .map(|position| answers.remove(&position).ok_or_else(|| sqlx::Error::RowNotFound.into()))
        .collect()
}

/// Inserts a chunk with one statement. If a repeat makes it fail, inserts known events one by one
/// and the runs between them together. The order is kept, because ids ascend with it.
async fn append_chunk(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    events: &[NewEvent],
    chunk: &[usize],
    answers: &mut HashMap<usize, Appended>,
) -> Result<(), AppendError> {
    if insert_rows(connection, outbox, events, chunk, answers).await? {
        return Ok(());
    }
    let request_ids: Vec<&str> =
        chunk.iter().filter_map(|position| events[*position].request_id.as_deref()).collect();
    let known = known_requests(connection, outbox, &request_ids).await?;
    let is_known =
        |position: usize| events[position].request_id.as_ref().is_some_and(|id| known.contains(id));
    for run in chunk.chunk_by(|a, b| !is_known(*a) && !is_known(*b)) {
        if run.len() > 1 && insert_rows(connection, outbox, events, run, answers).await? {
            continue;
        }
        for position in run {
            let answer = append(connection, outbox, &events[*position]).await?;
            answers.insert(*position, answer);
        }
    }
    Ok(())
}

/// Inserts rows with one statement and gets their ids from the trigger: those of a multi-row INSERT
/// are not always consecutive, and by the time the rows could be read back they may have been
/// delivered. Returns `false` if a repeated request id rolled the statement back.
async fn insert_rows(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    events: &[NewEvent],
    positions: &[usize],
    answers: &mut HashMap<usize, Appended>,
) -> Result<bool, AppendError> {
    let AssertSqlSafe(mut statement) = outbox.sql(sql!("sql/append.sql", "append"));
    let row = statement.rfind("VALUES").map(|at| statement[at + "VALUES".len()..].to_owned());
    for _ in 1..positions.len() {
        statement.push(',');
        statement.push_str(row.as_deref().unwrap_or_default());
    }
    // Not kept as a prepared statement: the next batch has another number of rows.
    let query = sqlx::query(AssertSqlSafe(statement)).persistent(false);
    let query =
        positions.iter().fold(query, |query, position| bind_event(query, &events[*position]));
    let (inserted, ids) = insert_reporting_ids(connection, query).await?;
    match inserted {
        Ok(_) => {}
        Err(error) if is_repeat(&error, outbox) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    if ids.len() != positions.len() {
        let problem = format!("trigger {}_appended is missing or altered", outbox.table());
        return Err(sqlx::Error::Protocol(problem).into());
    }
    for (position, id) in positions.iter().zip(ids) {
        answers.insert(*position, new(&events[*position], id));
    }
    Ok(true)
}

/// Returns which of these request ids are remembered: an append with one of them would be a
/// duplicate. Writes nothing.
///
/// # Errors
/// If the database does not answer.
pub async fn known_requests(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    request_ids: &[&str],
) -> Result<HashSet<String>, sqlx::Error> {
    let known: Vec<String> = sqlx::query_scalar(outbox.sql(sql!("sql/append.sql", "find_keys")))
        .bind(serde_json::json!(request_ids).to_string())
        .fetch_all(connection)
        .await?;
    Ok(known.into_iter().collect())
}

/// Splits a batch into statements of limited size; one large event is sent alone.
fn chunks<'a>(events: &[NewEvent], mut order: &'a [usize]) -> Vec<&'a [usize]> {
    let mut chunks = Vec::new();
    while !order.is_empty() {
        let mut bytes = 0;
        let fitting = order
            .iter()
            .take(INSERT_ROWS_MAX)
            .take_while(|position| {
                let event = &events[**position];
                bytes += event.payload.len() + ROW_BYTES;
                bytes += event.headers.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
                bytes <= INSERT_BYTES_MAX
            })
            .count();
        let (chunk, rest) = order.split_at(fitting.max(1));
        chunks.push(chunk);
        order = rest;
    }
    chunks
}

type MySqlQuery<'q> = Query<'q, MySql, MySqlArguments>;

fn bind_event<'q>(query: MySqlQuery<'q>, event: &'q NewEvent) -> MySqlQuery<'q> {
    query
        .bind(event.event_id.to_string())
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
}

fn new(event: &NewEvent, id: i64) -> Appended {
    Appended::New { id, event_id: event.event_id.to_string() }
}

/// Returns whether the trigger refused a repeated request id. The message ends with the key in any
/// language; MySQL puts its table before it.
fn is_repeat(error: &sqlx::Error, outbox: &Outbox) -> bool {
    let key = format!("{}_keys'", outbox.table());
    error_number(error) == Some(DUPLICATE_ENTRY)
        && error.as_database_error().is_some_and(|error| error.message().contains(&key))
}
