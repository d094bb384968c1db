//! Runs bulk jobs. The command line runs its job in the foreground; the leader among the relays
//! runs jobs that no other runner works on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider::internal::DoublingWait;
use uuid::Uuid;

use crate::StoreError;
use crate::contract::{Database, Job, JobFilter, JobState};

/// Time without a heartbeat after which a runner loses its job to the next one.
const QUIET: Duration = Duration::from_secs(15);
/// Entries per step. A step is one transaction of about 20 ms.
const CHUNK: u32 = 500;
/// Steps per second of a job with a rate limit, so that the rate is even and heartbeats are
/// regular.
const STEPS_PER_SECOND: u32 = 4;
/// Wait between checks of the canary.
const CANARY_LOOK: Duration = Duration::from_millis(500);
/// First and longest wait between repeats of a step that failed temporarily.
const REPEAT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time for which such a step is repeated before the runner gives up the job.
const REPEAT_FOR: Duration = Duration::from_secs(60);
/// Open jobs read at once when searching for one to take.
const LOOK_ROWS: u32 = 100;

/// Runs bulk jobs, one at a time, step by step. The future of [`JobRunner::run`] can be dropped at
/// any time: a step is a transaction, and another runner continues the job.
pub struct JobRunner {
    store: Arc<dyn Database>,
    outboxes: Vec<Outbox>,
    name: String,
    chunk: u32,
}

impl JobRunner {
    /// Creates a runner for jobs of these outboxes; `host` tells operators where it runs.
    pub fn new(store: Arc<dyn Database>, outboxes: Vec<Outbox>, host: &str) -> Self {
        let host: String = host.chars().take(60).collect();
        let name = format!("{}@{host}", Uuid::now_v7().simple());
        Self { store, outboxes, name, chunk: CHUNK }
    }

    /// Sets the number of entries per step, for tests.
    #[must_use]
    pub fn chunk(self, chunk: u32) -> Self {
        Self { chunk: chunk.max(1), ..self }
    }

    /// Returns the oldest open job that no runner works on, among those that the caller accepts and
    /// whose outboxes this runner knows.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn next(
        &self,
        answers_for: impl Fn(&Job) -> bool,
    ) -> Result<Option<Job>, StoreError> {
        let open = JobFilter { open: true, ..JobFilter::default() };
        let (mut ids, mut before) = (Vec::new(), None);
        loop {
            let page = self.store.jobs(&open, before, LOOK_ROWS).await?;
            let mine = |job: &&Job| self.serves(job) && answers_for(job);
            ids.extend(page.iter().filter(mine).map(|job| job.id));
            before = page.last().map(|job| job.id);
            if page.len() < LOOK_ROWS as usize {
                break;
            }
        }
        for id in ids.into_iter().rev() {
            if let Some(taken) = self.store.take_job(id, &self.name, QUIET).await? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Returns whether this runner knows all outboxes of the job.
    fn serves(&self, job: &Job) -> bool {
        self.outbox(&job.outbox).is_some() && self.target(job).is_ok()
    }

    fn outbox(&self, name: &str) -> Option<&Outbox> {
        self.outboxes.iter().find(|outbox| outbox.name() == name)
    }

    /// Returns the target outbox of a replay.
    fn target(&self, job: &Job) -> Result<Option<&Outbox>, StoreError> {
        let Some(name) = job.work.target_outbox() else { return Ok(None) };
        self.outbox(name).map(Some).ok_or_else(|| not_configured(name))
    }

    /// Works on a job until it ends, and reports each step to `progress`. Returns `None` if another
    /// runner has the job.
    ///
    /// # Errors
    /// If the database cannot be reached for a minute; the job stays open. A permanent error ends
    /// the job and is recorded in its `reason`.
    pub async fn run(
        &self,
        id: i64,
        progress: &mut (dyn FnMut(&Job) + Send),
    ) -> Result<Option<Job>, StoreError> {
        let Some(mut job) = self.store.take_job(id, &self.name, QUIET).await? else {
            return Ok(None);
        };
        let outbox = self.outbox(&job.outbox).ok_or_else(|| not_configured(&job.outbox))?.clone();
        let into = self.target(&job)?.cloned();
        progress(&job);
        while job.state.is_open() {
            let (started, before) = (Instant::now(), job.done_count);
            let Some(stepped) = self.step(&outbox, into.as_ref(), &job).await? else {
                // Stopped by an operator, or taken over.
                return Ok(self.store.job(id).await?.filter(|job| !job.state.is_open()));
            };
            job = stepped;
            progress(&job);
            tokio::time::sleep(rest(&job, before).saturating_sub(started.elapsed())).await;
        }
        Ok(Some(job))
    }

    /// Ends a job of this runner, so that it waits for an operator to resume it. Returns `false`,
    /// and changes nothing, if the job is not this runner's.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn interrupt(&self, id: i64, reason: &str) -> Result<bool, StoreError> {
        self.store.end_job(id, &self.name, JobState::Stopped, reason).await
    }

    /// Runs one step. A step that fails temporarily is repeated: the cursor in the job's row shows
    /// whether a step whose result was lost had been committed.
    async fn step(
        &self,
        outbox: &Outbox,
        into: Option<&Outbox>,
        job: &Job,
    ) -> Result<Option<Job>, StoreError> {
        let chunk = match job.rate {
            Some(rate) => self.chunk.min((rate / STEPS_PER_SECOND).max(1)),
            None => self.chunk,
        };
        let (started, mut wait) = (Instant::now(), DoublingWait::new(REPEAT.0, REPEAT.1));
        loop {
            match self.store.step_job(outbox, into, job.id, &self.name, chunk).await {
                Ok(stepped) => return Ok(stepped),
                Err(error) if error.is_transient() && started.elapsed() < REPEAT_FOR => {
                    tracing::warn!(job = job.id, %error, "step of a job failed; repeating");
                    tokio::time::sleep(wait.take()).await;
                }
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    let reason = error.to_string();
                    tracing::error!(job = job.id, %error, "job failed");
                    self.store.end_job(job.id, &self.name, JobState::Failed, &reason).await?;
                    return self.store.job(job.id).await;
                }
            }
        }
    }
}

/// Returns the time from the beginning of a step to the beginning of the next.
fn rest(job: &Job, done_before: i64) -> Duration {
    if job.state == JobState::Canary {
        return CANARY_LOOK;
    }
    let done = u32::try_from(job.done_count - done_before).unwrap_or(0);
    match job.rate {
        Some(rate) if job.state.is_open() => Duration::from_secs(1) * done / rate.max(1),
        _ => Duration::ZERO,
    }
}

fn not_configured(outbox: &str) -> StoreError {
    StoreError::Refused(format!(
        "outbox `{outbox}` is not configured here: run the job where it is, or add it to the \
         configuration"
    ))
}
