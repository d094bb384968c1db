//! Bulk jobs.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, Row, Transaction};

use super::MysqlStore;
use super::append::{TOLD_IDS_MAX, millis, signed, told_ids};
use super::desk::audit;
use super::search::{DlqSearch, EventSearch, bind_dlq, bind_events};
use super::settle::ids_json;
use crate::event::{fit, limits};
use crate::store::job_step::{
    self, CanaryLook, CanaryNote, Entry, JobTransaction, LockedJob, Preview, Source, check_job,
    not_made, parse_job, preview, refuse_job,
};
use crate::store::{
    CountLimit, Counted, DlqFilter, EventFilter, Job, JobFilter, JobState, JobWork, Jobs, NewJob,
    Result, parse_stored, search,
};
use crate::{Outbox, StoreError};

#[async_trait]
impl Jobs for MysqlStore {
    async fn create_job(&self, outbox: &Outbox, job: &NewJob) -> Result<Job> {
        check_job(job)?;
        let last = match &job.work {
            JobWork::Replay { .. } => include_str!("sql/archived_last.sql"),
            _ => include_str!("sql/dlq_last.sql"),
        };
        let mut tx = self.begin().await?;
        let max_id: i64 = sqlx::query_scalar(outbox.sql(last)).fetch_one(&mut *tx).await?;
        let made = sqlx::query(include_str!("sql/job_create.sql"))
            .bind(outbox.name())
            .bind(job_step::work_json(&job.work)?)
            .bind(&job.operator)
            .bind(&job.note)
            .bind(job.rate.map(i64::from))
            .bind(job.canary.map(|canary| i64::from(canary.count)))
            .bind(job.canary.map(|canary| i64::from(canary.within_s)))
            .bind(max_id)
            .bind(&job.request_key)
            .execute(&mut *tx)
            .await
            .map_err(|error| not_made(job, error))?;
        let id = signed(made.last_insert_id());
        let detail = format!("{}: {}", job.work.kind(), job.note);
        audit(&mut tx, &job.operator, "job.create", outbox.name(), id, &detail).await?;
        let made = found(read(&mut tx, id).await?, id)?;
        tx.commit().await?;
        Ok(made)
    }

    async fn job_by_request_key(&self, request_key: &str) -> Result<Option<Job>> {
        let id: Option<i64> = sqlx::query_scalar(include_str!("sql/job_by_request_key.sql"))
            .bind(request_key)
            .fetch_optional(&self.pool)
            .await?;
        match id {
            Some(id) => self.job(id).await,
            None => Ok(None),
        }
    }

