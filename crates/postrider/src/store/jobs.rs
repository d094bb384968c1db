//! Bulk jobs: an operator's action on everything that fits a filter, as a row in the store.
//!
//! A job is worked on in steps, and a step is one transaction: it holds the job's row, acts on the
//! next entries beyond the job's cursor, writes the audit trail, and moves the cursor. Whoever dies
//! before a step's commit has done nothing; whoever dies after it, or never hears of it, finds the
//! cursor moved. So no entry is acted on twice or left out.
//!
//! ```text
//! waiting ─ taken ─► running ──► done
//!    ▲                 │  ▲
//!    │           first n  │ all of them delivered
//! resumed              ▼  │
//!    │               canary ── one is dead again, or not in time ──► stopped
//!    └──────── stopped, failed ◄── an operator, an error
//! ```

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{CountLimit, Counted, DlqFilter, EventFilter, Result};
use crate::Outbox;

/// What a job does to which entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobWork {
    /// Sends unresolved dead letters again, as [`OperatorStore::retry`](super::OperatorStore::retry) does.
    DlqRetry {
        /// Which; `resolved` is not looked at.
        filter: DlqFilter,
    },
    /// Resolves dead letters by hand.
    DlqResolve {
        /// Which; `resolved` is not looked at.
        filter: DlqFilter,
    },
    /// Sends archived events again, with their identity and hash.
    Replay {
        /// Which; `status` and `error` are not looked at. Copies of an earlier replay are left out
        /// unless `replayed` asks for them: a second replay of the same events must not send each
        /// twice.
        filter: EventFilter,
        /// Into another outbox, such as one branch of a fan-out; `None` is the outbox itself.
        into: Option<String>,
    },
}

impl JobWork {
    /// The outbox that a replay goes into, if it is another one.
    pub fn target_outbox(&self) -> Option<&str> {
        match self {
            Self::Replay { into, .. } => into.as_deref(),
            Self::DlqRetry { .. } | Self::DlqResolve { .. } => None,
        }
    }

    /// `dlq_retry`, `dlq_resolve` or `replay`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DlqRetry { .. } => "dlq_retry",
            Self::DlqResolve { .. } => "dlq_resolve",
            Self::Replay { .. } => "replay",
        }
    }
}

/// The header of a replayed event; its value is the id of the job.
pub const REPLAY_HEADER: &str = "postrider-replay";

/// The first few go alone, and the rest follows when these are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// How many go first, 1 to [`CANARY_MAX`].
    pub count: u32,
    /// Time for them to be delivered, in seconds; then the job stops.
    pub within_s: u32,
}

/// Events that may go first at most.
pub const CANARY_MAX: u32 = 1_000;

/// A job to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// What to do.
    pub work: JobWork,
    /// Who wants it; each event's line in the audit trail has this name.
    pub operator: String,
    /// Why.
    pub note: String,
    /// Events per second at most.
    pub rate: Option<u32>,
    /// A few first. Not for `dlq_resolve`, which delivers nothing.
    pub canary: Option<Canary>,
    /// No second job has this key: whoever did not hear the answer may ask again. At most
    /// [`REQUEST_KEY_MAX`] characters.
    pub request_key: Option<String>,
}

/// Characters of a job's request key.
pub const REQUEST_KEY_MAX: usize = 200;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Nobody works on it yet.
    Waiting,
    /// Under way.
    Running,
    /// The first few are sent, and their deliveries awaited.
    Canary,
    /// Everything that fits is acted on.
    Done,
    /// Ended by an operator or by its canary; can be resumed.
    Stopped,
    /// Ended by an error; can be resumed.
    Failed,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Running, Self::Canary, Self::Done, Self::Stopped, Self::Failed];

    /// The spelling in the tables, metrics and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Canary => "canary",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// Whether somebody works on it, or should.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Running | Self::Canary)
    }
}

