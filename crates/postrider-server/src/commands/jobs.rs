//! `postrider jobs`, `postrider replay`, and bulk actions in the foreground.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, Table, brief, counted, number},
};
use postrider_store::{
    Canary, CountLimit, Job, JobFilter, JobRunner, JobState, JobWork, NewJob, OnSuccess,
};
use serde_json::json;

use crate::cli::{By, JobsCommand, PaceArgs, PageArgs, ReplayArgs};
use crate::commands::events::{event_filter, print_fields};
use crate::commands::{Context, Opened};

/// Interval between checks of a job that another process works on.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn jobs(context: &Context, command: JobsCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        JobsCommand::List { outbox, state, page } => {
            let filter = JobFilter { outbox, state, open: false };
            list(&opened, &filter, &page).await
        }
        JobsCommand::Show { id, json } => show(&opened, id, json).await,
        JobsCommand::Stop { id, by } => {
            let job = opened.store.stop_job(id, &by.operator, &by.note).await?;
            output::print(&format!(
                "job {id} is stopped, {} done; it goes on with: postrider jobs resume {id}\n",
                number(job.done_count)
            ))
        }
        JobsCommand::Resume { id, by, json } => {
            opened.store.resume_job(id, &by.operator, &by.note).await?;
            let job = follow(&opened, id).await?;
            report(&job, json)
        }
    }
}

pub(crate) async fn replay(context: &Context, args: ReplayArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let outbox = opened.outbox(args.filter.outbox.as_deref())?;
    let configured = opened.built.outboxes.iter().find(|config| config.outbox == outbox);
    if configured.is_none_or(|config| config.preset.on_success != OnSuccess::Archive) {
        return Err(Failure::Usage(no_archive(outbox.name())));
    }
    if let Some(into) = &args.into {
        opened.outbox(Some(into))?;
    }
    let filter = event_filter(args.filter);
    let work = JobWork::Replay { filter, into: args.into };
    run(&opened, &outbox, work, &args.pace, args.by, args.json).await
}

/// Explains why events of an outbox cannot be replayed.
pub(crate) fn no_archive(name: &str) -> String {
    format!(
        "outbox `{name}` keeps no archive, so there is nothing to replay: set on_success = \
         \"archive\" in [[outbox]] `{name}`; events delivered from then on can be replayed"
    )
}

/// Runs a bulk action. A dry run only counts; otherwise this process works on the job and shows its
/// progress.
pub(crate) async fn run(
    opened: &Opened,
    outbox: &Outbox,
    work: JobWork,
    pace: &PaceArgs,
    by: By,
    json: bool,
) -> Result<(), Failure> {
    if pace.dry_run {
        let found = opened.store.preview_job(outbox, &work, CountLimit::NONE).await?;
        return match json {
            true => output::print_json(&json!({ "done": found.count, "dry_run": true })),
            false => output::print(&format!("{} would be acted on (dry run)\n", counted(found))),
        };
    }
    let within_s = u32::try_from(pace.canary_within.as_secs()).unwrap_or(u32::MAX);
    let canary = pace.canary.map(|count| Canary { count, within_s });
    let By { operator, note } = by;
    let job = NewJob { work, operator, note, rate: pace.rate, canary, request_key: None };
    let made = opened.store.create_job(outbox, &job).await?;
    let job = follow(opened, made.id).await?;
    report(&job, json)
}

/// Works on a job in the foreground; Ctrl-C stops it where it is. If a daemon took the job first,
/// this only watches it, and Ctrl-C ends only the watching.
async fn follow(opened: &Opened, id: i64) -> Result<Job, Failure> {
    let outboxes = opened.outboxes(None)?;
    let host = &opened.built.relay.host;
    let runner = JobRunner::new(opened.store.clone(), outboxes, host);
    let bar = ProgressBar::new(1_000);
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut show = |job: &Job| {
        bar.set_position((job.progress() * 1_000.0) as u64);
        bar.set_message(format!("{} {}", number(job.done_count), job.state.as_str()));
    };
    let work = async {
        match runner.run(id, &mut show).await? {
            Some(job) => Ok(job),
            None => watch(opened, id, &mut show).await,
        }
    };
    let job = tokio::select! {
        job = work => job,
        _ = tokio::signal::ctrl_c() => {
            let stopped = runner.interrupt(id, "interrupted").await?;
            bar.abandon();
            match stopped {
                true => tracing::warn!("job {id} goes on with: postrider jobs resume {id}"),
                false => tracing::warn!(
                    "job {id} was not in the hands of this command, and relays go on with it; \
                     stop it with: postrider jobs stop {id}"
                ),
            }
            return Err(Failure::Interrupted);
        }
    };
    bar.finish_and_clear();
    job
}

