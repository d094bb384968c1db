//! Bulk jobs.

use std::time::Duration;

use async_trait::async_trait;
use postrider::{Outbox, internal::fit, limits};

use super::job_step::Step;
use super::row::Row;
use super::search::{DlqSearch, EventSearch};
use super::session::{Session, SqlStore};
use super::sql;
use super::statement::Query;
use crate::StoreError;
use crate::contract::job_step::{
    self, Preview, check_job, not_made, parse_job, preview, refuse_job, work_json,
};
use crate::contract::{
    CountLimit, Counted, Job, JobFilter, JobState, JobWork, Jobs, NewJob, Result, parse_stored,
    search,
};

#[async_trait]
impl<S: SqlStore> Jobs for S {
    async fn create_job(&self, outbox: &Outbox, job: &NewJob) -> Result<Job> {
        check_job(job)?;
        let last = match &job.work {
            JobWork::Replay { .. } => sql::ARCHIVED_LAST,
            _ => sql::DLQ_LAST,
        };
        let mut tx = self.session().await?;
        let max_id: i64 = tx.fetch_one(last.on(outbox)).await?.number("last_id")?;
        let create = sql::JOB_CREATE
            .query()
            .bind("outbox", outbox.name())
            .bind("work", work_json(&job.work)?)
            .bind("operator", &*job.operator)
            .bind("note", &*job.note)
            .bind("rate", job.rate.map(i64::from))
            .bind("canary_count", job.canary.map(|canary| i64::from(canary.count)))
            .bind("canary_within_s", job.canary.map(|canary| i64::from(canary.within_s)))
            .bind("max_id", max_id)
            .bind("request_key", &job.request_key);
        let id = match tx.insert(create).await {
            Err(StoreError::Database(error)) => return Err(not_made(job, error)),
            answer => answer?,
        };
        let detail = format!("{}: {}", job.work.kind(), job.note);
        tx.audit(&job.operator, "job.create", outbox.name(), id, &detail).await?;
        let made = written(&mut tx, id).await?;
        tx.commit().await?;
        Ok(made)
    }

    async fn job_by_request_key(&self, request_key: &str) -> Result<Option<Job>> {
        let query = sql::JOB_BY_REQUEST_KEY.query().bind("request_key", request_key);
        match self.fetch(query).await?.first() {
            Some(row) => self.job(row.number("id")?).await,
            None => Ok(None),
        }
    }

    async fn preview_job(
        &self,
        outbox: &Outbox,
        work: &JobWork,
        limit: CountLimit,
    ) -> Result<Counted> {
        match preview(work) {
            Preview::DeadLetters(filter) => {
                search::count(&DlqSearch { store: self, outbox, filter: &filter }, limit).await
            }
            Preview::Archived(filter) => {
                search::count(&EventSearch { store: self, outbox, filter: &filter }, limit).await
            }
        }
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Job>> {
        let list = list(filter, before_id.unwrap_or(i64::MAX), limit);
        self.fetch(list).await?.iter().map(job).collect()
    }

    async fn job(&self, id: i64) -> Result<Option<Job>> {
        found(id, &self.fetch(newest(id)).await?)
    }

    async fn take_job(&self, id: i64, runner: &str, quiet: Duration) -> Result<Option<Job>> {
        let take = sql::JOB_TAKE.query().bind("id", id).bind("runner", runner);
        match self.execute(take.bind("quiet", quiet)).await? {
            0 => Ok(None),
            _ => self.job(id).await,
        }
    }

    async fn step_job(
        &self,
        outbox: &Outbox,
        into: Option<&Outbox>,
        id: i64,
        runner: &str,
        chunk: u32,
    ) -> Result<Option<Job>> {
        let into = into.unwrap_or(outbox);
        let mut step = Step { tx: self.session().await?, outbox, into };
        let stepped = job_step::step(&mut step, id, runner, chunk.min(S::ENTRIES_MAX)).await?;
        step.tx.commit().await?;
        Ok(stepped)
    }

    async fn end_job(&self, id: i64, runner: &str, state: JobState, reason: &str) -> Result<bool> {
        let reason = fit(reason, limits::ERROR_DETAIL_CHARS_MAX);
        let end = sql::JOB_END.query().bind("id", id).bind("runner", runner);
        let end = end.bind("state", state.as_str()).bind("reason", &*reason);
        Ok(self.execute(end).await? > 0)
    }

    async fn stop_job(&self, id: i64, operator: &str, note: &str) -> Result<Job> {
        let mut tx = self.session().await?;
        lock_state(&mut tx, id, true).await?;
        let reason = format!("stopped by {operator}: {note}");
        tx.execute(sql::JOB_STOP.query().bind("id", id).bind("reason", reason)).await?;
        let job = written(&mut tx, id).await?;
        tx.audit(operator, "job.stop", &job.outbox, id, note).await?;
        tx.commit().await?;
        Ok(job)
    }

    async fn resume_job(&self, id: i64, operator: &str, note: &str) -> Result<Job> {
        let mut tx = self.session().await?;
        lock_state(&mut tx, id, false).await?;
        tx.execute(sql::JOB_RESUME.query().bind("id", id)).await?;
        let job = written(&mut tx, id).await?;
        tx.audit(operator, "job.resume", &job.outbox, id, note).await?;
        tx.commit().await?;
        Ok(job)
    }
}

/// Holds the row of a job that is open, or that is not, as asked for; or says why it cannot be.
async fn lock_state<S: SqlStore>(tx: &mut Session<'_, S>, id: i64, open: bool) -> Result<()> {
    let state = match tx.fetch_optional(sql::JOB_STATE.query().bind("id", id)).await? {
        Some(row) => Some(parse_stored("state", &row.text("state")?)?),
        None => None,
    };
    refuse_job(id, state, open)
}

fn list(filter: &JobFilter, below: i64, limit: u32) -> Query<'static> {
    sql::JOB_LIST
        .query()
        .bind("outbox", &filter.outbox)
        .bind("state", filter.state.map(JobState::as_str))
        .bind("open", filter.open)
        .bind("below", below)
        .bind("limit", limit)
}

/// The newest job up to an id.
fn newest(id: i64) -> Query<'static> {
    list(&JobFilter::default(), id.saturating_add(1), 1)
}

fn found(id: i64, rows: &[Row]) -> Result<Option<Job>> {
    let newest = rows.first().map(job).transpose()?;
    Ok(newest.filter(|job| job.id == id))
}

/// Reads a job that this transaction holds or wrote.
pub(super) async fn written<S: SqlStore>(tx: &mut Session<'_, S>, id: i64) -> Result<Job> {
    let job = found(id, &tx.fetch(newest(id)).await?)?;
    job.ok_or_else(|| StoreError::Schema(format!("job {id} cannot be read back")))
}

fn job(row: &Row) -> Result<Job> {
    let canary = (row.number_or_none("canary_count")?, row.number_or_none("canary_within_s")?);
    let (work, state) = (row.text("work")?, row.text("state")?);
    let rate = row.number_or_none("rate")?;
    let (work, state, rate, canary) = parse_job(&work, &state, rate, canary)?;
    Ok(Job {
        id: row.number("id")?,
        outbox: row.text("outbox")?,
        work,
        operator: row.text("operator")?,
        note: row.text("note")?,
        rate,
        canary,
        state,
        reason: row.text_or_none("reason")?,
        cursor: row.number("cursor_id")?,
        max_id: row.number("max_id")?,
        done_count: row.number("done_count")?,
        skipped_count: row.number("skipped_count")?,
        runner: row.text_or_none("runner")?,
        beat_age_ms: row.number_or_none("beat_age_ms")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}