    async fn preview_job(
        &self,
        outbox: &Outbox,
        work: &JobWork,
        limit: CountLimit,
    ) -> Result<Counted> {
        let pool = &self.pool;
        match preview(work) {
            Preview::DeadLetters(filter) => {
                search::count(&DlqSearch { pool, outbox, filter: &filter }, limit).await
            }
            Preview::Archived(filter) => {
                search::count(&EventSearch { pool, outbox, filter: &filter }, limit).await
            }
        }
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Job>> {
        let mut connection = self.pool.acquire().await?;
        list(&mut connection, filter, before_id.unwrap_or(i64::MAX), limit).await
    }

    async fn job(&self, id: i64) -> Result<Option<Job>> {
        let mut connection = self.pool.acquire().await?;
        read(&mut connection, id).await
    }

    async fn take_job(&self, id: i64, runner: &str, quiet: Duration) -> Result<Option<Job>> {
        let taken = sqlx::query(include_str!("sql/job_take.sql"))
            .bind(runner)
            .bind(id)
            .bind(runner)
            .bind(millis(quiet))
            .bind(millis(quiet))
            .execute(&self.pool)
            .await?;
        match taken.rows_affected() {
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
        let mut step = Step { tx: self.begin().await?, outbox, into };
        let stepped = job_step::step(&mut step, id, runner, chunk.min(TOLD_IDS_MAX)).await?;
        step.tx.commit().await?;
        Ok(stepped)
    }

    async fn end_job(&self, id: i64, runner: &str, state: JobState, reason: &str) -> Result<bool> {
        let ended = sqlx::query(include_str!("sql/job_end.sql"))
            .bind(state.as_str())
            .bind(fit(reason, limits::ERROR_DETAIL_CHARS_MAX))
            .bind(id)
            .bind(runner)
            .execute(&self.pool)
            .await?;
        Ok(ended.rows_affected() > 0)
    }

    async fn stop_job(&self, id: i64, operator: &str, note: &str) -> Result<Job> {
        let mut tx = self.begin().await?;
        lock_state(&mut tx, id, true).await?;
        sqlx::query(include_str!("sql/job_stop.sql"))
            .bind(format!("stopped by {operator}: {note}"))
            .bind(id)
            .execute(&mut *tx)
            .await?;
        let job = found(read(&mut tx, id).await?, id)?;
        audit(&mut tx, operator, "job.stop", &job.outbox, id, note).await?;
        tx.commit().await?;
        Ok(job)
    }

    async fn resume_job(&self, id: i64, operator: &str, note: &str) -> Result<Job> {
        let mut tx = self.begin().await?;
        lock_state(&mut tx, id, false).await?;
        sqlx::query(include_str!("sql/job_resume.sql")).bind(id).execute(&mut *tx).await?;
        let job = found(read(&mut tx, id).await?, id)?;
        audit(&mut tx, operator, "job.resume", &job.outbox, id, note).await?;
        tx.commit().await?;
        Ok(job)
    }
}

/// Holds the row of a job that is open, or that is not, as asked for; or says why it cannot be.
async fn lock_state(connection: &mut MySqlConnection, id: i64, open: bool) -> Result<()> {
    let state: Option<String> = sqlx::query_scalar(include_str!("sql/job_state.sql"))
        .bind(id)
        .fetch_optional(connection)
        .await?;
    let state = state.map(|text| parse_stored("state", &text)).transpose()?;
    refuse_job(id, state, open)
}

async fn list(
    connection: &mut MySqlConnection,
    filter: &JobFilter,
    before_id: i64,
    limit: u32,
) -> Result<Vec<Job>> {
    let rows = sqlx::query(include_str!("sql/job_list.sql"))
        .bind(&filter.outbox)
        .bind(filter.state.map(JobState::as_str))
        .bind(filter.open)
        .bind(before_id)
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await?;
    rows.iter().map(job).collect()
}

async fn read(connection: &mut MySqlConnection, id: i64) -> Result<Option<Job>> {
    let newest = list(connection, &JobFilter::default(), id.saturating_add(1), 1).await?;
    Ok(newest.into_iter().find(|job| job.id == id))
}

/// A job that this transaction wrote.
fn found(job: Option<Job>, id: i64) -> Result<Job> {
    job.ok_or_else(|| StoreError::Schema(format!("job {id} cannot be read back")))
}

/// Columns in the order of `job_list.sql`.
fn job(row: &MySqlRow) -> Result<Job> {
    let canary = (row.try_get(12)?, row.try_get(13)?);
    let (work, state): (String, String) = (row.try_get(2)?, row.try_get(6)?);
    let (work, state, rate, canary) = parse_job(&work, &state, row.try_get(5)?, canary)?;
    Ok(Job {
        id: row.try_get(0)?,
        outbox: row.try_get(1)?,
        work,
        operator: row.try_get(3)?,
        note: row.try_get(4)?,
        rate,
        canary,
        state,
        reason: row.try_get(7)?,
        cursor: row.try_get(8)?,
        max_id: row.try_get(9)?,
        done_count: row.try_get(10)?,
        skipped_count: row.try_get(11)?,
        runner: row.try_get(14)?,
        beat_age_ms: row.try_get(15)?,
        created_at: row.try_get(16)?,
        updated_at: row.try_get(17)?,
    })
}

/// The statements of one step.
struct Step<'a> {
    tx: Transaction<'static, MySql>,
    outbox: &'a Outbox,
    into: Option<&'a Outbox>,
}

impl Step<'_> {
    /// Inserts fresh events of entries. Their ids come from the trigger, in the order of the
    /// entries: an `INSERT … SELECT` has as many rows as the entries that are still there, and one
    /// that was cleaned up meanwhile would shift the rest, so then the step is undone.
    async fn insert(
        &mut self,
        sql: AssertSqlSafe<String>,
        values: Vec<String>,
        entries: &[Entry],
    ) -> Result<Vec<Entry>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let query = values.into_iter().fold(sqlx::query(sql), |query, value| query.bind(value));
        let (inserted, told) = told_ids(&mut self.tx, query).await?;
        inserted?;
        if told.len() != entries.len() {
            return Err(StoreError::Schema(format!(
                "{} events were to be inserted, and {} were: trigger {}_appended is missing or \
                 altered, or an entry was cleaned up at this moment; resume the job",
                entries.len(),
                told.len(),
                self.into.unwrap_or(self.outbox).table()
            )));
        }
        Ok(told.into_iter().zip(entries).map(|(id, (_, event))| (id, event.clone())).collect())
    }
}