impl std::str::FromStr for JobState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let allowed = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown state `{text}`; allowed: {allowed}")
        })
    }
}

/// A job as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Id of the job.
    pub id: i64,
    /// The outbox whose dead letters or archive it works on.
    pub outbox: String,
    /// What it does.
    pub work: JobWork,
    /// Who made it.
    pub operator: String,
    /// Why.
    pub note: String,
    /// Events per second at most.
    pub rate: Option<u32>,
    /// A few first.
    pub canary: Option<Canary>,
    /// Where it stands.
    pub state: JobState,
    /// Why it stopped or failed.
    pub reason: Option<String>,
    /// Entries up to this id are dealt with.
    pub cursor: i64,
    /// Entries above this id came later than the job and are left alone.
    pub max_id: i64,
    /// Entries acted on.
    pub done_count: i64,
    /// Entries that fitted, but could not be acted on: somebody was faster.
    pub skipped_count: i64,
    /// The process that works on it.
    pub runner: Option<String>,
    /// Milliseconds since that process showed that it lives, on the database's clock.
    pub beat_age_ms: Option<i64>,
    /// Made at.
    pub created_at: DateTime<Utc>,
    /// Changed at.
    pub updated_at: DateTime<Utc>,
}

impl Job {
    /// How far it is, from the ids: 0 to 1.
    pub fn progress(&self) -> f64 {
        match self.state {
            JobState::Done => 1.0,
            _ if self.max_id <= 0 => 0.0,
            _ => (self.cursor as f64 / self.max_id as f64).clamp(0.0, 1.0),
        }
    }
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only of this outbox.
    pub outbox: Option<String>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only those that somebody works on, or should.
    pub open: bool,
}

/// Bulk jobs of a store. [`JobRunner`](crate::JobRunner) works on them.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Makes a job; its entries are frozen by `max_id`. Audited. Refused where it cannot be done
    /// as asked for, and where a job has its request key already.
    async fn create_job(&self, outbox: &Outbox, job: &NewJob) -> Result<Job>;

    /// The job that was made under this request key.
    async fn job_by_request_key(&self, request_key: &str) -> Result<Option<Job>>;

    /// How many entries a job would act on now: the dry run.
    async fn preview_job(
        &self,
        outbox: &Outbox,
        work: &JobWork,
        limit: CountLimit,
    ) -> Result<Counted>;

    /// Jobs, newest first, below an id.
    async fn jobs(
        &self,
        filter: &JobFilter,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Job>>;

    /// One job.
    async fn job(&self, id: i64) -> Result<Option<Job>>;

    /// Takes an open job, unless another runner gave a sign of life within `quiet`. Also the sign
    /// of life of the runner that has it. `None` where the job is somebody else's, or not open.
    async fn take_job(&self, id: i64, runner: &str, quiet: Duration) -> Result<Option<Job>>;

    /// One step, in one transaction: acts on at most `chunk` entries beyond the cursor, or looks
    /// after the canary. `into` is the outbox that a replay names. Answers the job after it; `None`
    /// where the runner does not have the job any more.
    async fn step_job(
        &self,
        outbox: &Outbox,
        into: Option<&Outbox>,
        id: i64,
        runner: &str,
        chunk: u32,
    ) -> Result<Option<Job>>;

    /// The runner gives an open job up: `Stopped` or `Failed`, with the reason. Answers whether the
    /// job was its to give up.
    async fn end_job(&self, id: i64, runner: &str, state: JobState, reason: &str) -> Result<bool>;

    /// Stops an open job: the runner notices at its next step. Refused for others.
    async fn stop_job(&self, id: i64, operator: &str, note: &str) -> Result<Job>;

    /// Has a stopped or failed job go on from its cursor; it waits for a runner. A canary that
    /// was not awaited to its end is passed over. Refused for others.
    async fn resume_job(&self, id: i64, operator: &str, note: &str) -> Result<Job>;
}
