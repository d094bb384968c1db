//! The statements of one step of a bulk job. What they are for is in [`job_step`].

use async_trait::async_trait;
use postrider::Outbox;

use super::jobs::written;
use super::row::Row;
use super::search::{bind_dlq, bind_events};
use super::session::{Session, SqlStore};
use super::sql;
use super::statement::Value;
use crate::contract::job_step::{
    self, CanaryLook, CanaryNote, Entry, JobTransaction, LockedJob, Source,
};
use crate::contract::{DlqFilter, EventFilter, Job, Result};

/// A step's transaction.
pub(super) struct Step<'a, S: SqlStore> {
    pub(super) tx: Session<'a, S>,
    pub(super) outbox: &'a Outbox,
    /// Where a replay goes; the outbox itself for everything else.
    pub(super) into: &'a Outbox,
}

#[async_trait]
impl<S: SqlStore> JobTransaction for Step<'_, S> {
    async fn lock(&mut self, id: i64, runner: &str) -> Result<Option<LockedJob>> {
        let lock = sql::JOB_LOCK.query().bind("id", id).bind("runner", runner);
        let Some(row) = self.tx.fetch_optional(lock).await? else { return Ok(None) };
        let events = job_step::parse_canary(&row.text("canary_ids")?)?;
        let canary = CanaryNote { events, passed: row.boolean("canary_passed")?, starts: false };
        let job = written(&mut self.tx, id).await?;
        Ok(Some(LockedJob { job, canary, overdue: row.boolean("overdue")? }))
    }

    async fn window(
        &mut self,
        source: Source,
        after: i64,
        max_id: i64,
        rows: i64,
    ) -> Result<Option<i64>> {
        let window = match source {
            Source::DeadLetters => sql::DLQ_WINDOW,
            Source::Archive => sql::ARCHIVED_WINDOW,
        };
        let window = window.on(self.outbox).bind("after", after).bind("to", max_id);
        self.tx.fetch_one(window.bind("rows", rows)).await?.number_or_none("to_id")
    }

    async fn dead_letters(
        &mut self,
        filter: &DlqFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(i64, i64)>> {
        let next = sql::DLQ_NEXT.on(self.outbox).filtered(sql::DLQ_FILTER);
        let next = bind_dlq(next, filter).bind("after", after).bind("to", to);
        let rows = self.tx.fetch(next.bind("limit", limit)).await?;
        rows.iter().map(|row| Ok((row.number("id")?, row.number("payload_bytes")?))).collect()
    }

    async fn lock_dead_letters(&mut self, ids: &[i64]) -> Result<Vec<Entry>> {
        let lock = sql::DLQ_LOCK_ALL.on(self.outbox).bind("ids", Value::Ids(ids.to_vec()));
        self.tx.fetch(lock).await?.iter().map(entry).collect()
    }

    async fn archived(
        &mut self,
        filter: &EventFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(Entry, i64)>> {
        let next = sql::ARCHIVED_NEXT.on(self.outbox).filtered(sql::ARCHIVED_FILTER);
        let next = bind_events(next, filter).bind("after", after).bind("to", to);
        let rows = self.tx.fetch(next.bind("limit", limit)).await?;
        rows.iter().map(|row| Ok((entry(row)?, row.number("payload_bytes")?))).collect()
    }

    async fn retry_all(&mut self, letters: &[Entry]) -> Result<Vec<Entry>> {
        let ids = letters.iter().map(|(id, _)| *id).collect();
        let retry = sql::DLQ_RETRY_ALL.on(self.outbox).bind("ids", Value::Ids(ids));
        self.tx.insert_copies(retry, letters, self.outbox).await
    }

    async fn replay_all(&mut self, job_id: i64, archived: &[Entry]) -> Result<Vec<Entry>> {
        let replay = sql::REPLAY.on(self.outbox).into(self.into);
        let replay = replay.bind("mark", job_id.to_string());
        let replay = replay.bind("entries", Value::json(archived));
        self.tx.insert_copies(replay, archived, self.into).await
    }

    async fn resolve_all(
        &mut self,
        letters: &[(i64, Option<i64>)],
        operator: &str,
        note: &str,
    ) -> Result<()> {
        let resolve = sql::DLQ_RESOLVE_ALL.on(self.outbox).bind("letters", Value::json(letters));
        self.tx.execute(resolve.bind("operator", operator).bind("note", note)).await.map(drop)
    }

    async fn audit_all(
        &mut self,
        operator: &str,
        action: &str,
        lines: &[(String, String)],
    ) -> Result<()> {
        let audit = sql::AUDIT_ALL.query().bind("operator", operator).bind("action", action);
        let audit = audit.bind("outbox", self.outbox.name()).bind("lines", Value::json(lines));
        self.tx.execute(audit).await.map(drop)
    }

    async fn look_after(&mut self, events: &[(i64, Option<String>)]) -> Result<CanaryLook> {
        let look = sql::CANARY.on(self.into).bind("events", Value::json(events));
        let row = self.tx.fetch_one(look).await?;
        Ok(CanaryLook { waiting: row.number("waiting")?, dead: row.number("dead")? })
    }

    async fn save(&mut self, job: &Job, canary: &CanaryNote) -> Result<()> {
        let save = sql::JOB_SAVE
            .query()
            .bind("id", job.id)
            .bind("starts", canary.starts)
            .bind("state", job.state.as_str())
            .bind("reason", &job.reason)
            .bind("cursor", job.cursor)
            .bind("done", job.done_count)
            .bind("skipped", job.skipped_count)
            .bind("canary_ids", job_step::canary_text(&canary.events))
            .bind("canary_passed", canary.passed)
            .bind("runner", &job.runner);
        self.tx.execute(save).await.map(drop)
    }
}

fn entry(row: &Row) -> Result<Entry> {
    Ok((row.number("id")?, row.text("event_id")?))
}
