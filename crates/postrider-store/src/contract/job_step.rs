//! One step of a bulk job. The sequence is the same on every store; each store has its own
//! statements.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use chrono::TimeDelta;
use serde::Deserialize;

use super::{
    CANARY_MAX, Canary, DlqFilter, EventFilter, Job, JobState, JobWork, NewJob, REQUEST_KEY_MAX,
    Result, parse_stored,
};
use crate::{Status, StoreError};

/// Maximum number of rows that one step reads. A filter with few matches is processed in such
/// steps.
const WINDOW_ROWS: i64 = 10_000;

/// Maximum number of bytes of payload that one step sends again; a single larger one is sent alone.
/// A transaction with 500 entries of 4 MiB would block the server.
const STEP_BYTES_MAX: i64 = 8 * 1024 * 1024;

/// Maximum number of archived events with the same id in one step. Together with a whole chunk
/// before them, their number stays within the limit up to which MariaDB returns all ids.
const TWINS_MAX: i64 = 400;

/// An entry that a job acts on: its row id and its event id.
pub(crate) type Entry = (i64, String);

/// The table with the entries of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    DeadLetters,
    Archive,
}

/// A job whose row is locked by this transaction.
pub(crate) struct LockedJob {
    pub(crate) job: Job,
    pub(crate) canary: CanaryNote,
    /// The time for the canary has run out.
    pub(crate) overdue: bool,
}

/// The canary events noted in the job's row.
#[derive(Debug, Clone, Default)]
pub(crate) struct CanaryNote {
    /// Their row ids and event ids. If ids were assigned again, another event may have the row id
    /// of one of them. Rows of older programs have no event ids.
    pub(crate) events: Vec<(i64, Option<String>)>,
    /// They were delivered, or an operator skipped the wait.
    pub(crate) passed: bool,
    /// Their time starts with this step.
    pub(crate) starts: bool,
}

/// The state of the canary events.
pub(crate) struct CanaryLook {
    pub(crate) waiting: i64,
    pub(crate) dead: i64,
}

/// The statements of a step, all in one transaction.
#[async_trait]
pub(crate) trait JobTransaction: Send {
    /// Locks the job's row, if the job is open and belongs to this runner.
    async fn lock(&mut self, id: i64, runner: &str) -> Result<Option<LockedJob>>;

    /// Returns the last of the next `rows` ids after `after`, up to `max_id`.
    async fn window(
        &mut self,
        source: Source,
        after: i64,
        max_id: i64,
        rows: i64,
    ) -> Result<Option<i64>>;

