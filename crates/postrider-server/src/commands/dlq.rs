//! `postrider dlq`

use std::path::PathBuf;

use postrider::store::{CountLimit, DeadLetter, DlqFilter, Imported, Page};
use postrider::{Outbox, StoreError};
use postrider_relay::backup;
use serde::Serialize;

use crate::cli::{ActArgs, DlqCommand, FilterArgs, PageArgs};
use crate::commands::events::{print_attempts, print_fields};
use crate::commands::{Context, Failure, Opened};
use crate::output::{self, Table, brief, number};

/// Entries per page while acting on a filter.
const ACT_PAGE: u32 = 500;

pub(crate) async fn dlq(context: &Context, command: DlqCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        DlqCommand::List { filter, page } => list(&opened, filter, &page).await,
        DlqCommand::Show { outbox, id, json } => show(&opened, outbox.as_deref(), id, json).await,
        DlqCommand::Retry(args) => act(&opened, Action::Retry, args).await,
        DlqCommand::Resolve(args) => act(&opened, Action::Resolve, args).await,
        DlqCommand::Import { files, dry_run, operator, json } => {
            import(&opened, &files, dry_run, &operator, json).await
        }
    }
}

fn filter(args: FilterArgs) -> DlqFilter {
    DlqFilter {
        event_type: args.event_type,
        aggregate_type: args.aggregate_type,
        aggregate_id: args.aggregate_id,
        error: args.error,
        reason: args.reason,
        resolved: args.resolved,
        since: args.since,
        until: args.until,
        ..DlqFilter::default()
    }
}

async fn list(opened: &Opened, args: FilterArgs, page: &PageArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.outbox.as_deref())?;
    let filter = filter(args);
    let below = Page::first(page.limit).below(page.before);
    let entries = opened.store.dead_letters(&outbox, &filter, below).await?.rows;
    if page.json {
        return output::print_json(&entries);
    }
    let mut table = Table::new(&[
        "ID",
        "TYPE",
        "AGGREGATE",
        "REASON",
        "RETRIES",
        "FAILED",
        "RESOLVED",
        "ERROR",
    ]);
    for entry in &entries {
        table.row(vec![
            entry.id.to_string(),
            brief(&entry.event_type, 32),
            brief(&format!("{}/{}", entry.aggregate_type, entry.aggregate_id), 32),
            entry.reason.as_str().to_owned(),
            entry.retry_count.to_string(),
            entry.failed_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            entry.resolved_by.clone().map_or_else(|| "no".to_owned(), |by| format!("by {by}")),
            brief(&entry.error_message, 60),
        ]);
    }
    if table.is_empty() {
        return output::print("no dead letters\n");
    }
    table.print()?;
    let total =
        opened.store.dead_letter_count(&outbox, &filter, CountLimit::default()).await?.count;
    output::print(&format!("{} of {} shown\n", entries.len(), number(total)))
}

async fn show(opened: &Opened, outbox: Option<&str>, id: i64, json: bool) -> Result<(), Failure> {
    let outbox = opened.outbox(outbox)?;
    let Some(entry) = opened.store.dead_letter(&outbox, id).await? else {
        return Err(Failure::Usage(format!("outbox `{}` has no dead letter {id}", outbox.name())));
    };
    let attempts = opened.store.attempts(&outbox, &entry.event_id).await?;
    if json {
        return output::print_json(
            &serde_json::json!({ "dead_letter": entry, "attempts": attempts }),
        );
    }
    print_fields(&fields(&entry))?;
    print_attempts(&attempts)
}

fn fields(entry: &DeadLetter) -> Vec<(&'static str, String)> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let retried = entry.retried_as.map_or_else(|| "-".to_owned(), |id| format!("event {id}"));
    vec![
        ("id", entry.id.to_string()),
        ("original_id", entry.original_id.to_string()),
        ("event_id", entry.event_id.clone()),
        ("type", entry.event_type.clone()),
        ("aggregate", format!("{}/{}", entry.aggregate_type, entry.aggregate_id)),
        ("request_id", text(&entry.request_id)),
        ("reason", entry.reason.as_str().to_owned()),
        ("error", entry.error_message.clone()),
        ("detail", text(&entry.error_detail)),
        ("retry_count", entry.retry_count.to_string()),
        ("redrive_count", entry.redrive_count.to_string()),
        ("appended_at", entry.event_created_at.to_rfc3339()),
        ("failed_at", entry.failed_at.to_rfc3339()),
        ("resolved", if entry.resolved { "yes" } else { "no" }.to_owned()),
        ("resolved_by", text(&entry.resolved_by)),
        ("resolved_at", entry.resolved_at.map_or_else(|| "-".to_owned(), |t| t.to_rfc3339())),
        ("note", text(&entry.resolution_note)),
        ("retried_as", retried),
        ("content_hash", text(&entry.content_hash)),
        ("headers", text(&entry.headers)),
        ("payload", entry.payload.clone()),
    ]
}

#[derive(Clone, Copy)]
enum Action {
    Retry,
    Resolve,
}

#[derive(Debug, Default, Serialize)]
struct Acted {
    done: u64,
    dry_run: bool,
    /// Row ids of fresh events, for `retry` of single entries.
    retried_as: Vec<i64>,
    refused: Vec<String>,
}

