//! Batches of buffers.

use async_trait::async_trait;
use postrider::AppendError;
use uuid::Uuid;

use super::session::{Connection as _, Session, SqlStore};
use super::sql;
use crate::StoreError;
use crate::contract::{
    Application, BATCHES_KEPT, Batch, BatchLedger, BatchState, BatchTarget, Batches, IMPORT_ACTION,
    Lease, Result, importable, is_refused, parse_stored,
};

#[async_trait]
impl<S: SqlStore> Batches for S {
    async fn check_target(&self, target: &BatchTarget) -> Result<()> {
        let BatchTarget::Table(target) = target else { return Ok(()) };
        let acquired = self.readers().acquire().await;
        let mut connection = acquired.map_err(|error| self.explain(error))?;
        let checked = connection.check_table(target).await;
        checked.map_err(|error| self.explain_again(error))
    }

    async fn apply_batch(
        &self,
        lease: &Lease,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Application> {
        let mut tx = self.session_for(lease).await?;
        let entries = entry_count(batch);
        if !record(&mut tx, batch.id, &batch.buffer, BatchState::Applied, entries).await? {
            return Ok(Application::Known(known(&mut tx, batch.id).await?));
        }
        if let Some(reason) = save(&mut tx, batch, target).await? {
            return Ok(Application::Refused(reason));
        }
        ledger(&mut tx, &batch.buffer, BatchState::Applied, entries).await?;
        tx.commit().await?;
        Ok(Application::Applied)
    }

    async fn cancel_batch(&self, buffer: &str, id: Uuid, entries: u64) -> Result<BatchState> {
        let entries = i64::try_from(entries).unwrap_or(i64::MAX);
        let mut tx = self.session().await?;
        if !record(&mut tx, id, buffer, BatchState::Cancelled, entries).await? {
            return known(&mut tx, id).await;
        }
        ledger(&mut tx, buffer, BatchState::Cancelled, entries).await?;
        tx.commit().await?;
        Ok(BatchState::Cancelled)
    }

    async fn mark_batch_dead(&self, lease: &Lease, buffer: &str, id: Uuid) -> Result<BatchState> {
        let mut tx = self.session_for(lease).await?;
        if !change(&mut tx, buffer, id, BatchState::Cancelled, BatchState::Dead).await? {
            return known(&mut tx, id).await;
        }
        tx.commit().await?;
        Ok(BatchState::Dead)
    }

    async fn import_batch(
        &self,
        batch: &Batch,
        target: &BatchTarget,
        operator: &str,
    ) -> Result<Application> {
        let mut tx = self.session().await?;
        let found = found(&mut tx, batch.id).await?;
        if let Some(known) = importable(batch.id, found)? {
            return Ok(known);
        }
        if let Some(reason) = save(&mut tx, batch, target).await? {
            return Ok(Application::Refused(reason));
        }
        change(&mut tx, &batch.buffer, batch.id, BatchState::Dead, BatchState::Imported).await?;
        let entries = format!("{} entries", batch.entries().len());
        tx.audit(operator, IMPORT_ACTION, &batch.buffer, batch.id, &entries).await?;
        tx.commit().await?;
        Ok(Application::Applied)
    }

    async fn batch_states(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, BatchState)>> {
        let mut states = Vec::new();
        for id in ids {
            let found = self.fetch(sql::BATCH_STATE.query().bind("id", *id)).await?;
            if let Some(row) = found.first() {
                states.push((*id, parse_stored("state", &row.text("state")?)?));
            }
        }
        Ok(states)
    }

    async fn batch_ledger(&self, buffer: &str) -> Result<BatchLedger> {
        let rows = self.fetch(sql::BATCH_LEDGERS.query().bind("buffer", buffer)).await?;
        let lines = rows.iter().map(|row| Ok((row.text("kind")?, row.number("entries")?)));
        BatchLedger::from_lines(lines.collect::<Result<_>>()?)
    }

    async fn clean_batches(&self, buffer: &str, chunk: u32) -> Result<u64> {
        let mut cleaned = 0;
        loop {
            let clean = sql::CLEAN_BATCHES.query().bind("buffer", buffer);
            let clean = clean.bind("age", BATCHES_KEPT).bind("limit", chunk);
            let step = self.execute(clean).await?;
            cleaned += step;
            if step < u64::from(chunk) {
                return Ok(cleaned);
            }
        }
    }
}

fn entry_count(batch: &Batch) -> i64 {
    i64::try_from(batch.entries().len()).unwrap_or(i64::MAX)
}

/// Records a decision; `false` if it was decided before.
async fn record<S: SqlStore>(
    tx: &mut Session<'_, S>,
    id: Uuid,
    buffer: &str,
    state: BatchState,
    entries: i64,
) -> Result<bool> {
    let record = sql::BATCH_RECORD.query().bind("id", id).bind("buffer", buffer);
    let record = record.bind("state", state.as_str()).bind("entries", entries);
    tx.insert_unless_known(record).await
}

/// Reads what was decided, and locks it.
async fn found<S: SqlStore>(tx: &mut Session<'_, S>, id: Uuid) -> Result<Option<BatchState>> {
    match tx.fetch_optional(sql::BATCH_LOCK.query().bind("id", id)).await? {
        Some(row) => Ok(Some(parse_stored("state", &row.text("state")?)?)),
        None => Ok(None),
    }
}

async fn known<S: SqlStore>(tx: &mut Session<'_, S>, id: Uuid) -> Result<BatchState> {
    // It was there a moment ago; only a clean-up takes it away, after 30 days.
    Ok(found(tx, id).await?.ok_or(sqlx::Error::RowNotFound)?)
}

/// Changes one state into another, and records it; `false` if it is not in that state.
async fn change<S: SqlStore>(
    tx: &mut Session<'_, S>,
    buffer: &str,
    id: Uuid,
    from: BatchState,
    to: BatchState,
) -> Result<bool> {
    let change = sql::BATCH_CHANGE.query().bind("id", id);
    let change = change.bind("from", from.as_str()).bind("to", to.as_str());
    if tx.execute(change).await? == 0 {
        return Ok(false);
    }
    let entries = tx.fetch_one(sql::BATCH_ENTRIES.query().bind("id", id)).await?;
    ledger(tx, buffer, to, entries.number("entries")?).await?;
    Ok(true)
}

async fn ledger<S: SqlStore>(
    tx: &mut Session<'_, S>,
    buffer: &str,
    kind: BatchState,
    entries: i64,
) -> Result<()> {
    let ledger = sql::BATCH_LEDGER.query().bind("buffer", buffer).bind("kind", kind.as_str());
    tx.execute(ledger.bind("entries", entries)).await.map(drop)
}

/// Writes the entries. `Some`: why they do not fit; then the transaction must not be committed.
async fn save<S: SqlStore>(
    tx: &mut Session<'_, S>,
    batch: &Batch,
    target: &BatchTarget,
) -> Result<Option<String>> {
    let saved = match target {
        BatchTarget::Table(target) => tx.add_counts(target, batch).await,
        BatchTarget::Events(target) => {
            match tx.append_all(&target.outbox, &batch.events(target)).await {
                Ok(_) => Ok(None),
                Err(AppendError::Invalid(reason)) => return Ok(Some(reason.to_string())),
                Err(AppendError::Database(error)) => Err(tx.explain(error)),
                Err(other) => return Ok(Some(other.to_string())),
            }
        }
    };
    match saved {
        Err(StoreError::Database(error)) if is_refused(&error) => Ok(Some(error.to_string())),
        saved => saved,
    }
}
