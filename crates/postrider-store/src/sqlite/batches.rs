//! Counts of a buffer, added to the rows of a table.

use sqlx::{AssertSqlSafe, SqliteConnection};

use super::json;
use crate::StoreError;
use crate::columns::sql;
use crate::contract::{Batch, Result, TableTarget};

/// Adds the counts of a batch. `Some`: a sum that SQLite would turn into a fraction.
pub(super) async fn add_counts(
    connection: &mut SqliteConnection,
    target: &TableTarget,
    batch: &Batch,
) -> Result<Option<String>> {
    let entries: Vec<_> = batch.entries().iter().map(|e| (&e.field, e.count)).collect();
    let statement = target.sql(sql!("sql/settle.sql", "batch_upsert"));
    let upsert = sqlx::query(AssertSqlSafe(statement)).bind(json(&entries)?);
    let upserted = upsert.execute(connection).await?;
    let is_whole = upserted.rows_affected() >= entries.len() as u64;
    Ok((!is_whole).then(|| "a sum does not fit into 64 bits".to_owned()))
}

/// Only prepares the statement: SQLite names the table, column or unique key that is missing.
pub(super) async fn check_table(
    connection: &mut SqliteConnection,
    target: &TableTarget,
) -> Result<()> {
    let statement = format!("EXPLAIN {}", target.sql(sql!("sql/settle.sql", "batch_upsert")));
    let explained = sqlx::query(AssertSqlSafe(statement)).bind("[]").fetch_all(connection).await;
    match explained {
        Ok(_) => Ok(()),
        Err(error)
            if error.as_database_error().is_some_and(|e| e.code().as_deref() == Some("1")) =>
        {
            Err(StoreError::Schema(format!(
                "counts cannot be added to the table `{}`, key `{}`, count `{}`: {error}",
                target.table(),
                target.key_column(),
                target.count_column()
            )))
        }
        Err(error) => Err(error.into()),
    }
}
