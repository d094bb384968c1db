//! Bulk jobs.

use std::time::Duration;

use async_trait::async_trait;

use super::PostgresStore;
use crate::store::{CountLimit, Counted, Job, JobFilter, JobState, JobWork, Jobs, NewJob, Result};
use crate::{Outbox, StoreError};

fn soon<T>() -> Result<T> {
    Err(StoreError::Refused("jobs are on their way".to_owned()))
}

#[async_trait]
impl Jobs for PostgresStore {
    async fn create_job(&self, _: &Outbox, _: &NewJob) -> Result<Job> {
        soon()
    }
    async fn preview_job(&self, _: &Outbox, _: &JobWork, _: CountLimit) -> Result<Counted> {
        soon()
    }
    async fn jobs(&self, _: &JobFilter, _: Option<i64>, _: u32) -> Result<Vec<Job>> {
        soon()
    }
    async fn job(&self, _: i64) -> Result<Option<Job>> {
        soon()
    }
    async fn take_job(&self, _: i64, _: &str, _: Duration) -> Result<Option<Job>> {
        soon()
    }
    async fn step_job(
        &self,
        _: &Outbox,
        _: Option<&Outbox>,
        _: i64,
        _: &str,
        _: u32,
    ) -> Result<Option<Job>> {
        soon()
    }
    async fn end_job(&self, _: i64, _: &str, _: JobState, _: &str) -> Result<()> {
        soon()
    }
    async fn stop_job(&self, _: i64, _: &str, _: &str) -> Result<Job> {
        soon()
    }
    async fn resume_job(&self, _: i64, _: &str, _: &str) -> Result<Job> {
        soon()
    }
}
