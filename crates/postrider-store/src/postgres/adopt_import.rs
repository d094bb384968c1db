//! The import of the existing rows of an adopted table, one window at a time.

use sqlx::{AssertSqlSafe, PgConnection};

use super::adopt_dialect::Postgres;
use crate::Status;
use crate::adopt::{Clauses, Field, columns_and_values};
use crate::columns::sql;
use crate::contract::{AdoptCursor, AdoptStep, Result};

/// Imports the due rows that are not in the outbox yet, among the next `rows_max` by id.
pub(super) async fn import_rows(
    connection: &mut PgConnection,
    clauses: &Clauses<'_, Postgres>,
    after: Option<&str>,
    rows_max: u32,
) -> Result<AdoptStep> {
    let adoption = clauses.fitted.adoption;
    let after = after.unwrap_or(Postgres::FIRST[usize::from(clauses.fitted.has_uuid())]);
    let own_type = clauses.fitted.columns[&Field::Id].type_name.clone();
    let place = [("adopted", adoption.table.clone()), ("id", clauses.id()), ("type", own_type)];
    let window: Vec<String> = sqlx::query_scalar(AssertSqlSafe(
        clauses.fill(sql!("sql/adopt.sql", "adopt_window"), &place),
    ))
    .bind(after)
    .bind(i64::from(rows_max))
    .fetch_all(&mut *connection)
    .await?;
    let letters = adoption.dead_letters.is_some().then_some(AdoptCursor::Letters(0));
    let Some(last) = window.last() else {
        return Ok(AdoptStep { seen: 0, taken: 0, next: letters });
    };
    let (columns, values) = columns_and_values(&clauses.event("f."));
    // The table's previous relay is gone: the rows that it was processing are due.
    let states = [Status::Pending, Status::Failed, Status::Processing];
    let pieces = [
        &[
            ("columns", columns),
            ("values", values),
            ("due", clauses.due("f.", &states)),
            ("identity", clauses.identity(&format!("f.{}", clauses.id()))),
            ("repeats", clauses.without_repeats("f.")),
            ("given_up", clauses.without_given_up("f.")),
        ],
        &place[..],
    ]
    .concat();
    let taken =
        sqlx::query(AssertSqlSafe(clauses.fill(sql!("sql/adopt.sql", "adopt_import"), &pieces)))
            .bind(after)
            .bind(last)
            .execute(connection)
            .await?
            .rows_affected();
    let next = Some(AdoptCursor::Rows(Some(last.clone())));
    Ok(AdoptStep { seen: window.len() as u64, taken, next })
}

/// Imports unresolved dead letters from before the adoption. The progress is stored: resolved dead
/// letters of the outbox are cleaned up, and a second import would restore them.
pub(super) async fn import_letters(
    connection: &mut PgConnection,
    clauses: &Clauses<'_, Postgres>,
    after: i64,
    rows_max: u32,
) -> Result<AdoptStep> {
    let end = AdoptStep { seen: 0, taken: 0, next: None };
    let Some(table) = clauses.fitted.adoption.dead_letters.as_ref().map(|l| l.table.clone()) else {
        return Ok(end);
    };
    let progress: Option<(i64, i64)> = sqlx::query_as(
        "SELECT letters_done, letters_until FROM postrider_adoptions
         WHERE outbox = $1 AND letters_table = $2 FOR UPDATE",
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
    .bind(i64::from(rows_max))
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
        "UPDATE postrider_adoptions SET letters_done = GREATEST(letters_done, $3)
         WHERE outbox = $1 AND letters_table = $2",
    )
    .bind(clauses.outbox.name())
    .bind(&table)
    .bind(last)
    .execute(connection)
    .await?;
    let next = (!ids.is_empty()).then_some(AdoptCursor::Letters(last));
    Ok(AdoptStep { seen: ids.len() as u64, taken, next })
}