    /// Returns matching unresolved dead letters with ids above `after` and up to `to`, oldest
    /// first, with the sizes of their payloads.
    async fn dead_letters(
        &mut self,
        filter: &DlqFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(i64, i64)>>;

    /// Locks those that are still unresolved.
    async fn lock_dead_letters(&mut self, ids: &[i64]) -> Result<Vec<Entry>>;

    /// Returns matching archived events with ids above `after` and up to `to`, oldest first, with
    /// the sizes of their payloads.
    async fn archived(
        &mut self,
        filter: &EventFilter,
        after: i64,
        to: i64,
        limit: i64,
    ) -> Result<Vec<(Entry, i64)>>;

    /// Appends new events for dead letters; returns their row ids and event ids.
    async fn retry_all(&mut self, letters: &[Entry]) -> Result<Vec<Entry>>;

    /// Appends copies of archived events to the outbox that the job names, marked with the job id.
    async fn replay_all(&mut self, job_id: i64, archived: &[Entry]) -> Result<Vec<Entry>>;

    /// Resolves dead letters, given as dead-letter id and row id of the new event.
    async fn resolve_all(
        &mut self,
        letters: &[(i64, Option<i64>)],
        operator: &str,
        note: &str,
    ) -> Result<()>;

    /// Writes lines to the audit trail, given as target and detail.
    async fn audit_all(
        &mut self,
        operator: &str,
        action: &str,
        lines: &[(String, String)],
    ) -> Result<()>;

    /// Returns the current state of these events, found by row id and, if known, event id.
    async fn look_after(&mut self, events: &[(i64, Option<String>)]) -> Result<CanaryLook>;

    /// Writes the job's row, which also serves as a heartbeat.
    async fn save(&mut self, job: &Job, canary: &CanaryNote) -> Result<()>;
}

/// Runs one step; the caller commits. Returns `None` if the job does not belong to the runner.
pub(crate) async fn step(
    tx: &mut dyn JobTransaction,
    id: i64,
    runner: &str,
    chunk: u32,
) -> Result<Option<Job>> {
    let Some(mut locked) = tx.lock(id, runner).await? else { return Ok(None) };
    match locked.job.state {
        JobState::Canary => await_canary(tx, &mut locked).await?,
        _ => act(tx, &mut locked, i64::from(chunk)).await?,
    }
    if !locked.job.state.is_open() {
        locked.job.runner = None;
    }
    tx.save(&locked.job, &locked.canary).await?;
    Ok(Some(locked.job))
}

async fn await_canary(tx: &mut dyn JobTransaction, locked: &mut LockedJob) -> Result<()> {
    let (job, canary) = (&mut locked.job, &mut locked.canary);
    let CanaryLook { waiting, dead } = tx.look_after(&canary.events).await?;
    let sent = canary.events.len();
    let stop = match (dead, waiting) {
        (0, 0) => {
            canary.passed = true;
            job.state = JobState::Running;
            return Ok(());
        }
        (0, _) if !locked.overdue => return Ok(()),
        (0, _) => {
            let within = job.canary.map_or(0, |canary| canary.within_s);
            format!("{waiting} of the first {sent} are not delivered after {within} s")
        }
        _ => format!("{dead} of the first {sent} are dead letters again"),
    };
    job.state = JobState::Stopped;
    job.reason = Some(format!("canary: {stop}"));
    Ok(())
}

async fn act(tx: &mut dyn JobTransaction, locked: &mut LockedJob, chunk: i64) -> Result<()> {
    let (job, canary) = (&mut locked.job, &mut locked.canary);
    let first = job.canary.filter(|_| !canary.passed).map(|canary| i64::from(canary.count));
    let limit = first.map_or(chunk, |first| chunk.min(first - job.done_count)).max(1);
    let source = match &job.work {
        JobWork::Replay { .. } => Source::Archive,
        JobWork::DlqRetry { .. } | JobWork::DlqResolve { .. } => Source::DeadLetters,
    };
    let Some(to) = tx.window(source, job.cursor, job.max_id, WINDOW_ROWS).await? else {
        job.state = JobState::Done;
        job.cursor = job.max_id;
        return Ok(());
    };
    let acted = match job.work.clone() {
        JobWork::DlqRetry { filter } => act_on_letters(tx, job, &filter, to, limit, true).await?,
        JobWork::DlqResolve { filter } => {
            act_on_letters(tx, job, &filter, to, limit, false).await?
        }
        JobWork::Replay { filter, .. } => replay(tx, job, &filter, to, limit).await?,
    };
    job.cursor = acted.last_id.unwrap_or(to);
    job.done_count += acted.done;
    job.skipped_count += acted.skipped;
    if first.is_some() {
        canary.events.extend(acted.fresh.into_iter().map(|(id, event)| (id, Some(event))));
        if first.is_some_and(|first| job.done_count >= first) {
            job.state = JobState::Canary;
            canary.starts = true;
        }
    }
    Ok(())
}

/// The result of one step.
struct Acted {
    /// The last entry that was read, if there may be more before the end of the window.
    last_id: Option<i64>,
    done: i64,
    skipped: i64,
    fresh: Vec<Entry>,
}

async fn act_on_letters(
    tx: &mut dyn JobTransaction,
    job: &Job,
    filter: &DlqFilter,
    to: i64,
    limit: i64,
    retry: bool,
) -> Result<Acted> {
    let filter = DlqFilter { resolved: None, ..filter.clone() };
    let found = tx.dead_letters(&filter, job.cursor, to, limit).await?;
    let (found, more) = within_bytes(found, limit);
    let held = tx.lock_dead_letters(&found).await?;
    let fresh = match retry {
        true => pair(&held, tx.retry_all(&held).await?)?,
        false => Vec::new(),
    };
    let of = |at: usize| fresh.get(at).copied();
    let resolved: Vec<(i64, Option<i64>)> =
        held.iter().enumerate().map(|(at, (id, _))| (*id, of(at))).collect();
    tx.resolve_all(&resolved, &job.operator, &job.note).await?;
    let line = |(id, fresh): &(i64, Option<i64>)| {
        let what = fresh.map_or_else(|| "resolved".to_owned(), |id| format!("retried as {id}"));
        (id.to_string(), format!("{what}, job {}: {}", job.id, job.note))
    };
    let lines: Vec<_> = resolved.iter().map(line).collect();
    let action = if retry { "dlq.retry" } else { "dlq.resolve" };
    tx.audit_all(&job.operator, action, &lines).await?;
    let fresh_events = fresh.into_iter().zip(&held).map(|(id, (_, event))| (id, event.clone()));
    let last_id = found.last().copied().filter(|_| more);
    Ok(acted(found.len(), last_id, held.len(), fresh_events.collect()))
}

async fn replay(
    tx: &mut dyn JobTransaction,
    job: &Job,
    filter: &EventFilter,
    to: i64,
    limit: i64,
) -> Result<Acted> {
    // Events that were delivered after the job was created are left out. Those delivered in the
    // same millisecond are included: some clocks do not distinguish them, and one event too many is
    // better than one too few.
    let made = job.created_at + TimeDelta::milliseconds(1);
    let until = filter.delivered_until.map_or(made, |until| until.min(made));
    let delivered_until = Some(until);
    let filter = EventFilter { status: None, delivered_until, ..to_replay(filter) };
    let found = tx.archived(&filter, job.cursor, to, limit).await?;
    let (found, more) = within_bytes(found, limit);
    let found = whole_ids(tx, &filter, found, more).await?;
    let copies = tx.replay_all(job.id, &found).await?;
    let done = copies.len();
    let ids: HashMap<&str, i64> = copies.iter().map(|(id, event)| (event.as_str(), *id)).collect();
    let line = |(id, event): &Entry| {
        let fresh = ids.get(event.as_str())?;
        Some((id.to_string(), format!("replayed as {fresh}, job {}: {}", job.id, job.note)))
    };
    let lines: Vec<_> = found.iter().filter_map(line).collect();
    tx.audit_all(&job.operator, "event.replay", &lines).await?;
    Ok(acted(found.len(), found.last().map(|(id, _)| *id).filter(|_| more), done, copies))
}

/// Completes the last id of a step that was cut, and returns each event once. Ids are reused after
/// a `TRUNCATE` or a restore, so several archived events may share one; the cursor passes them
/// together.
async fn whole_ids(
    tx: &mut dyn JobTransaction,
    filter: &EventFilter,
    mut found: Vec<Entry>,
    cut: bool,
) -> Result<Vec<Entry>> {
    if let Some(last) = found.last().map(|(id, _)| *id).filter(|_| cut) {
        let twins = tx.archived(filter, last - 1, last, TWINS_MAX).await?;
        found.retain(|(id, _)| *id != last);
        found.extend(twins.into_iter().map(|(entry, _)| entry));
    }
    let mut seen = HashSet::new();
    found.retain(|entry| seen.insert(entry.clone()));
    Ok(found)
}

/// Returns the filter of a replay: original events, unless it asks for copies of an earlier replay.
fn to_replay(filter: &EventFilter) -> EventFilter {
    let replayed = filter.replayed.or(Some(false));
    EventFilter { error: None, replayed, ..filter.clone() }
}

/// Takes as many of the first entries as the byte limit of a step allows, at least one. Also
/// returns whether there may be more in the window.
fn within_bytes<T>(found: Vec<(T, i64)>, limit: i64) -> (Vec<T>, bool) {
    let (count, mut bytes) = (found.len(), 0_i64);
    let fits = |(at, (_, size)): &(usize, (T, i64))| {
        bytes = bytes.saturating_add(*size);
        *at == 0 || bytes <= STEP_BYTES_MAX
    };
    let kept = found.into_iter().enumerate().take_while(fits).map(|(_, (entry, _))| entry);
    let kept: Vec<T> = kept.collect();
    let more = kept.len() < count || i64::try_from(count).is_ok_and(|count| count >= limit);
    (kept, more)
}

fn acted(found: usize, last_id: Option<i64>, done: usize, fresh: Vec<Entry>) -> Acted {
    let count = |rows: usize| i64::try_from(rows).unwrap_or(i64::MAX);
    Acted { last_id, done: count(done), skipped: count(found - done.min(found)), fresh }
}

/// Returns the new event of each entry. Matches by event id, because a statement does not guarantee
/// the order of the rows that it returns. Entries that share an event id are the same event.
fn pair(entries: &[Entry], fresh: Vec<Entry>) -> Result<Vec<i64>> {
    let mut by_event: HashMap<String, Vec<i64>> = HashMap::new();
    for (id, event) in fresh {
        by_event.entry(event).or_default().push(id);
    }
    let next = |(_, event): &Entry| by_event.get_mut(event).and_then(Vec::pop);
    let paired: Vec<i64> = entries.iter().filter_map(next).collect();
    match paired.len() == entries.len() {
        true => Ok(paired),
        false => Err(StoreError::Schema(format!(
            "{} dead letters were sent again, but only {} events came of it: a trigger of the \
             outbox is missing or altered; run `postrider migrate`",
            entries.len(),
            paired.len()
        ))),
    }
}

/// Refuses an invalid request before a job is created.
pub(crate) fn check_job(job: &NewJob) -> Result<()> {
    let refuse = |why: &str| Err(StoreError::Refused(why.to_owned()));
    if job.request_key.as_ref().is_some_and(|key| key.chars().count() > REQUEST_KEY_MAX) {
        return refuse(&format!("a request key has at most {REQUEST_KEY_MAX} characters"));
    }
    match (job.rate, job.canary, &job.work) {
        (Some(0), ..) => refuse("a rate of 0 events per second would never end; leave it out"),
        (_, Some(_), JobWork::DlqResolve { .. }) => {
            refuse("a canary is for what is delivered; resolving delivers nothing")
        }
        (_, Some(canary), _)
            if !(1..=CANARY_MAX).contains(&canary.count) || canary.within_s == 0 =>
        {
            Err(StoreError::Refused(format!(
                "a canary of {} events within {} s; allowed are 1 to {CANARY_MAX} events and at \
                 least 1 s",
                canary.count, canary.within_s
            )))
        }
        _ => Ok(()),
    }
}

/// Converts the error of a failed insert of a job: another caller may have used the same request
/// key first.
pub(crate) fn not_made(job: &NewJob, error: sqlx::Error) -> StoreError {
    let known = error.as_database_error().is_some_and(|error| error.is_unique_violation());
    match (known, &job.request_key) {
        (true, Some(key)) => {
            StoreError::Refused(format!("a job with the request key `{key}` was made before"))
        }
        _ => error.into(),
    }
}

/// Returns the reason why a job cannot be stopped or resumed in its current state.
pub(crate) fn refuse_job(id: i64, found: Option<JobState>, open: bool) -> Result<()> {
    match found {
        None => Err(StoreError::Refused(format!(
            "there is no job {id}; `postrider jobs list` shows what there is"
        ))),
        Some(state) if state.is_open() == open && (open || state != JobState::Done) => Ok(()),
        Some(state) => Err(StoreError::Refused(format!(
            "job {id} is {}; {}",
            state.as_str(),
            match open {
                true => "only one that waits or runs can be stopped",
                false => "only one that stopped or failed can be resumed",
            }
        ))),
    }
}

/// The filter that a dry run counts.
pub(crate) enum Preview {
    DeadLetters(DlqFilter),
    Archived(Box<EventFilter>),
}

/// Returns the filter of a dry run.
pub(crate) fn preview(work: &JobWork) -> Preview {
    match work.clone() {
        JobWork::DlqRetry { filter } | JobWork::DlqResolve { filter } => {
            Preview::DeadLetters(DlqFilter { resolved: Some(false), ..filter })
        }
        JobWork::Replay { filter, .. } => {
            let status = Some(Status::Completed);
            Preview::Archived(Box::new(EventFilter { status, ..to_replay(&filter) }))
        }
    }
}

/// Serializes the work as stored in the job's row.
pub(crate) fn work_json(work: &JobWork) -> Result<String> {
    serde_json::to_string(work).map_err(unreadable)
}

/// Parses the encoded columns of a job's row: work, state, rate, canary.
pub(crate) fn parse_job(
    work: &str,
    state: &str,
    rate: Option<i64>,
    canary: (Option<i64>, Option<i64>),
) -> Result<(JobWork, JobState, Option<u32>, Option<Canary>)> {
    let number = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
    let canary = match canary {
        (Some(count), Some(within_s)) => {
            Some(Canary { count: number(count), within_s: number(within_s) })
        }
        _ => None,
    };
    let work = serde_json::from_str(work).map_err(unreadable)?;
    Ok((work, parse_stored("state", state)?, rate.map(number), canary))
}

pub(crate) fn canary_text(events: &[(i64, Option<String>)]) -> String {
    serde_json::json!(events).to_string()
}

pub(crate) fn parse_canary(text: &str) -> Result<Vec<(i64, Option<String>)>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Noted {
        Event(i64, Option<String>),
        // Written by an older program, which did not store event ids.
        Id(i64),
    }
    let noted: Vec<Noted> = serde_json::from_str(text).map_err(unreadable)?;
    let event = |noted| match noted {
        Noted::Event(id, event_id) => (id, event_id),
        Noted::Id(id) => (id, None),
    };
    Ok(noted.into_iter().map(event).collect())
}

fn unreadable(error: serde_json::Error) -> StoreError {
    StoreError::Schema(format!("a row of postrider_jobs cannot be read: {error}"))
}
