//! Rules of an adopted table beyond its columns.

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use crate::adopt::{Fitted, Rule, Rules};
use crate::columns::sql;
use crate::contract::Result;

/// Refuses rules of the tables that cannot be satisfied.
pub(super) async fn check_rules(
    connection: &mut MySqlConnection,
    fitted: &Fitted<'_>,
) -> Result<()> {
    let without_transactions = engine(connection, &fitted.adoption.table).await?;
    let table = Rules { without_transactions, ..Rules::default() };
    let letters = match &fitted.adoption.dead_letters {
        Some(letters) => rules(connection, &letters.table).await?,
        None => Rules::default(),
    };
    fitted.check_rules(&table, &letters)?;
    check_words(connection, fitted).await
}

/// Returns the engine of a table, if it has no transactions.
async fn engine(connection: &mut MySqlConnection, table: &str) -> Result<Option<String>> {
    let found = sqlx::query_scalar(
        "SELECT t.ENGINE FROM information_schema.TABLES AS t
         JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE
         WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?
           AND COALESCE(e.TRANSACTIONS, 'NO') <> 'YES'",
    );
    Ok(found.bind(table).fetch_optional(connection).await?)
}

async fn rules(connection: &mut MySqlConnection, table: &str) -> Result<Rules> {
    let found: Vec<(String, bool, String)> = sqlx::query_as(sql!("sql/adopt.sql", "adopt_rules"))
        .bind(table)
        .bind(table)
        .fetch_all(&mut *connection)
        .await?;
    let without_transactions = engine(connection, table).await?;
    let mut rules = Rules { without_transactions, ..Rules::default() };
    for (name, is_unique, columns) in found {
        let columns = columns.split(',').map(str::to_owned).collect();
        let of_its_kind = if is_unique { &mut rules.unique } else { &mut rules.foreign };
        of_its_kind.push(Rule { name, columns });
    }
    Ok(rules)
}

/// Asks the server whether the checks allow every word of the status column.
async fn check_words(connection: &mut MySqlConnection, fitted: &Fitted<'_>) -> Result<()> {
    let Some((column, _)) = fitted.status_column() else { return Ok(()) };
    let words = fitted.status_words();
    let checks: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.CONSTRAINT_NAME, c.CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS AS c
         /*!80000 JOIN information_schema.TABLE_CONSTRAINTS
             USING (CONSTRAINT_SCHEMA, CONSTRAINT_NAME) */
         WHERE c.CONSTRAINT_SCHEMA = DATABASE() AND TABLE_NAME = ?",
    )
    .bind(&fitted.adoption.table)
    .fetch_all(&mut *connection)
    .await?;
    for (check, clause) in checks {
        // MySQL shows quotes as `\'`. A check in which they are part of a text fails below.
        let clause = clause.replace("\\'", "'");
        for (state, word) in &words {
            let ask =
                format!("SELECT ({clause}) IS NOT FALSE FROM (SELECT '{word}' AS `{column}`) AS t");
            let allowed: std::result::Result<bool, _> = sqlx::query_scalar(AssertSqlSafe(ask))
                .persistent(false)
                .fetch_one(&mut *connection)
                .await;
            // An error means that the check also involves other columns, so the word alone does not
            // decide.
            if allowed.is_ok_and(|allowed| !allowed) {
                return Err(fitted.refuse_check(&check, state, word));
            }
        }
    }
    Ok(())
}
