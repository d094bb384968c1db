//! Separates dead letters of an adopted table from before the adoption from copies of the outbox's
//! own.

use postrider::Outbox;
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use crate::OutboxSpec;
use crate::adopt::{Adoption, LetterField};
use crate::contract::Result;

/// Returns the SQL that marks the dead letters from before the adoption, or from a time without
/// one. The names are validated.
pub(super) fn mark_letters(spec: &OutboxSpec, adoption: &Adoption) -> Option<String> {
    let letters = adoption.dead_letters.as_ref()?;
    Some(format!(
        "INSERT INTO postrider_adoptions (outbox, letters_table, letters_id, letters_until)\n\
         SELECT '{outbox}', '{table}', '{id}', COALESCE(MAX(`{id}`), 0) FROM `{table}`\n\
         ON DUPLICATE KEY UPDATE letters_id = VALUES(letters_id),\n    \
             letters_until = IF(ended, VALUES(letters_until), letters_until), ended = FALSE;\n",
        outbox = spec.outbox.name(),
        id = letters.columns[&LetterField::Id],
        table = letters.table,
    ))
}

/// Records that new dead letters in tables other than `kept` do not belong to this outbox any more.
/// Existing ones are known, unless their import has not reached the end.
pub(super) async fn end_letters(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    kept: Option<&str>,
) -> Result<()> {
    if !has_table(connection, "postrider_adoptions").await? {
        return Ok(());
    }
    let ending: Vec<(String, String)> = sqlx::query_as(
        "SELECT letters_table, letters_id FROM postrider_adoptions
         WHERE outbox = ? AND NOT ended AND letters_table <> ?",
    )
    .bind(outbox.name())
    .bind(kept.unwrap_or_default())
    .fetch_all(&mut *connection)
    .await?;
    for (table, id) in ending {
        let last: i64 = match has_table(connection, &table).await? {
            true => {
                let last =
                    format!("SELECT CAST(COALESCE(MAX(`{id}`), 0) AS SIGNED) FROM `{table}`");
                sqlx::query_scalar(AssertSqlSafe(last)).fetch_one(&mut *connection).await?
            }
            false => 0,
        };
        sqlx::query(
            "UPDATE postrider_adoptions
             SET letters_done = IF(letters_done < letters_until, letters_done, ?), ended = TRUE
             WHERE outbox = ? AND letters_table = ?",
        )
        .bind(last)
        .bind(outbox.name())
        .bind(table)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Deletes all marks when the outbox is dropped.
pub(super) async fn forget_letters(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
) -> Result<()> {
    if has_table(connection, "postrider_adoptions").await? {
        sqlx::query("DELETE FROM postrider_adoptions WHERE outbox = ?")
            .bind(outbox.name())
            .execute(connection)
            .await?;
    }
    Ok(())
}

pub(super) async fn has_table(connection: &mut MySqlConnection, table: &str) -> Result<bool> {
    let tables: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.TABLES
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
    )
    .bind(table)
    .fetch_one(connection)
    .await?;
    Ok(tables > 0)
}
