//! The ids of an insert of many rows. The server returns only the first one, so the trigger of the
//! table collects them in a variable of the session.

use sqlx::MySql;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlQueryResult};
use sqlx::query::Query;

/// Maximum number of rows whose ids the trigger can report.
pub const REPORTED_IDS_MAX: u32 = 900;

/// Runs an insert of many rows; returns its result and the ids that the trigger reported.
pub async fn insert_reporting_ids(
    connection: &mut MySqlConnection,
    insert: Query<'_, MySql, MySqlArguments>,
) -> Result<(Result<MySqlQueryResult, sqlx::Error>, Vec<i64>), sqlx::Error> {
    sqlx::query("SET @postrider_ids = ''").execute(&mut *connection).await?;
    let inserted = insert.execute(&mut *connection).await;
    let reported = sqlx::query_scalar::<_, Option<String>>("SELECT CAST(@postrider_ids AS CHAR)")
        .fetch_one(&mut *connection)
        .await;
    sqlx::query("SET @postrider_ids = NULL").execute(&mut *connection).await?;
    let ids = match &inserted {
        Ok(_) => {
            reported?.unwrap_or_default().split(',').filter_map(|id| id.parse().ok()).collect()
        }
        Err(_) => Vec::new(),
    };
    Ok((inserted, ids))
}

/// Converts an id of the server, which are unsigned.
pub fn signed(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}
