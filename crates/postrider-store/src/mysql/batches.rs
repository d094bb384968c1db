//! Counts of a buffer, added to the rows of a table.

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use crate::StoreError;
use crate::columns::sql;
use crate::contract::{Batch, Result, TableTarget};

/// Rows of one INSERT; the server takes 65,535 parameters and packets of 16 MiB.
const UPSERT_ROWS_MAX: usize = 1_000;

/// Adds the counts of a batch. MariaDB says itself what does not fit.
pub(super) async fn add_counts(
    connection: &mut MySqlConnection,
    target: &TableTarget,
    batch: &Batch,
) -> Result<Option<String>> {
    check_table(connection, target).await?;
    for entries in batch.entries().chunks(UPSERT_ROWS_MAX) {
        let rows = vec!["(?, ?)"; entries.len()].join(", ");
        let statement = target.sql(sql!("sql/settle.sql", "batch_upsert")).replace("{rows}", &rows);
        let mut query = sqlx::query(AssertSqlSafe(statement));
        for entry in entries {
            query = query.bind(&entry.field).bind(entry.count);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(None)
}

/// Without a unique key every flush would add rows instead of counts, and no one would notice.
pub(super) async fn check_table(
    connection: &mut MySqlConnection,
    target: &TableTarget,
) -> Result<()> {
    let (table, key, count) = (target.table(), target.key_column(), target.count_column());
    let (exists, has_key, has_count, unique): (i64, i64, i64, i64) =
        sqlx::query_as(sql!("sql/settle.sql", "batch_target"))
            .bind(table)
            .bind(table)
            .bind(key)
            .bind(table)
            .bind(count)
            .bind(table)
            .bind(key)
            .fetch_one(connection)
            .await?;
    let missing = match (exists > 0, has_key > 0, has_count > 0, unique > 0) {
        (false, ..) => format!("the table `{table}` does not exist"),
        (_, false, ..) => format!("the table `{table}` has no column `{key}`"),
        (_, _, false, _) => format!("the table `{table}` has no column `{count}`"),
        (_, _, _, false) => format!(
            "the column `{key}` of the table `{table}` is neither its primary key nor alone in a \
             unique index, or only its beginning is (a prefix index); counts cannot be added to \
             its rows"
        ),
        (true, true, true, true) => return Ok(()),
    };
    Err(StoreError::Schema(missing))
}
