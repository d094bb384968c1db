//! Inboxes from outside: books, clean-up, dead letters.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::PostgresStore;
use super::append::millis;
use super::desk::audit;
use crate::store::{
    ConsumerBook, InboxCleaned, InboxLetter, Inboxes, Result, StoredLetter, open_letter,
};

#[async_trait]
impl Inboxes for PostgresStore {
    async fn consumer_books(&self) -> Result<Vec<ConsumerBook>> {
        let mut tx = self.begin().await?;
        // It reads everything: here a sequential scan is the right plan.
        sqlx::raw_sql("SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on")
            .execute(&mut *tx)
            .await?;
        let rows = sqlx::query(include_str!("sql/inbox_books.sql")).fetch_all(&mut *tx).await?;
        let book = |row: &PgRow| {
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
        let chunk = i64::from(chunk);
        let mut folded = 0;
        loop {
            let step: i64 = sqlx::query_scalar(include_str!("sql/fold_inbox_books.sql"))
                .bind(last.unwrap_or(0))
                .bind(chunk)
                .fetch_one(&self.pool)
                .await?;
            folded += step;
            if step < chunk {
                return Ok(u64::try_from(folded).unwrap_or(0));
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
            let step: i64 = sqlx::query_scalar(include_str!("sql/clean_inbox.sql"))
                .bind(millis(retention))
                .bind(i64::from(chunk))
                .bind(consumer)
                .fetch_one(&self.pool)
                .await?;
            cleaned.forgotten += u64::try_from(step).unwrap_or(0);
            if step < i64::from(chunk) {
                break;
            }
        }
        loop {
            let step = sqlx::query(include_str!("sql/clean_inbox_dlq.sql"))
                .bind(millis(retention))
                .bind(i64::from(chunk))
                .bind(consumer)
                .execute(&self.pool)
                .await?
                .rows_affected();
            cleaned.letters += step;
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
            .bind(before_id.unwrap_or(i64::MAX))
            .bind(i64::from(limit))
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

/// Locks a letter that can be acted on, or says why it cannot.
async fn lock_open(connection: &mut PgConnection, id: i64) -> Result<String> {
    let found = sqlx::query_as(include_str!("sql/inbox_dlq_lock.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    open_letter(id, found)
}

fn letter(row: &PgRow) -> Result<InboxLetter> {
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
    connection: &mut PgConnection,
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
    connection: &mut PgConnection,
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
    connection: &mut PgConnection,
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
    connection: &mut PgConnection,
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
