//! Bulk jobs: retry, resolve and replay by filter.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider_store::{CANARY_MAX, Canary, Job, JobFilter, JobState, JobWork, NewJob, StoreError};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::dead_letters::DeadLetterFilterBody;
use super::events::EventFilterBody;
use super::pages::{Count, Note, count_limit, note, page};
use crate::commands::jobs::no_archive;
use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InBody, InPath, InQuery, object, text, whole, whole_or_none};
use crate::http::problem::Problem;

/// Highest rate limit of a job, in events per second.
const RATE_MAX: u32 = 1_000_000;
/// Maximum length of an `Idempotency-Key`.
const KEY_CHARS_MAX: usize = 100;
/// Maximum time that the canary events of a job may take, in seconds.
const CANARY_WITHIN_S_MAX: u32 = 86_400;

/// What a job does to which entries.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum WorkBody {
    /// Sends unresolved dead letters again.
    DlqRetry {
        #[serde(deserialize_with = "object")]
        filter: DeadLetterFilterBody,
    },
    /// Resolves dead letters by hand.
    DlqResolve {
        #[serde(deserialize_with = "object")]
        filter: DeadLetterFilterBody,
    },
    /// Sends archived events again, with their identity.
    Replay {
        #[serde(deserialize_with = "object")]
        filter: EventFilterBody,
        /// Into another outbox, such as one branch of a fan-out; absent is the outbox itself.
        into: Option<String>,
    },
}

/// The first few go alone; the rest follows when these are delivered.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CanaryBody {
    /// How many go first.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 1000)]
    count: u32,
    /// Seconds for them to be delivered; then the job stops.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 86400)]
    within_s: u32,
}

/// A job to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewJobBody {
    work: WorkBody,
    /// Why; it is audited with every entry.
    #[serde(default)]
    #[schema(max_length = 1000)]
    note: String,
    /// Events per second at most.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    rate: Option<u32>,
    #[serde(default, deserialize_with = "canary")]
    canary: Option<CanaryBody>,
    /// Only count what it would act on.
    #[serde(default)]
    dry_run: bool,
}

fn canary<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CanaryBody>, D::Error> {
    let fields = Option::<serde_json::Map<String, serde_json::Value>>::deserialize(deserializer)?;
    let read = |fields| CanaryBody::deserialize(serde_json::Value::Object(fields));
    let canary = fields.map(read).transpose().map_err(serde::de::Error::custom)?;
    let fits = |canary: &CanaryBody| {
        (1..=CANARY_MAX).contains(&canary.count)
            && (1..=CANARY_WITHIN_S_MAX).contains(&canary.within_s)
    };
    match canary.as_ref().is_none_or(fits) {
        true => Ok(canary),
        false => Err(serde::de::Error::custom(format!(
            "canary: `count` is 1 to {CANARY_MAX}, `within_s` 1 to {CANARY_WITHIN_S_MAX}"
        ))),
    }
}

/// What a job would act on now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Preview {
    dry_run: bool,
    #[serde(flatten)]
    would_act_on: Count,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StateWord {
    /// No relay works on it yet.
    Waiting,
    Running,
    /// The first few are sent, and their deliveries awaited.
    Canary,
    Done,
    /// Ended by an operator or by its canary; can be resumed.
    Stopped,
    /// Ended by an error; can be resumed.
    Failed,
}

impl From<JobState> for StateWord {
    fn from(state: JobState) -> Self {
        match state {
            JobState::Waiting => Self::Waiting,
            JobState::Running => Self::Running,
            JobState::Canary => Self::Canary,
            JobState::Done => Self::Done,
            JobState::Stopped => Self::Stopped,
            JobState::Failed => Self::Failed,
        }
    }
}

impl From<StateWord> for JobState {
    fn from(state: StateWord) -> Self {
        match state {
            StateWord::Waiting => Self::Waiting,
            StateWord::Running => Self::Running,
            StateWord::Canary => Self::Canary,
            StateWord::Done => Self::Done,
            StateWord::Stopped => Self::Stopped,
            StateWord::Failed => Self::Failed,
        }
    }
}

