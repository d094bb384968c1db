//! Separates dead letters of an adopted table from before the adoption from copies of the outbox's
//! own.

use postrider::Outbox;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::OutboxSpec;
use crate::adopt::{Adoption, LetterField};
use crate::contract::Result;

/// Returns the SQL that marks the dead letters from before the adoption, or from a time without
/// one. The names are validated.
pub(super) fn mark_letters(spec: &OutboxSpec, adoption: &Adoption) -> String {
    let Some(letters) = &adoption.dead_letters else { return String::new() };
    format!(
        "INSERT INTO postrider_adoptions AS known\n\
         (outbox, letters_table, letters_id, letters_until)\n\
         SELECT '{outbox}', '{table}', '{id}', coalesce(max(\"{id}\"), 0) FROM \"{table}\"\n\
         ON CONFLICT (outbox, letters_table) DO UPDATE SET letters_id = excluded.letters_id,\n    \
             letters_until = CASE WHEN known.ended THEN excluded.letters_until\n        \
                 ELSE known.letters_until END, ended = false;\n",
        outbox = spec.outbox.name(),
        id = letters.columns[&LetterField::Id],
        table = letters.table,
    )
}

/// Records that new dead letters in tables other than `kept` do not belong to this outbox any more.
/// Existing ones are known, unless their import has not reached the end.
pub(super) async fn end_letters(
    connection: &mut PgConnection,
    outbox: &Outbox,
    kept: Option<&str>,
) -> Result<()> {
    if !has_table(connection, "postrider_adoptions").await? {
        return Ok(());
    }
    let ending: Vec<(String, String)> = sqlx::query_as(
        "SELECT letters_table, letters_id FROM postrider_adoptions
         WHERE outbox = $1 AND NOT ended AND letters_table <> $2",
    )
    .bind(outbox.name())
    .bind(kept.unwrap_or_default())
    .fetch_all(&mut *connection)
    .await?;
    for (table, id) in ending {
        let last: i64 = match has_table(connection, &table).await? {
            true => {
                let last = format!("SELECT coalesce(max(\"{id}\"), 0)::bigint FROM \"{table}\"");
                sqlx::query_scalar(AssertSqlSafe(last)).fetch_one(&mut *connection).await?
            }
            false => 0,
        };
        sqlx::query(
            "UPDATE postrider_adoptions SET ended = true,
                 letters_done = CASE WHEN letters_done < letters_until THEN letters_done ELSE $3 END
             WHERE outbox = $1 AND letters_table = $2",
        )
        .bind(outbox.name())
        .bind(table)
        .bind(last)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Deletes all marks when the outbox is dropped.
pub(super) async fn forget_letters(connection: &mut PgConnection, outbox: &Outbox) -> Result<()> {
    if has_table(connection, "postrider_adoptions").await? {
        sqlx::query("DELETE FROM postrider_adoptions WHERE outbox = $1")
            .bind(outbox.name())
            .execute(connection)
            .await?;
    }
    Ok(())
}

pub(super) async fn has_table(connection: &mut PgConnection, table: &str) -> Result<bool> {
    let found = sqlx::query_scalar("SELECT to_regclass(quote_ident($1)) IS NOT NULL").bind(table);
    Ok(found.fetch_one(connection).await?)
}