/// Waits for the end of a job that another process works on.
async fn watch(
    opened: &Opened,
    id: i64,
    show: &mut (dyn FnMut(&Job) + Send),
) -> Result<Job, Failure> {
    loop {
        let job = found(opened, id).await?;
        show(&job);
        if !job.state.is_open() {
            return Ok(job);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn found(opened: &Opened, id: i64) -> Result<Job, Failure> {
    let job = opened.store.job(id).await?;
    job.ok_or_else(|| {
        let what = format!("there is no job {id}; `postrider jobs list` shows what there is");
        Failure::NotFound(what)
    })
}

/// Reports how a job ended.
fn report(job: &Job, json: bool) -> Result<(), Failure> {
    let id = job.id;
    match json {
        true => output::print_json(&json!({
            "done": job.done_count, "skipped": job.skipped_count, "dry_run": false, "job": job,
        }))?,
        false => {
            let verb = match job.work {
                JobWork::DlqResolve { .. } => "resolved",
                JobWork::DlqRetry { .. } | JobWork::Replay { .. } => "sent again",
            };
            output::print(&format!("{} {verb} (job {id})\n", number(job.done_count)))?;
        }
    }
    match job.state {
        JobState::Done => Ok(()),
        _ => Err(Failure::Partly(format!(
            "job {id} is {}: {}\nit goes on with: postrider jobs resume {id}",
            job.state.as_str(),
            job.reason.as_deref().unwrap_or("no reason given")
        ))),
    }
}

async fn list(opened: &Opened, filter: &JobFilter, page: &PageArgs) -> Result<(), Failure> {
    let jobs = opened.store.jobs(filter, page.before, page.limit).await?;
    if page.json {
        return output::print_json(&jobs);
    }
    let mut table = Table::new(&[
        "ID", "KIND", "OUTBOX", "STATE", "DONE", "SKIPPED", "PROGRESS", "OPERATOR", "CREATED",
        "REASON",
    ]);
    for job in &jobs {
        table.row(vec![
            job.id.to_string(),
            job.work.kind().to_owned(),
            job.outbox.clone(),
            job.state.as_str().to_owned(),
            number(job.done_count),
            number(job.skipped_count),
            format!("{:.0} %", job.progress() * 100.0),
            brief(&job.operator, 24),
            job.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            brief(job.reason.as_deref().unwrap_or("-"), 60),
        ]);
    }
    match table.is_empty() {
        true => output::print("no jobs\n"),
        false => table.print(),
    }
}

async fn show(opened: &Opened, id: i64, json: bool) -> Result<(), Failure> {
    let job = found(opened, id).await?;
    if json {
        return output::print_json(&job);
    }
    let none = || "-".to_owned();
    let canary = |canary: Canary| format!("{} within {} s", canary.count, canary.within_s);
    print_fields(&[
        ("id", id.to_string()),
        ("outbox", job.outbox.clone()),
        ("work", json!(job.work).to_string()),
        ("state", job.state.as_str().to_owned()),
        ("reason", job.reason.clone().unwrap_or_else(none)),
        ("done", number(job.done_count)),
        ("skipped", number(job.skipped_count)),
        ("progress", format!("{:.0} %", job.progress() * 100.0)),
        ("rate", job.rate.map_or_else(none, |rate| format!("{rate} per second"))),
        ("canary", job.canary.map_or_else(none, canary)),
        ("operator", job.operator.clone()),
        ("note", job.note.clone()),
        ("runner", job.runner.clone().unwrap_or_else(none)),
        ("created_at", job.created_at.to_rfc3339()),
        ("updated_at", job.updated_at.to_rfc3339()),
    ])
}
