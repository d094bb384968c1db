//! The prefix of event ids that are made from the integer ids of an adopted table.

use postrider::Outbox;
use sqlx::mysql::MySqlConnection;

use super::adopt_letters::has_table;
use crate::adopt::{new_prefix, prefix_of_name};
use crate::contract::Result;

/// Returns the outbox's prefix, or a new one. An adoption by an older program keeps its own,
/// because events with that prefix may still be in flight.
pub(super) async fn prefix(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<String> {
    if has_table(connection, "postrider_adopted_ids").await? {
        let known = sqlx::query_scalar("SELECT prefix FROM postrider_adopted_ids WHERE outbox = ?")
            .bind(outbox.name())
            .fetch_optional(&mut *connection)
            .await?;
        if let Some(known) = known {
            return Ok(known);
        }
    }
    Ok(match is_adopted(connection, outbox).await? {
        true => prefix_of_name(outbox),
        false => new_prefix(),
    })
}

/// Returns the SQL that stores the prefix; the values were validated or generated here.
pub(super) fn keep_prefix(outbox: &Outbox, prefix: &str) -> String {
    format!(
        "INSERT INTO postrider_adopted_ids (outbox, prefix) VALUES ('{}', '{prefix}')\n\
         ON DUPLICATE KEY UPDATE prefix = VALUES(prefix);\n",
        outbox.name()
    )
}

/// Deletes the prefix when the outbox is dropped.
pub(super) async fn forget_prefix(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<()> {
    if has_table(connection, "postrider_adopted_ids").await? {
        sqlx::query("DELETE FROM postrider_adopted_ids WHERE outbox = ?")
            .bind(outbox.name())
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Returns whether the outbox has an adopted table: it has the index that is created first and
/// dropped last.
pub(super) async fn is_adopted(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<bool> {
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.STATISTICS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND INDEX_NAME = ?",
    )
    .bind(outbox.table())
    .bind(format!("{}_adopted", outbox.table()))
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}
