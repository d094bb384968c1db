//! What maintenance does with dead letters and jobs.

use std::time::Duration;

use postrider::Outbox;

use super::row::Row;
use super::search::bind_dlq;
use super::session::SqlStore;
use super::sql;
use super::statement::Value;
use crate::contract::{DlqFilter, OldestLetters, Result, fingerprints};

/// Gives dead letters their fingerprints where an older program left them out; returns how many.
pub(crate) async fn fingerprint_dead_letters<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    chunk: u32,
) -> Result<u64> {
    let rows = store.fetch(sql::DLQ_UNSEEN.on(outbox).bind("limit", chunk)).await?;
    let unseen =
        |row: &Row| Ok((row.number("id")?, row.text("reason")?, row.text("error_message")?));
    let kinds = fingerprints(rows.iter().map(unseen).collect::<Result<_>>()?)?;
    if kinds.is_empty() {
        return Ok(0);
    }
    store.execute(sql::DLQ_FINGERPRINT.on(outbox).bind("kinds", Value::json(&kinds))).await
}

/// Lists unresolved dead letters that fit, oldest first, from one step of a walk over the table.
pub(crate) async fn oldest_dead_letters<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    filter: &DlqFilter,
    after_id: i64,
    limit: u32,
) -> Result<OldestLetters> {
    let window = sql::DLQ_WINDOW.on(outbox).bind("after", after_id).bind("to", i64::MAX);
    let window = store.fetch_one(window.bind("rows", OldestLetters::WINDOW_ROWS)).await?;
    let Some(to) = window.number_or_none("to_id")? else { return Ok(OldestLetters::END) };
    let oldest = bind_dlq(sql::DLQ_OLDEST.on(outbox).filtered(sql::DLQ_FILTER), filter);
    let oldest = oldest.bind("after", after_id).bind("to", to).bind("limit", limit);
    let brief = |row: &Row| {
        let (id, error) = (row.number("id")?, row.text("error_message")?);
        Ok((id, error, row.number("redrive_count")?, row.number("age_ms")?))
    };
    let rows = store.fetch(oldest).await?.iter().map(brief).collect::<Result<_>>()?;
    Ok(OldestLetters::found(rows, limit, to))
}

/// Removes jobs that were done longer ago; returns how many.
pub(crate) async fn clean_jobs<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    age: Duration,
) -> Result<u64> {
    store.execute(sql::CLEAN_JOBS.query().bind("outbox", outbox.name()).bind("age", age)).await
}
