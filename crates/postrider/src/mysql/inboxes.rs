//! Inboxes from outside: books, clean-up, dead letters.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::append::millis;
use super::desk::audit;
use super::{MysqlStore, READ_COMMITTED};
use crate::store::{
    ConsumerBook, InboxCleaned, InboxLetter, Inboxes, Result, StoredLetter, begin, leaving,
    open_letter,
};

#[async_trait]
impl Inboxes for MysqlStore {
    async fn consumer_books(&self) -> Result<Vec<ConsumerBook>> {
        let rows = sqlx::query(include_str!("sql/inbox_books.sql")).fetch_all(&self.pool).await?;
        let book = |row: &MySqlRow| {
            Ok(ConsumerBook {
                consumer: row.try_get(0)?,
                received: row.try_get(1)?,
                ignored: row.try_get(2)?,
                applied: row.try_get(3)?,
                dead: row.try_get(4)?,
                unresolved: row.try_get(5)?,
            })
        };
        rows.iter().map(book).collect()
    }

    async fn fold_inbox_books(&self, chunk: u32) -> Result<u64> {
        let last: Option<i64> = sqlx::query_scalar("SELECT max(id) FROM postrider_inbox_books")
            .fetch_one(&self.pool)
            .await?;
        let mut folded = 0;
        loop {
            let mut tx = self.begin().await?;
            let entries: Vec<i64> =
                sqlx::query_scalar(include_str!("sql/fold_inbox_books_find.sql"))
                    .bind(last.unwrap_or(0))
                    .bind(chunk)
                    .fetch_all(&mut *tx)
                    .await?;
            if !entries.is_empty() {
                let ids = json!(entries).to_string();
                for statement in [
                    include_str!("sql/fold_inbox_books.sql"),
                    include_str!("sql/fold_inbox_books_delete.sql"),
                ] {
                    sqlx::query(statement).bind(&ids).execute(&mut *tx).await?;
                }
            }
            tx.commit().await?;
            folded += entries.len() as u64;
            if entries.len() < chunk as usize {
                return Ok(folded);
            }
        }
    }

    async fn clean_inbox(
        &self,
        consumer: Option<&str>,
        retention: Duration,
        chunk: u32,
    ) -> Result<InboxCleaned> {
        let mut cleaned = InboxCleaned::default();
        loop {
            let step = self.forget(consumer, retention, chunk).await?;
            cleaned.forgotten += step;
            if step < u64::from(chunk) {
                break;
            }
        }
        loop {
            let step = sqlx::query(include_str!("sql/clean_inbox_dlq.sql"))
                .bind(millis(retention))
                .bind(consumer)
                .bind(consumer)
                .bind(chunk)
                .execute(&self.pool)
                .await?
                .rows_affected();
            cleaned.letters += step;
            if step < u64::from(chunk) {
                break;
            }
        }
        loop {
            let step = self.clean_locks(chunk).await?;
            cleaned.locks += step;
            if step < u64::from(chunk) {
                return Ok(cleaned);
            }
        }
    }

    async fn inbox_letters(
        &self,
        consumer: Option<&str>,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<InboxLetter>> {
        let rows = sqlx::query(include_str!("sql/inbox_dlq_list.sql"))
            .bind(consumer)
            .bind(consumer)
            .bind(before_id.unwrap_or(i64::MAX))
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        rows.iter().map(letter).collect()
    }

    async fn resolve_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let consumer = lock_open(&mut tx, id).await?;
        sqlx::query(include_str!("sql/inbox_dlq_resolve.sql"))
            .bind(operator)
            .bind(note)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let detail = format!("consumer {consumer}: {note}");
        audit(&mut tx, operator, "inbox.resolve", "", id, &detail).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn retry_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let consumer = lock_open(&mut tx, id).await?;
        sqlx::query(include_str!("sql/inbox_dlq_ask.sql"))
            .bind(operator)
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let detail = format!("consumer {consumer}: {note}");
        audit(&mut tx, operator, "inbox.retry", "", id, &detail).await?;
        tx.commit().await?;
        Ok(())
    }
}

