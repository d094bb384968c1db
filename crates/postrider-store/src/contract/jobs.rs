//! Bulk jobs: an operator's action on all entries that match a filter, stored as a row.
//!
//! A job is processed in steps, and a step is one transaction: it locks the job's row, acts on the
//! next entries after the job's cursor, writes the audit trail, and moves the cursor. A runner that
//! dies before a step's commit has done nothing; one that dies after it, or does not receive the
//! result, finds the cursor moved. So no entry is acted on twice or left out.
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
use postrider::Outbox;
use serde::{Deserialize, Serialize};

use super::{CountLimit, Counted, DlqFilter, EventFilter, Result};

/// The kind of a job and the entries that it acts on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JobWork {
    /// Sends unresolved dead letters again, as
    /// [`OperatorStore::retry`](super::OperatorStore::retry) does.
    DlqRetry {
        /// The dead letters; `resolved` is ignored.
        filter: DlqFilter,
    },
    /// Resolves dead letters by hand.
    DlqResolve {
        /// The dead letters; `resolved` is ignored.
        filter: DlqFilter,
    },
    /// Sends archived events again, with their event id and hash.
    Replay {
        /// The events; `status` and `error` are ignored. Copies of an earlier replay are left out
        /// unless `replayed` asks for them: a second replay of the same events must not send each
        /// twice.
        filter: EventFilter,
        /// Another outbox to send them to, such as one branch of a fan-out; `None` is the outbox
        /// itself.
        into: Option<String>,
    },
}

impl JobWork {
    /// Returns the outbox that a replay appends to, if it is another one.
    pub fn target_outbox(&self) -> Option<&str> {
        match self {
            Self::Replay { into, .. } => into.as_deref(),
            Self::DlqRetry { .. } | Self::DlqResolve { .. } => None,
        }
    }

    /// Returns `dlq_retry`, `dlq_resolve` or `replay`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DlqRetry { .. } => "dlq_retry",
            Self::DlqResolve { .. } => "dlq_resolve",
            Self::Replay { .. } => "replay",
        }
    }
}

/// Header of a replayed event; its value is the id of the job.
pub const REPLAY_HEADER: &str = "postrider-replay";

/// A canary: the first few events are sent alone, and the rest follows once they are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// Number of events to send first, 1 to [`CANARY_MAX`].
    pub count: u32,
    /// Time for them to be delivered, in seconds; after that the job stops.
    pub within_s: u32,
}

/// Maximum number of canary events.
pub const CANARY_MAX: u32 = 1_000;

/// A job to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The kind of the job and its entries.
    pub work: JobWork,
    /// Name of the operator, used in each event's line of the audit trail.
    pub operator: String,
    /// Reason given by the operator.
    pub note: String,
    /// Maximum number of events per second.
    pub rate: Option<u32>,
    /// The canary, if any. Not for `dlq_resolve`, which delivers nothing.
    pub canary: Option<Canary>,
    /// Unique among jobs, so a caller who did not receive the result may ask again. At most
    /// [`REQUEST_KEY_MAX`] characters.
    pub request_key: Option<String>,
}

/// Maximum number of characters in a job's request key.
pub const REQUEST_KEY_MAX: usize = 200;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// No runner works on it yet.
    Waiting,
    /// A runner works on it.
    Running,
    /// The canary events have been sent, and the job waits for their deliveries.
    Canary,
    /// All matching entries have been processed.
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

    /// Returns the spelling in tables, metrics and commands.
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

    /// Returns whether it is waiting or in progress.
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

/// A job as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Id of the job.
    pub id: i64,
    /// The outbox whose dead letters or archive it works on.
    pub outbox: String,
    /// The kind of the job and its entries.
    pub work: JobWork,
    /// Name of the operator who created it.
    pub operator: String,
    /// Reason given by the operator.
    pub note: String,
    /// Maximum number of events per second.
    pub rate: Option<u32>,
    /// The canary, if any.
    pub canary: Option<Canary>,
    /// State of the job.
    pub state: JobState,
    /// Reason why it stopped or failed.
    pub reason: Option<String>,
    /// Entries up to this id have been processed.
    pub cursor: i64,
    /// Entries above this id were added after the job was created and are not touched.
    pub max_id: i64,
    /// Entries acted on.
    pub done_count: i64,
    /// Entries that matched but could not be acted on, because someone else had acted on them
    /// first.
    pub skipped_count: i64,
    /// Name of the process that works on it.
    pub runner: Option<String>,
    /// Milliseconds since the last heartbeat of that process, on the database's clock.
    pub beat_age_ms: Option<i64>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

impl Job {
    /// Returns the progress, estimated from the ids: 0 to 1.
    pub fn progress(&self) -> f64 {
        match self.state {
            JobState::Done => 1.0,
            _ if self.max_id <= 0 => 0.0,
            _ => (self.cursor as f64 / self.max_id as f64).clamp(0.0, 1.0),
        }
    }
}

/// Filter of jobs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only of this outbox.
    pub outbox: Option<String>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only those that are waiting or in progress.
    pub open: bool,
}

/// Bulk jobs of a store. [`JobRunner`](crate::JobRunner) runs them.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Creates a job; `max_id` fixes its set of entries. Audited. Refused if the request is
    /// invalid, or if another job has the same request key.
    async fn create_job(&self, outbox: &Outbox, job: &NewJob) -> Result<Job>;

    /// Returns the job that was created with this request key.
    async fn job_by_request_key(&self, request_key: &str) -> Result<Option<Job>>;

    /// Returns how many entries a job would act on now: the dry run.
    async fn preview_job(
        &self,
        outbox: &Outbox,
        work: &JobWork,
        limit: CountLimit,
    ) -> Result<Counted>;

    /// Lists jobs, newest first, below an id.
    async fn jobs(
        &self,
        filter: &JobFilter,
        before_id: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Job>>;

    /// Returns one job.
    async fn job(&self, id: i64) -> Result<Option<Job>>;

    /// Takes an open job, unless another runner has sent a heartbeat within `quiet`. Also serves as
    /// the heartbeat of the runner that has the job. Returns `None` if the job belongs to another
    /// runner or is not open.
    async fn take_job(&self, id: i64, runner: &str, quiet: Duration) -> Result<Option<Job>>;

    /// Runs one step in one transaction: acts on at most `chunk` entries after the cursor, or
    /// checks the canary. `into` is the target outbox of a replay. Returns the job after the step;
    /// `None` if the job no longer belongs to the runner.
    async fn step_job(
        &self,
        outbox: &Outbox,
        into: Option<&Outbox>,
        id: i64,
        runner: &str,
        chunk: u32,
    ) -> Result<Option<Job>>;

    /// Ends an open job of this runner as `Stopped` or `Failed`, with the reason. Returns whether
    /// the job belonged to the runner.
    async fn end_job(&self, id: i64, runner: &str, state: JobState, reason: &str) -> Result<bool>;

    /// Stops an open job; the runner notices at its next step. Refused in other states.
    async fn stop_job(&self, id: i64, operator: &str, note: &str) -> Result<Job>;

    /// Makes a stopped or failed job continue from its cursor; it waits for a runner. A canary
    /// whose wait was interrupted is skipped. Refused in other states.
    async fn resume_job(&self, id: i64, operator: &str, note: &str) -> Result<Job>;
}
