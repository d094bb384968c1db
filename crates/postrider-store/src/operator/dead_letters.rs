//! What operators do with dead letters: each act is one transaction, audited.

use postrider::Outbox;

use super::records::{bind_letter, dead_letter};
use super::session::{Session, SqlStore};
use super::sql;
use super::statement::{Query, Value};
use crate::StoreError;
use crate::contract::{
    Edit, ImportEntry, Imported, OperatorStore as _, Resent, Result, edited, refuse_acting_on,
    refuse_reopening, resent,
};

pub(super) async fn retry<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    id: i64,
    operator: &str,
    note: &str,
) -> Result<i64> {
    let mut tx = store.session().await?;
    lock_open(&mut tx, outbox, id).await?;
    let fresh = tx.insert(sql::DLQ_RETRY.on(outbox).bind("id", id)).await?;
    mark_resolved(&mut tx, outbox, id, operator, note, Some(fresh)).await?;
    let detail = format!("retried as {fresh}: {note}");
    tx.audit(operator, "dlq.retry", outbox.name(), id, &detail).await?;
    tx.commit().await?;
    Ok(fresh)
}

pub(super) async fn resolve<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    id: i64,
    operator: &str,
    note: &str,
) -> Result<()> {
    let mut tx = store.session().await?;
    lock_open(&mut tx, outbox, id).await?;
    mark_resolved(&mut tx, outbox, id, operator, note, None).await?;
    tx.audit(operator, "dlq.resolve", outbox.name(), id, note).await?;
    tx.commit().await
}

pub(super) async fn reopen<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    id: i64,
    operator: &str,
    note: &str,
) -> Result<()> {
    let mut tx = store.session().await?;
    let reopened = tx.execute(sql::DLQ_REOPEN.on(outbox).bind("id", id)).await?;
    if reopened == 0 {
        drop(tx);
        return Err(refuse_reopening(outbox, id, store.dead_letter(outbox, id).await?));
    }
    tx.audit(operator, "dlq.reopen", outbox.name(), id, note).await?;
    tx.commit().await
}

pub(super) async fn resend<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    id: i64,
    edit: &Edit,
    operator: &str,
    note: &str,
) -> Result<Resent> {
    let mut tx = store.session().await?;
    lock_open(&mut tx, outbox, id).await?;
    let row = tx.fetch_one(sql::DLQ_SHOW.on(outbox).bind("id", id)).await?;
    let event = edited(&dead_letter(&row)?, edit)?;
    let resent = resent(tx.append(outbox, &event).await)?;
    let expiry = sql::DLQ_RESEND_EXPIRY.on(outbox).bind("fresh", resent.id).bind("id", id);
    tx.execute(expiry).await?;
    mark_resolved(&mut tx, outbox, id, operator, note, Some(resent.id)).await?;
    let detail = format!("sent edited as {}: {note}", resent.id);
    tx.audit(operator, "dlq.resend", outbox.name(), id, &detail).await?;
    tx.commit().await?;
    Ok(resent)
}

pub(super) async fn import<S: SqlStore>(
    store: &S,
    outbox: &Outbox,
    entry: &ImportEntry,
    operator: &str,
) -> Result<Imported> {
    entry.check(S::KIND)?;
    let mut tx = store.session().await?;
    let live = tx.fetch_optional(by_entry(sql::DLQ_IS_LIVE.on(outbox), entry)).await?;
    // An end of its own on each way out: a transaction that is only dropped keeps its lock a
    // little longer, and maintenance would skip the row meanwhile.
    if live.is_some() {
        tx.rollback().await?;
        return Ok(Imported::Live);
    }
    let letter = bind_letter(by_entry(sql::DLQ_IMPORT.on(outbox), entry), entry);
    let inserted = match tx.insert_unless_known(letter).await {
        Err(StoreError::Database(error)) => return Err(entry.refused_by(error)),
        answer => answer?,
    };
    let known = !inserted || tx.fetch_one(is_closed(outbox, entry)).await?.boolean("closed")?;
    if known {
        tx.rollback().await?;
        return Ok(Imported::Known);
    }
    let detail = format!("event {} restored from a backup file", entry.event_id);
    tx.audit(operator, "dlq.import", outbox.name(), entry.original_id, &detail).await?;
    tx.commit().await?;
    Ok(Imported::Restored)
}

/// Asks whether a dead letter was here until it was cleaned up, or its event was delivered.
pub(super) fn is_closed<'q>(outbox: &'q Outbox, entry: &ImportEntry) -> Query<'q> {
    by_entry(sql::DLQ_IS_CLOSED.on(outbox), entry)
}

fn by_entry<'q>(query: Query<'q>, entry: &ImportEntry) -> Query<'q> {
    let event_id = Value::identity(&entry.event_id);
    query.bind("original_id", entry.original_id).bind("event_id", event_id)
}

/// Locks an entry that can be acted on, or says why it cannot.
async fn lock_open<S: SqlStore>(tx: &mut Session<'_, S>, outbox: &Outbox, id: i64) -> Result<()> {
    let found = tx.fetch_optional(sql::DLQ_LOCK.on(outbox).bind("id", id)).await?;
    let found = match found {
        Some(row) => Some((row.boolean("resolved")?, row.text_or_none("resolved_by")?)),
        None => None,
    };
    refuse_acting_on(outbox, id, found)
}

async fn mark_resolved<S: SqlStore>(
    tx: &mut Session<'_, S>,
    outbox: &Outbox,
    id: i64,
    operator: &str,
    note: &str,
    retried_as: Option<i64>,
) -> Result<()> {
    let resolve = sql::DLQ_RESOLVE.on(outbox).bind("id", id).bind("operator", operator);
    tx.execute(resolve.bind("note", note).bind("retried_as", retried_as)).await.map(drop)
}
