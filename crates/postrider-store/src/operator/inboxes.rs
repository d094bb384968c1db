//! Inboxes from outside: ledger, clean-up, dead letters.

use std::time::Duration;

use async_trait::async_trait;

use super::row::Row;
use super::session::{Session, SqlStore};
use super::sql;
use super::statement::Value;
use crate::contract::{
    ConsumerLedger, InboxCleaned, InboxLetter, Inboxes, Result, StoredLetter, leaving, open_letter,
};

#[async_trait]
impl<S: SqlStore> Inboxes for S {
    async fn consumer_ledgers(&self) -> Result<Vec<ConsumerLedger>> {
        let rows = self.fetch_whole(sql::INBOX_LEDGER.query()).await?;
        let ledger = |row: &Row| {
            Ok(ConsumerLedger {
                consumer: row.text("consumer")?,
                received: row.number("received")?,
                ignored: row.number("ignored")?,
                applied: row.number("applied")?,
                dead: row.number("dead")?,
                unresolved: row.number("unresolved")?,
            })
        };
        rows.iter().map(ledger).collect()
    }

    async fn fold_inbox_ledger(&self, chunk: u32) -> Result<u64> {
        if !S::APPENDS_TO_LEDGER {
            return Ok(0);
        }
        let last = self.fetch_one(sql::FOLD_INBOX_LEDGER_LAST.query()).await?;
        let last: i64 = last.number("last_id")?;
        let mut folded = 0;
        loop {
            let step = fold(self, last, chunk).await?;
            folded += step;
            if step < u64::from(chunk) {
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
        let chunk = chunk.min(S::ROWS_MAX);
        let mut cleaned = InboxCleaned::default();
        loop {
            let step = forget(self, consumer, retention, chunk).await?;
            cleaned.forgotten += step;
            if step < u64::from(chunk) {
                break;
            }
            self.rest().await;
        }
        loop {
            let clean = sql::CLEAN_INBOX_LETTERS.query().bind("age", retention);
            let clean = clean.bind("consumer", consumer).bind("limit", chunk);
            let step = self.execute(clean).await?;
            cleaned.letters += step;
            if step < u64::from(chunk) {
                break;
            }
            self.rest().await;
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
        let list = sql::INBOX_LETTERS
            .query()
            .bind("consumer", consumer)
            .bind("below", before_id.unwrap_or(i64::MAX))
            .bind("limit", limit);
        self.fetch(list).await?.iter().map(letter).collect()
    }

    async fn resolve_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.session().await?;
        let consumer = lock_open(&mut tx, id).await?;
        let resolve = sql::INBOX_LETTER_RESOLVE.query().bind("id", id);
        tx.execute(resolve.bind("operator", operator).bind("note", note)).await?;
        let detail = format!("consumer {consumer}: {note}");
        tx.audit(operator, "inbox.resolve", "", id, &detail).await?;
        tx.commit().await
    }

    async fn retry_inbox_letter(&self, id: i64, operator: &str, note: &str) -> Result<()> {
        let mut tx = self.session().await?;
        let consumer = lock_open(&mut tx, id).await?;
        tx.execute(sql::INBOX_LETTER_ASK.query().bind("id", id).bind("operator", operator)).await?;
        let detail = format!("consumer {consumer}: {note}");
        tx.audit(operator, "inbox.retry", "", id, &detail).await?;
        tx.commit().await
    }
}

/// Sums up some entries of the ledger; returns how many.
async fn fold<S: SqlStore>(store: &S, last: i64, chunk: u32) -> Result<u64> {
    let mut tx = store.session().await?;
    let find = sql::FOLD_INBOX_LEDGER_FIND.query().bind("last", last).bind("limit", chunk);
    let found = tx.fetch(find).await?;
    let ids: Vec<i64> = found.iter().map(|row| row.number("id")).collect::<Result<_>>()?;
    if !ids.is_empty() {
        for statement in [sql::FOLD_INBOX_LEDGER, sql::FOLD_INBOX_LEDGER_DELETE] {
            tx.execute(statement.query().bind("ids", Value::Ids(ids.clone()))).await?;
        }
    }
    tx.commit().await?;
    Ok(ids.len() as u64)
}

/// Forgets some identities, and records what left; returns how many.
async fn forget<S: SqlStore>(
    store: &S,
    consumer: Option<&str>,
    retention: Duration,
    chunk: u32,
) -> Result<u64> {
    let mut tx = store.begin_session(S::BEGIN_CLEAN_UP).await?;
    let find = sql::CLEAN_INBOX_FIND.query().bind("age", retention).bind("consumer", consumer);
    let found = tx.fetch(find.bind("limit", chunk)).await?;
    let old = |row: &Row| Ok((row.text("consumer")?, row.text("event_id")?, row.text("outcome")?));
    let old: Vec<(String, String, String)> = found.iter().map(old).collect::<Result<_>>()?;
    if old.is_empty() {
        return Ok(0);
    }
    tx.execute(sql::CLEAN_INBOX.query().bind("rows", Value::json(&old))).await?;
    for (consumer, (applied, dead)) in leaving(&old) {
        let ledger = sql::CLEAN_INBOX_LEDGER.query().bind("consumer", consumer);
        tx.execute(ledger.bind("applied", applied).bind("dead", dead)).await?;
    }
    tx.commit().await?;
    Ok(old.len() as u64)
}

/// Locks a letter that can be acted on, or says why it cannot. Returns whose it is.
async fn lock_open<S: SqlStore>(tx: &mut Session<'_, S>, id: i64) -> Result<String> {
    let found = match tx.fetch_optional(sql::INBOX_LETTER_LOCK.query().bind("id", id)).await? {
        Some(row) => Some((
            row.boolean("resolved")?,
            row.text_or_none("resolved_by")?,
            row.text("consumer")?,
        )),
        None => None,
    };
    open_letter(id, found)
}

pub(super) fn letter(row: &Row) -> Result<InboxLetter> {
    StoredLetter {
        id: row.number("id")?,
        consumer: row.text("consumer")?,
        event_id: row.text("event_id")?,
        source: row.text("source")?,
        key: row.bytes_or_none("message_key")?,
        headers: row.text("headers")?,
        payload: row.bytes("payload")?,
        error_message: row.text("error_message")?,
        failed_at: row.time("failed_at")?,
        retry_asked_at: row.time_or_none("retry_asked_at")?,
    }
    .read()
}
