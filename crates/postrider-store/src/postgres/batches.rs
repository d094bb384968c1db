//! Counts of a buffer, added to the rows of a table.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::StoreError;
use crate::columns::sql;
use crate::contract::{Batch, Result, TableTarget};

/// Adds the counts of a batch. PostgreSQL says itself what does not fit.
pub(super) async fn add_counts(
    connection: &mut PgConnection,
    target: &TableTarget,
    batch: &Batch,
) -> Result<Option<String>> {
    let of_type = key_type(connection, target).await?;
    // The type's name is the catalogue's own spelling.
    let statement = target.sql(sql!("sql/settle.sql", "batch_upsert")).replace("{type}", &of_type);
    let entries = batch.entries();
    sqlx::query(AssertSqlSafe(statement))
        .bind(entries.iter().map(|entry| entry.field.as_str()).collect::<Vec<_>>())
        .bind(entries.iter().map(|entry| entry.count).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(None)
}

/// The type of the key's column, once the target is known to be usable.
pub(super) async fn key_type(
    connection: &mut PgConnection,
    target: &TableTarget,
) -> Result<String> {
    let (table, key, count) = (target.table(), target.key_column(), target.count_column());
    let found: (Option<String>, Option<String>, bool, bool) =
        sqlx::query_as(sql!("sql/settle.sql", "batch_target"))
            .bind(table)
            .bind(key)
            .bind(count)
            .fetch_one(connection)
            .await?;
    let missing = match &found {
        (_, _, _, false) => format!("the table `{table}` does not exist"),
        (None, ..) => format!("the table `{table}` has no column `{key}`"),
        (_, None, ..) => format!("the table `{table}` has no column `{count}`"),
        (_, _, false, _) => format!(
            "the column `{key}` of the table `{table}` is neither its primary key nor alone in a \
             unique index; counts cannot be added to its rows"
        ),
        (Some(of_type), ..) => return Ok(of_type.clone()),
    };
    Err(StoreError::Schema(missing))
}
