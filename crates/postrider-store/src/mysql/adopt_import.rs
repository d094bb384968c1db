//! The import of the existing rows of an adopted table, one window at a time.

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use super::adopt_dialect::Mysql;
use crate::Status;
use crate::adopt::{Clauses, columns_and_values};
use crate::columns::sql;
use crate::contract::{AdoptCursor, AdoptStep, Result};

/// Imports the due rows that are not in the outbox yet, among the next `rows_max` by id.
pub(super) async fn import_rows(
    connection: &mut MySqlConnection,
    clauses: &Clauses<'_, Mysql>,
    after: Option<&str>,
    rows_max: u32,
) -> Result<AdoptStep> {
    let adoption = clauses.fitted.adoption;
    let after = after.unwrap_or(Mysql::FIRST[usize::from(clauses.fitted.has_uuid())]);
    // A text that is compared with an integer would be compared as a float.
    let own = if clauses.fitted.has_uuid() { "?" } else { "CAST(? AS SIGNED)" };
    let place =
        [("adopted", adoption.table.clone()), ("id", clauses.id()), ("own", own.to_owned())];
    let window: Vec<String> = sqlx::query_scalar(AssertSqlSafe(
        clauses.fill(sql!("sql/adopt.sql", "adopt_window"), &place),
    ))
    .bind(after)
    .bind(rows_max)
    .fetch_all(&mut *connection)
    .await?;
    let letters = adoption.dead_letters.is_some().then_some(AdoptCursor::Letters(0));
    let Some(last) = window.last() else {
        return Ok(AdoptStep { seen: 0, taken: 0, next: letters });
    };
    let next = Some(AdoptCursor::Rows(Some(last.clone())));
    // The table's previous relay is gone: the rows that it was processing are due.
    let states = [Status::Pending, Status::Failed, Status::Processing];
    let pieces = [
        &[
            ("due", clauses.due("f.", &states)),
            ("identity", clauses.identity(&format!("f.{}", clauses.id()))),
            ("repeats", clauses.without_repeats("f.")),
            ("given_up", clauses.without_given_up("f.")),
        ],
        &place[..],
    ]
    .concat();
    let due: Vec<String> = sqlx::query_scalar(AssertSqlSafe(
        clauses.fill(sql!("sql/adopt.sql", "adopt_find"), &pieces),
    ))
    .bind(after)
    .bind(last)
    .fetch_all(&mut *connection)
    .await?;
    if due.is_empty() {
        return Ok(AdoptStep { seen: window.len() as u64, taken: 0, next });
    }
    let (columns, values) = columns_and_values(&clauses.event("f."));
    let ids = vec![own; due.len()].join(", ");
    let pieces = [&[("columns", columns), ("values", values), ("ids", ids)], &place[..]].concat();
    let sql = AssertSqlSafe(clauses.fill(sql!("sql/adopt.sql", "adopt_import"), &pieces));
    // The statement differs with the number of ids, so it is not kept as a prepared statement.
    let mut insert = sqlx::query(sql).persistent(false);
    for id in &due {
        insert = insert.bind(id);
    }
    let taken = insert.execute(connection).await?.rows_affected();
    Ok(AdoptStep { seen: window.len() as u64, taken, next })
}

/// Imports unresolved dead letters from before the adoption. The progress is stored: resolved dead
/// letters of the outbox are cleaned up, and a second import would restore them.
pub(super) async fn import_letters(
    connection: &mut MySqlConnection,
    clauses: &Clauses<'_, Mysql>,
    after: i64,
    rows_max: u32,
) -> Result<AdoptStep> {
    let end = AdoptStep { seen: 0, taken: 0, next: None };
    let Some(table) = clauses.fitted.adoption.dead_letters.as_ref().map(|l| l.table.clone()) else {
        return Ok(end);
    };
    let progress: Option<(i64, i64)> = sqlx::query_as(
        "SELECT letters_done, letters_until FROM postrider_adoptions
         WHERE outbox = ? AND letters_table = ? FOR UPDATE",
    )
    .bind(clauses.outbox.name())
    .bind(&table)
    .fetch_optional(&mut *connection)
    .await?;
    let Some((done, until)) = progress else { return Ok(end) };
    let place = [("letters", table.clone()), ("id", clauses.letter_id())];
    let window = [&place[..], &[("unresolved", clauses.unresolved("f."))]].concat();
    let ids: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(
        clauses.fill(sql!("sql/adopt.sql", "adopt_letter_window"), &window),
    ))
    .bind(after.max(done))
    .bind(until)
    .bind(rows_max)
    .fetch_all(&mut *connection)
    .await?;
    // At the end, skips to the mark: earlier dead letters are known, and later ones are copies.
    let last = ids.last().copied().unwrap_or(until);
    let (columns, values) = columns_and_values(&clauses.imported_letter("f."));
    let pieces = [
        &place[..],
        &[
            ("columns", columns),
            ("values", values),
            ("identity", clauses.letter_identity("f.")),
            ("alive", clauses.without_living("f.")),
        ],
    ]
    .concat();
    let sql = clauses.fill(sql!("sql/adopt.sql", "adopt_letter"), &pieces);
    let mut taken = 0;
    for id in &ids {
        let one = sqlx::query(AssertSqlSafe(sql.clone())).bind(id).execute(&mut *connection);
        taken += one.await?.rows_affected();
    }
    sqlx::query(
        "UPDATE postrider_adoptions SET letters_done = GREATEST(letters_done, ?)
         WHERE outbox = ? AND letters_table = ?",
    )
    .bind(last)
    .bind(clauses.outbox.name())
    .bind(&table)
    .execute(connection)
    .await?;
    let next = (!ids.is_empty()).then_some(AdoptCursor::Letters(last));
    Ok(AdoptStep { seen: ids.len() as u64, taken, next })
}