/// A bulk job.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobBody {
    id: i64,
    outbox: String,
    /// `dlq_retry`, `dlq_resolve` or `replay`.
    kind: &'static str,
    /// Kind and filter, as the job was made.
    work: serde_json::Value,
    operator: String,
    note: String,
    rate: Option<u32>,
    canary: Option<CanaryBody>,
    state: StateWord,
    /// Why it stopped or failed.
    reason: Option<String>,
    /// 0 to 1, by the ids that are behind it.
    progress: f64,
    /// Entries acted on.
    done_count: i64,
    /// Entries that somebody else was faster with.
    skipped_count: i64,
    /// The process that works on it.
    runner: Option<String>,
    /// Milliseconds since that process showed that it lives.
    beat_age_ms: Option<i64>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Job> for JobBody {
    fn from(job: Job) -> Self {
        let canary = |Canary { count, within_s }| CanaryBody { count, within_s };
        Self {
            id: job.id,
            kind: job.work.kind(),
            work: serde_json::to_value(&job.work).unwrap_or_default(),
            canary: job.canary.map(canary),
            state: job.state.into(),
            progress: job.progress(),
            beat_age_ms: job.beat_age_ms,
            outbox: job.outbox,
            operator: job.operator,
            note: job.note,
            rate: job.rate,
            reason: job.reason,
            done_count: job.done_count,
            skipped_count: job.skipped_count,
            runner: job.runner,
            created_at: job.created_at,
            updated_at: job.updated_at,
        }
    }
}

/// The dry run, or the job that was made before under the same key.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum PreviewOrKnown {
    Preview(Preview),
    Known(Box<JobBody>),
}

/// Make a bulk job, or with `dry_run` count what it would act on. A running relay works on it. A
/// repeat with the same `Idempotency-Key` answers the job that was made.
#[utoipa::path(
    operation_id = "create_job",
    post, path = "/api/v1/outboxes/{outbox}/jobs", tag = "jobs",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("idempotency-key" = Option<String>, Header, max_length = 100,
         pattern = "^[!-~]([ -~]*[!-~])?$", description = "Up to 100 printable characters"),
    ),
    request_body = NewJobBody,
    responses(
        (status = 200, description = "The dry run, or the job that was made before",
         body = PreviewOrKnown),
        (status = 201, description = "The job", body = JobBody),
        (status = 409, description = "Another job was made with this key",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    headers: HeaderMap,
    InBody(body): InBody<NewJobBody>,
) -> Result<Response, Problem> {
    let served = state.served(&name)?;
    let (outbox, work) = (&served.outbox, work(&state, body.work)?);
    if matches!(work, JobWork::Replay { .. }) && !served.archives {
        return Err(Problem::new(422, no_archive(&name)));
    }
    if body.rate.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
        let detail = format!("`rate` is not in 1 to {RATE_MAX} events per second");
        return Err(Problem::new(422, detail));
    }
    let (note, request_key) = (note(body.note)?, request_key(&headers, &caller)?);
    if body.dry_run {
        let counted = state.store.preview_job(outbox, &work, count_limit(&state)).await;
        let counted = counted.map_err(not_possible)?;
        let preview = Preview { dry_run: true, would_act_on: counted.into() };
        return Ok(Json(PreviewOrKnown::Preview(preview)).into_response());
    }
    if let Some(known) = known(&state, outbox, &work, request_key.as_deref()).await? {
        return Ok(Json(known).into_response());
    }
    let canary = |CanaryBody { count, within_s }| Canary { count, within_s };
    let job = NewJob {
        work,
        operator: caller.name.to_string(),
        note,
        rate: body.rate,
        canary: body.canary.map(canary),
        request_key,
    };
    match state.store.create_job(outbox, &job).await {
        Ok(job) => Ok((StatusCode::CREATED, Json(JobBody::from(job))).into_response()),
        // A concurrent request with the same key may have created it first.
        Err(error) => match known(&state, outbox, &job.work, job.request_key.as_deref()).await? {
            Some(known) => Ok(Json(known).into_response()),
            None => Err(not_possible(error)),
        },
    }
}

/// Returns the request key, with the caller's name in front: no caller can find another one's job
/// by guessing its key.
fn request_key(headers: &HeaderMap, caller: &Caller) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let fits = |key: &&str| !key.is_empty() && key.len() <= KEY_CHARS_MAX;
    let key = key.to_str().ok().filter(fits).ok_or_else(|| {
        let detail = format!("`Idempotency-Key` is 1 to {KEY_CHARS_MAX} printable characters");
        Problem::new(400, detail)
    })?;
    Ok(Some(format!("{}/{key}", caller.name)))
}

/// Returns the job that was already created with this key.
async fn known(
    state: &ServerState,
    outbox: &Outbox,
    work: &JobWork,
    request_key: Option<&str>,
) -> Result<Option<PreviewOrKnown>, Problem> {
    let Some(key) = request_key else { return Ok(None) };
    match state.store.job_by_request_key(key).await? {
        None => Ok(None),
        Some(job) if job.outbox == outbox.name() && job.work == *work => {
            Ok(Some(PreviewOrKnown::Known(Box::new(job.into()))))
        }
        Some(job) => {
            let detail = format!("this `Idempotency-Key` made another job before: {}", job.id);
            Err(Problem::new(409, detail))
        }
    }
}