impl MysqlStore {
    /// One step of forgetting, with what left in the books.
    async fn forget(&self, consumer: Option<&str>, retention: Duration, chunk: u32) -> Result<u64> {
        // Of a pool of the application, too: rows of other consumers are looked at, and not kept locked.
        let mut tx = begin(&self.pool, READ_COMMITTED).await?;
        let old: Vec<(String, String, String)> =
            sqlx::query_as(include_str!("sql/clean_inbox_find.sql"))
                .bind(millis(retention))
                .bind(consumer)
                .bind(consumer)
                .bind(chunk)
                .fetch_all(&mut *tx)
                .await?;
        if old.is_empty() {
            return Ok(0);
        }
        sqlx::query(include_str!("sql/clean_inbox.sql"))
            .bind(json!(old).to_string())
            .execute(&mut *tx)
            .await?;
        for (consumer, (applied, dead)) in leaving(&old) {
            sqlx::query(include_str!("sql/clean_inbox_book.sql"))
                .bind(consumer)
                .bind(applied)
                .bind(dead)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(old.len() as u64)
    }

    async fn clean_locks(&self, chunk: u32) -> Result<u64> {
        let mut tx = self.begin().await?;
        let unused: Vec<String> = sqlx::query_scalar(include_str!("sql/clean_locks_find.sql"))
            .bind(chunk)
            .fetch_all(&mut *tx)
            .await?;
        sqlx::query(include_str!("sql/clean_locks.sql"))
            .bind(json!(unused).to_string())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(unused.len() as u64)
    }
}

/// Locks a letter that can be acted on, or says why it cannot.
async fn lock_open(connection: &mut MySqlConnection, id: i64) -> Result<String> {
    let found = sqlx::query_as(include_str!("sql/inbox_dlq_lock.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    open_letter(id, found)
}

fn letter(row: &MySqlRow) -> Result<InboxLetter> {
    StoredLetter {
        id: row.try_get(0)?,
        consumer: row.try_get(1)?,
        event_id: row.try_get(2)?,
        source: row.try_get(3)?,
        key: row.try_get(4)?,
        headers: row.try_get(5)?,
        payload: row.try_get(6)?,
        error_message: row.try_get(7)?,
        failed_at: row.try_get(8)?,
        retry_asked_at: row.try_get(9)?,
    }
    .read()
}

/// Whether the inbox has that identity, as this transaction sees it.
#[cfg(feature = "kafka-consumer")]
pub(crate) async fn is_known(
    connection: &mut MySqlConnection,
    consumer: &str,
    event_id: &str,
) -> Result<bool, sqlx::Error> {
    let found: i64 = sqlx::query_scalar(include_str!("sql/inbox_known.sql"))
        .bind(consumer)
        .bind(event_id)
        .fetch_one(connection)
        .await?;
    Ok(found > 0)
}

/// The oldest letter that an operator wants handled again and nobody is at, locked.
#[cfg(feature = "kafka-consumer")]
pub(crate) async fn asked_letter(
    connection: &mut MySqlConnection,
    consumer: &str,
) -> Result<Option<InboxLetter>> {
    let row = sqlx::query(include_str!("sql/inbox_dlq_asked.sql"))
        .bind(consumer)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(letter).transpose()
}

/// The letter's message was handled after all, in this transaction.
#[cfg(feature = "kafka-consumer")]
pub(crate) async fn letter_handled(
    connection: &mut MySqlConnection,
    letter: &InboxLetter,
) -> Result<()> {
    sqlx::query(include_str!("sql/inbox_applied.sql"))
        .bind(&letter.consumer)
        .bind(&letter.event_id)
        .execute(&mut *connection)
        .await?;
    sqlx::query(include_str!("sql/inbox_dlq_done.sql")).bind(letter.id).execute(connection).await?;
    Ok(())
}

/// The letter's message failed again.
#[cfg(feature = "kafka-consumer")]
pub(crate) async fn letter_failed(
    connection: &mut MySqlConnection,
    id: i64,
    error: &str,
) -> Result<()> {
    sqlx::query(include_str!("sql/inbox_dlq_failed.sql"))
        .bind(crate::inbox::fit_error(error))
        .bind(id)
        .execute(connection)
        .await?;
    Ok(())
}
