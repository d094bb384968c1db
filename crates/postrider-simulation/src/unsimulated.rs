//! Operations that a relay does not need while it works, or only reads for display: refused, or
//! empty.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider_store::{OutboxSpec, StoreError, adopt::Adoption, *};
use uuid::Uuid;

use crate::store::SimulatedStore;

fn refused<T>() -> Result<T> {
    Err(StoreError::Refused("not simulated".to_owned()))
}

#[async_trait]
impl Schema for SimulatedStore {
    async fn migrate(&self, _: &[OutboxSpec]) -> Result<Vec<String>> {
        refused()
    }

    fn migration_sql(&self, _: &[OutboxSpec]) -> String {
        String::new()
    }

    async fn schema_state(&self, _: &[Outbox]) -> Result<SchemaState> {
        Ok(SchemaState::Ready)
    }

    async fn drop_outbox(&self, _: &Outbox) -> Result<()> {
        refused()
    }

    async fn server_facts(&self) -> Result<ServerFacts> {
        refused()
    }
}

#[async_trait]
impl Maintenance for SimulatedStore {
    async fn recover(&self, outbox: &Outbox, recovery: &Recovery<'_>) -> Result<u64> {
        self.recover_rows(outbox, recovery).await
    }

    async fn remove_relay(&self, relay_id: &str) -> Result<()> {
        self.call(|state, _| {
            state.database.relays.remove(relay_id);
            Ok(())
        })
        .await
    }

    async fn move_marked_within(
        &self,
        outbox: &Outbox,
        _: RangeInclusive<i64>,
        _: u32,
    ) -> Result<Vec<MovedLetter>> {
        self.move_marked_rows(outbox).await
    }

    async fn marked_rows(&self, _: &Outbox, _: u32) -> Result<Vec<i64>> {
        Ok(Vec::new())
    }

    async fn fingerprint_dead_letters(&self, _: &Outbox, _: u32) -> Result<u64> {
        Ok(0)
    }

    async fn oldest_dead_letters(
        &self,
        _: &Outbox,
        _: &DlqFilter,
        _: i64,
        _: u32,
    ) -> Result<OldestLetters> {
        refused()
    }

    async fn fold_ledger(&self, _: &Outbox, _: u32) -> Result<u64> {
        Ok(0)
    }

    async fn clean_up(&self, _: &Outbox, _: &Retention) -> Result<Cleaned> {
        Ok(Cleaned::default())
    }
}

#[async_trait]
impl OperatorStore for SimulatedStore {
    async fn ledger(&self, _: &Outbox) -> Result<Vec<LedgerWindow>> {
        refused()
    }

    async fn statistics(&self, _: &Outbox) -> Result<Statistics> {
        refused()
    }

    async fn events(&self, _: &Outbox, _: &EventFilter, _: Page) -> Result<Listed<EventRecord>> {
        refused()
    }

    async fn event_count(&self, _: &Outbox, _: &EventFilter, _: CountLimit) -> Result<Counted> {
        refused()
    }

    async fn event(&self, _: &Outbox, _: i64) -> Result<Option<EventRecord>> {
        refused()
    }

    async fn event_by_identity(&self, _: &Outbox, _: &str, _: Duration) -> Result<Identified> {
        refused()
    }

    async fn attempts(&self, _: &Outbox, _: &str) -> Result<Vec<Attempt>> {
        refused()
    }

    async fn dead_letters(&self, _: &Outbox, _: &DlqFilter, _: Page) -> Result<Listed<DeadLetter>> {
        refused()
    }

    async fn dead_letter_count(&self, _: &Outbox, _: &DlqFilter, _: CountLimit) -> Result<Counted> {
        refused()
    }

    async fn dead_letter_groups(
        &self,
        _: &Outbox,
        _: &DlqFilter,
        _: Page,
    ) -> Result<DeadLetterGroups> {
        refused()
    }

    async fn dead_letter(&self, _: &Outbox, _: i64) -> Result<Option<DeadLetter>> {
        refused()
    }

    async fn retry(&self, _: &Outbox, _: i64, _: &str, _: &str) -> Result<i64> {
        refused()
    }

    async fn resolve(&self, _: &Outbox, _: i64, _: &str, _: &str) -> Result<()> {
        refused()
    }

    async fn reopen(&self, _: &Outbox, _: i64, _: &str, _: &str) -> Result<()> {
        refused()
    }

    async fn resend(&self, _: &Outbox, _: i64, _: &Edit, _: &str, _: &str) -> Result<Resent> {
        refused()
    }

    async fn import(&self, _: &Outbox, _: &ImportEntry, _: &str) -> Result<Imported> {
        refused()
    }

    async fn was_closed(&self, _: &Outbox, _: &ImportEntry) -> Result<bool> {
        refused()
    }

    async fn audit(&self, _: &AuditFilter, _: Page) -> Result<Listed<AuditEntry>> {
        refused()
    }
}

#[async_trait]
impl Inboxes for SimulatedStore {
    async fn consumer_ledgers(&self) -> Result<Vec<ConsumerLedger>> {
        refused()
    }