async fn act(opened: &Opened, action: Action, args: ActArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.filter.outbox.as_deref())?;
    let mut acted = Acted { dry_run: args.dry_run, ..Acted::default() };
    if !args.ids.is_empty() {
        for id in &args.ids {
            act_on(opened, &outbox, action, *id, &args, &mut acted).await?;
        }
    } else if args.all {
        act_on_filter(opened, &outbox, action, &args, &mut acted).await?;
    } else {
        return Err(Failure::Usage(
            "name the ids of dead letters, or give --all (with a filter, and --dry-run to look \
             first)"
                .to_owned(),
        ));
    }
    match args.json {
        true => output::print_json(&acted)?,
        false => {
            let verb = match (action, args.dry_run) {
                (Action::Retry, false) => "sent again",
                (Action::Resolve, false) => "resolved",
                (_, true) => "would be acted on (dry run)",
            };
            output::print(&format!("{} {verb}\n", number(i128::from(acted.done))))?;
            if let ([_, ..], [id, ..]) = (args.ids.as_slice(), acted.retried_as.as_slice()) {
                let name = outbox.name();
                output::print(&format!(
                    "as event {id}: postrider events show {id} --outbox {name}\n"
                ))?;
            }
        }
    }
    match acted.refused.is_empty() {
        true => Ok(()),
        false => Err(Failure::Partly(acted.refused.join("\n"))),
    }
}

/// Newest first, page by page below the last id: what is appended meanwhile is not acted on.
async fn act_on_filter(
    opened: &Opened,
    outbox: &Outbox,
    action: Action,
    args: &ActArgs,
    acted: &mut Acted,
) -> Result<(), Failure> {
    let f = &args.filter;
    let filter = DlqFilter {
        event_type: f.event_type.clone(),
        aggregate_type: f.aggregate_type.clone(),
        aggregate_id: f.aggregate_id.clone(),
        error: f.error.clone(),
        reason: f.reason,
        resolved: Some(false),
        since: f.since,
        until: f.until,
        ..DlqFilter::default()
    };
    let mut before_id = None;
    loop {
        let page = Page::first(ACT_PAGE).below(before_id);
        let entries = opened.store.dead_letters(outbox, &filter, page).await?.rows;
        let Some(last) = entries.last() else { return Ok(()) };
        before_id = Some(last.id);
        for entry in &entries {
            act_on(opened, outbox, action, entry.id, args, acted).await?;
        }
    }
}

/// One entry. Somebody else may have been faster: that is told, and the rest goes on.
async fn act_on(
    opened: &Opened,
    outbox: &Outbox,
    action: Action,
    id: i64,
    args: &ActArgs,
    acted: &mut Acted,
) -> Result<(), Failure> {
    let (store, operator, note) = (&opened.store, &args.operator, &args.note);
    let result = match (action, args.dry_run) {
        (_, true) => match store.dead_letter(outbox, id).await? {
            Some(entry) if !entry.resolved => Ok(()),
            Some(_) => Err(StoreError::Refused(format!("dead letter {id} is resolved already"))),
            None => Err(StoreError::Refused(format!("there is no dead letter {id}"))),
        },
        (Action::Retry, false) => store.retry(outbox, id, operator, note).await.map(|fresh| {
            // For a bulk run the list would grow without limit.
            if !args.all {
                acted.retried_as.push(fresh);
            }
        }),
        (Action::Resolve, false) => store.resolve(outbox, id, operator, note).await,
    };
    match result {
        Ok(()) => acted.done += 1,
        Err(StoreError::Refused(why)) => acted.refused.push(why),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[derive(Debug, Default, Serialize)]
struct ImportReport {
    restored: u64,
    live: u64,
    known: u64,
    closed: usize,
    damaged: Vec<String>,
    dry_run: bool,
}

async fn import(
    opened: &Opened,
    files: &[PathBuf],
    dry_run: bool,
    operator: &str,
    json: bool,
) -> Result<(), Failure> {
    let mut report = ImportReport { dry_run, ..ImportReport::default() };
    for path in files {
        let contents = backup::read(path).map_err(|error| {
            Failure::Usage(format!("backup file `{}` cannot be read: {error}", path.display()))
        })?;
        report.closed += contents.closed;
        for (line, reason) in contents.damaged {
            report.damaged.push(format!("{} line {line}: {reason}", path.display()));
        }
        for (name, entry) in contents.open {
            let outbox = opened.outbox(Some(&name))?;
            if dry_run {
                report.restored += 1;
                continue;
            }
            match opened.store.import(&outbox, &entry, operator).await? {
                Imported::Restored => report.restored += 1,
                Imported::Live => report.live += 1,
                Imported::Known => report.known += 1,
            }
        }
    }
    match json {
        true => output::print_json(&report)?,
        false => output::print(&format!(
            "{} {}, {} still in the outbox, {} known already, {} closed, {} damaged\n",
            report.restored,
            if dry_run { "open in the file (dry run)" } else { "restored to the dead letters" },
            report.live,
            report.known,
            report.closed,
            report.damaged.len()
        ))?,
    }
    match report.damaged.is_empty() {
        true => Ok(()),
        false => Err(Failure::Partly(report.damaged.join("\n"))),
    }
}
