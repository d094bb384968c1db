//! Rules of an adopted table beyond its columns.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::adopt::{Fitted, Rule, Rules};
use crate::columns::sql;
use crate::contract::Result;

/// Refuses rules of the tables that cannot be satisfied.
pub(super) async fn check_rules(connection: &mut PgConnection, fitted: &Fitted<'_>) -> Result<()> {
    let letters = match &fitted.adoption.dead_letters {
        Some(letters) => rules(connection, &letters.table).await?,
        None => Rules::default(),
    };
    // Rows of the adopted table satisfy its unique indexes and foreign keys already.
    fitted.check_rules(&Rules::default(), &letters)?;
    check_words(connection, fitted).await
}

async fn rules(connection: &mut PgConnection, table: &str) -> Result<Rules> {
    let found: Vec<(String, bool, Vec<String>)> =
        sqlx::query_as(sql!("sql/adopt.sql", "adopt_rules"))
            .bind(table)
            .fetch_all(connection)
            .await?;
    let mut rules = Rules::default();
    for (name, is_unique, columns) in found {
        let of_its_kind = if is_unique { &mut rules.unique } else { &mut rules.foreign };
        of_its_kind.push(Rule { name, columns });
    }
    Ok(rules)
}

/// Asks the server whether the checks of the status column allow every word.
async fn check_words(connection: &mut PgConnection, fitted: &Fitted<'_>) -> Result<()> {
    let Some((column, type_name)) = fitted.status_column() else { return Ok(()) };
    let words = fitted.status_words();
    let checks: Vec<(String, String)> =
        sqlx::query_as(sql!("sql/adopt.sql", "adopt_status_checks"))
            .bind(&fitted.adoption.table)
            .bind(column)
            .fetch_all(&mut *connection)
            .await?;
    for (check, expression) in checks {
        for (state, word) in &words {
            let ask = format!(
                "SELECT ({expression}) IS NOT FALSE \
                 FROM (SELECT '{word}'::{type_name} AS \"{column}\") AS t"
            );
            // A savepoint, because an expression that fails must not abort the migration's
            // transaction.
            let mut asking = connection.begin().await?;
            let allowed: std::result::Result<bool, _> =
                sqlx::query_scalar(AssertSqlSafe(ask)).fetch_one(&mut *asking).await;
            asking.rollback().await?;
            if !allowed.unwrap_or(false) {
                return Err(fitted.refuse_check(&check, state, word));
            }
        }
    }
    Ok(())
}