    async fn fold_inbox_ledger(&self, _: u32) -> Result<u64> {
        Ok(0)
    }

    async fn clean_inbox(&self, _: Option<&str>, _: Duration, _: u32) -> Result<InboxCleaned> {
        refused()
    }

    async fn inbox_letters(
        &self,
        _: Option<&str>,
        _: Option<i64>,
        _: u32,
    ) -> Result<Vec<InboxLetter>> {
        refused()
    }

    async fn resolve_inbox_letter(&self, _: i64, _: &str, _: &str) -> Result<()> {
        refused()
    }

    async fn retry_inbox_letter(&self, _: i64, _: &str, _: &str) -> Result<()> {
        refused()
    }
}

#[async_trait]
impl Jobs for SimulatedStore {
    async fn create_job(&self, _: &Outbox, _: &NewJob) -> Result<Job> {
        refused()
    }

    async fn job_by_request_key(&self, _: &str) -> Result<Option<Job>> {
        refused()
    }

    async fn preview_job(&self, _: &Outbox, _: &JobWork, _: CountLimit) -> Result<Counted> {
        refused()
    }

    async fn jobs(&self, _: &JobFilter, _: Option<i64>, _: u32) -> Result<Vec<Job>> {
        Ok(Vec::new())
    }

    async fn job(&self, _: i64) -> Result<Option<Job>> {
        refused()
    }

    async fn take_job(&self, _: i64, _: &str, _: Duration) -> Result<Option<Job>> {
        refused()
    }

    async fn step_job(
        &self,
        _: &Outbox,
        _: Option<&Outbox>,
        _: i64,
        _: &str,
        _: u32,
    ) -> Result<Option<Job>> {
        refused()
    }

    async fn end_job(&self, _: i64, _: &str, _: JobState, _: &str) -> Result<bool> {
        refused()
    }

    async fn stop_job(&self, _: i64, _: &str, _: &str) -> Result<Job> {
        refused()
    }

    async fn resume_job(&self, _: i64, _: &str, _: &str) -> Result<Job> {
        refused()
    }
}

#[async_trait]
impl Pauses for SimulatedStore {
    async fn pauses(&self) -> Result<Vec<Pause>> {
        Ok(Vec::new())
    }

    async fn pause(&self, _: PauseKind, _: &str, _: &str, _: &str) -> Result<bool> {
        refused()
    }

    async fn resume(&self, _: PauseKind, _: &str, _: &str, _: &str) -> Result<bool> {
        refused()
    }
}

#[async_trait]
impl Inspect for SimulatedStore {
    async fn failed_rows(&self, _: &Outbox, _: u32) -> Result<AtLeast> {
        refused()
    }

    async fn composition(&self, _: &Outbox, _: u32) -> Result<Composition> {
        refused()
    }

    async fn clock(&self) -> Result<DateTime<Utc>> {
        Ok(DateTime::UNIX_EPOCH + self.world.now())
    }

    async fn find_pooler(&self) -> Result<Finding> {
        refused()
    }

    async fn diagnose(&self, _: &[OutboxSpec], _: Duration) -> Result<Vec<Finding>> {
        refused()
    }
}

#[async_trait]
impl Batches for SimulatedStore {
    async fn check_target(&self, _: &BatchTarget) -> Result<()> {
        refused()
    }

    async fn apply_batch(&self, _: &Lease, _: &Batch, _: &BatchTarget) -> Result<Application> {
        refused()
    }

    async fn cancel_batch(&self, _: &str, _: Uuid, _: u64) -> Result<BatchState> {
        refused()
    }

    async fn mark_batch_dead(&self, _: &Lease, _: &str, _: Uuid) -> Result<BatchState> {
        refused()
    }

    async fn import_batch(&self, _: &Batch, _: &BatchTarget, _: &str) -> Result<Application> {
        refused()
    }

    async fn batch_states(&self, _: &[Uuid]) -> Result<Vec<(Uuid, BatchState)>> {
        refused()
    }

    async fn batch_ledger(&self, _: &str) -> Result<BatchLedger> {
        refused()
    }

    async fn clean_batches(&self, _: &str, _: u32) -> Result<u64> {
        refused()
    }
}

#[async_trait]
impl Adopt for SimulatedStore {
    async fn adoption_sql(&self, _: &[OutboxSpec]) -> Result<String> {
        refused()
    }

    async fn diagnose_adoptions(&self, _: &[OutboxSpec]) -> Result<Vec<Finding>> {
        refused()
    }

    async fn adoptable(&self, _: &Outbox, _: &Adoption) -> Result<u64> {
        refused()
    }

    async fn adopt_step(
        &self,
        _: &Outbox,
        _: &Adoption,
        _: &AdoptCursor,
        _: &AdoptImport<'_>,
    ) -> Result<AdoptStep> {
        refused()
    }

    async fn expired_rows(&self, _: &Outbox, _: &Adoption, _: Duration) -> Result<u64> {
        refused()
    }

    async fn clean_adopted(&self, _: &Outbox, _: &Adoption, _: Duration, _: u32) -> Result<u64> {
        refused()
    }
}