fn work(state: &ServerState, body: WorkBody) -> Result<JobWork, Problem> {
    Ok(match body {
        WorkBody::DlqRetry { filter } => JobWork::DlqRetry { filter: filter.checked()? },
        WorkBody::DlqResolve { filter } => JobWork::DlqResolve { filter: filter.checked()? },
        WorkBody::Replay { filter, into } => {
            if let Some(into) = &into {
                state.served(into)?;
            }
            JobWork::Replay { filter: filter.checked()?, into }
        }
    })
}

/// A job that cannot be done as requested is an error in the request, not a conflict.
fn not_possible(error: StoreError) -> Problem {
    match error {
        StoreError::Refused(why) => Problem::new(422, why),
        error => error.into(),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JobQuery {
    /// Only of this outbox.
    outbox: Option<String>,
    /// Only in this state.
    #[param(inline)]
    state: Option<StateWord>,
    /// Only those that somebody works on, or should.
    open: bool,
    /// Only ids below this: `next` of the page before.
    before: Option<i64>,
    /// Rows at most; 50 if absent.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// One page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobRows {
    /// Newest first.
    rows: Vec<JobBody>,
    /// `before` of the next page; absent at the end of the list.
    next: Option<i64>,
}

/// Jobs, newest first.
#[utoipa::path(
    operation_id = "list_jobs",
    get, path = "/api/v1/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, description = "A page", body = JobRows))
)]
pub(super) async fn list(
    State(state): State<ServerState>,
    InQuery(query): InQuery<JobQuery>,
) -> Result<Json<JobRows>, Problem> {
    let page = page(&state, query.before, query.limit)?;
    let filter = JobFilter {
        outbox: text("outbox", query.outbox)?,
        state: query.state.map(JobState::from),
        open: query.open,
    };
    let jobs = state.store.jobs(&filter, page.before_id, page.limit).await?;
    let full = jobs.len() == page.limit as usize;
    let next = jobs.last().filter(|_| full).map(|job| job.id);
    Ok(Json(JobRows { rows: jobs.into_iter().map(JobBody::from).collect(), next }))
}

/// One job, with its progress.
#[utoipa::path(
    operation_id = "show_job",
    get, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = i64, Path, description = "Id of the job")),
    responses((status = 200, description = "The job", body = JobBody))
)]
pub(super) async fn show(
    State(state): State<ServerState>,
    InPath(id): InPath<i64>,
) -> Result<Json<JobBody>, Problem> {
    find(&state, id).await.map(|job| Json(job.into()))
}

/// Stop a job; what it did stays done, and it can be resumed.
#[utoipa::path(
    operation_id = "stop_job",
    post, path = "/api/v1/jobs/{id}/stop", tag = "jobs",
    params(("id" = i64, Path, description = "Id of the job")),
    request_body = Note,
    responses(
        (status = 200, description = "Stopped", body = JobBody),
        (status = 409, description = "It is not under way",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stop(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(id): InPath<i64>,
    InBody(note): InBody<Note>,
) -> Result<Json<JobBody>, Problem> {
    let note = note.checked()?;
    let found = find(&state, id).await?;
    let stopped = state.store.stop_job(id, &caller.name, &note).await;
    stopped.map(|job| Json(job.into())).map_err(|error| conflict(error, &found))
}

/// Have a stopped or failed job go on where it was.
#[utoipa::path(
    operation_id = "resume_job",
    post, path = "/api/v1/jobs/{id}/resume", tag = "jobs",
    params(("id" = i64, Path, description = "Id of the job")),
    request_body = Note,
    responses(
        (status = 200, description = "It waits for a relay to go on", body = JobBody),
        (status = 409, description = "It is under way, or done",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(id): InPath<i64>,
    InBody(note): InBody<Note>,
) -> Result<Json<JobBody>, Problem> {
    let note = note.checked()?;
    let found = find(&state, id).await?;
    let resumed = state.store.resume_job(id, &caller.name, &note).await;
    resumed.map(|job| Json(job.into())).map_err(|error| conflict(error, &found))
}

async fn find(state: &ServerState, id: i64) -> Result<Job, Problem> {
    let unknown = || Problem::new(404, format!("there is no job {id}"));
    state.store.job(id).await?.ok_or_else(unknown)
}

fn conflict(error: StoreError, job: &Job) -> Problem {
    match error {
        StoreError::Refused(why) => Problem::new(409, why).with("state", job.state.as_str()),
        error => error.into(),
    }
}