#[async_trait]
impl JobTransaction for Step<'_> {
    async fn lock(&mut self, id: i64, runner: &str) -> Result<Option<LockedJob>> {
        let locked: Option<(String, bool, i64)> = sqlx::query_as(include_str!("sql/job_lock.sql"))
            .bind(id)
            .bind(runner)
            .fetch_optional(&mut *self.tx)
            .await?;
        let Some((canary, passed, overdue)) = locked else { return Ok(None) };
        let events = job_step::parse_canary(&canary)?;
        let canary = CanaryNote { events, passed, starts: false };
        Ok(Some(LockedJob {
            job: found(read(&mut self.tx, id).await?, id)?,
            canary,
            overdue: overdue != 0,
        }))
    }

    async fn window(
        &mut self,
        source: Source,
        after: i64,
        max_id: i64,
        rows: i64,
    ) -> Result<Option<i64>> {
        let statement = match source {
            Source::DeadLetters => include_str!("sql/dlq_window.sql"),
            Source::Archive => include_str!("sql/archived_window.sql"),
        };
        Ok(sqlx::query_scalar(self.outbox.sql(statement))
            .bind(after)
            .bind(max_id)
            .bind(rows)
            .fetch_one(&mut *self.tx)
            .await?)
    }

    async fn dead_letters(
        &mut self,
        filter: &DlqFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(i64, i64)>> {
        let conditions = include_str!("sql/dlq_filter.sql");
        let sql = self.outbox.sql_where(include_str!("sql/dlq_next.sql"), conditions);
        let rows = bind_dlq(sqlx::query(sql), filter)
            .bind(after)
            .bind(to)
            .bind(limit)
            .fetch_all(&mut *self.tx)
            .await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    async fn lock_dead_letters(&mut self, ids: &[i64]) -> Result<Vec<Entry>> {
        Ok(sqlx::query_as(self.outbox.sql(include_str!("sql/dlq_lock_all.sql")))
            .bind(ids_json(ids))
            .fetch_all(&mut *self.tx)
            .await?)
    }

    async fn archived(
        &mut self,
        filter: &EventFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(Entry, i64)>> {
        let conditions = include_str!("sql/archived_filter.sql");
        let sql = self.outbox.sql_where(include_str!("sql/archived_next.sql"), conditions);
        let rows = bind_events(sqlx::query(sql), filter)
            .bind(after)
            .bind(to)
            .bind(limit)
            .fetch_all(&mut *self.tx)
            .await?;
        rows.iter().map(|row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?))).collect()
    }

    async fn retry_all(&mut self, letters: &[Entry]) -> Result<Vec<Entry>> {
        let sql = self.outbox.sql(include_str!("sql/dlq_retry_all.sql"));
        self.insert(sql, vec![ids_json(&ids(letters))], letters).await
    }

    async fn replay_all(&mut self, job_id: i64, archived: &[Entry]) -> Result<Vec<Entry>> {
        let into = self.into.unwrap_or(self.outbox);
        let sql = self.outbox.sql_to(into, include_str!("sql/replay.sql"));
        let values = vec![job_id.to_string(), json!(archived).to_string()];
        self.insert(sql, values, archived).await
    }

    async fn resolve_all(
        &mut self,
        letters: &[(i64, Option<i64>)],
        operator: &str,
        note: &str,
    ) -> Result<()> {
        sqlx::query(self.outbox.sql(include_str!("sql/dlq_resolve_all.sql")))
            .bind(json!(letters).to_string())
            .bind(operator)
            .bind(note)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    async fn audit_all(
        &mut self,
        operator: &str,
        action: &str,
        lines: &[(String, String)],
    ) -> Result<()> {
        sqlx::query(include_str!("sql/audit_all.sql"))
            .bind(operator)
            .bind(action)
            .bind(self.outbox.name())
            .bind(json!(lines).to_string())
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }

    async fn look_after(&mut self, events: &[(i64, Option<String>)]) -> Result<CanaryLook> {
        let into = self.into.unwrap_or(self.outbox);
        let (waiting, dead) = sqlx::query_as(into.sql(include_str!("sql/canary.sql")))
            .bind(json!(events).to_string())
            .bind(json!(events).to_string())
            .fetch_one(&mut *self.tx)
            .await?;
        Ok(CanaryLook { waiting, dead })
    }

    async fn save(&mut self, job: &Job, canary: &CanaryNote) -> Result<()> {
        sqlx::query(include_str!("sql/job_save.sql"))
            .bind(canary.starts)
            .bind(job.state.as_str())
            .bind(&job.reason)
            .bind(job.cursor)
            .bind(job.done_count)
            .bind(job.skipped_count)
            .bind(job_step::canary_text(&canary.events))
            .bind(canary.passed)
            .bind(&job.runner)
            .bind(job.id)
            .execute(&mut *self.tx)
            .await?;
        Ok(())
    }
}

fn ids(entries: &[Entry]) -> Vec<i64> {
    entries.iter().map(|(id, _)| *id).collect()
}
