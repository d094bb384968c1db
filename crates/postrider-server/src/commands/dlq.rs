//! `postrider dlq`

use std::time::Duration;

use chrono::Utc;
use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, Table, brief, counted, number},
};
use postrider_store::{CountLimit, Database, DeadLetter, DlqFilter, JobWork, Page, StoreError};
use serde::Serialize;

use crate::cli::{ActArgs, By, DlqCommand, FilterArgs, PageArgs};
use crate::commands::edit::edit;
use crate::commands::events::{print_attempts, print_fields};
use crate::commands::export::{export, import};
use crate::commands::{Context, Opened, jobs};

pub(crate) async fn dlq(context: &Context, command: DlqCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        DlqCommand::List { filter, page } => list(&opened, filter, &page).await,
        DlqCommand::Show { outbox, id, json } => show(&opened, outbox.as_deref(), id, json).await,
        DlqCommand::Retry(args) => act(&opened, Action::Retry, args).await,
        DlqCommand::Resolve(args) => act(&opened, Action::Resolve, args).await,
        DlqCommand::Reopen { ids, outbox, by } => {
            reopen(&opened, outbox.as_deref(), &ids, &by).await
        }
        DlqCommand::Groups { filter, limit, json } => groups(&opened, filter, limit, json).await,
        DlqCommand::Edit(args) => edit(&opened, args).await,
        DlqCommand::Export(args) => export(&opened, args).await,
        DlqCommand::Import { files, dry_run, operator, json } => {
            import(&opened, &files, dry_run, &operator, json).await
        }
    }
}

pub(crate) fn filter(args: FilterArgs) -> DlqFilter {
    DlqFilter {
        event_id: args.event_id,
        fingerprint: args.fingerprint,
        event_type: args.event_type,
        aggregate_type: args.aggregate_type,
        aggregate_id: args.aggregate_id,
        error: args.error,
        reason: args.reason,
        resolved: args.resolved,
        since: args.since,
        until: args.until,
    }
}

async fn list(opened: &Opened, args: FilterArgs, page: &PageArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.outbox.as_deref())?;
    let filter = filter(args);
    let below = Page::first(page.limit).below(page.before).within(Duration::MAX);
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
    let limit = CountLimit { budget: Duration::MAX, ..CountLimit::default() };
    let total = opened.store.dead_letter_count(&outbox, &filter, limit).await?;
    output::print(&format!("{} of {} shown\n", entries.len(), counted(total)))
}

/// Lists the groups of unresolved dead letters, unless the filter says otherwise.
async fn groups(opened: &Opened, args: FilterArgs, limit: u32, json: bool) -> Result<(), Failure> {
    let outbox = opened.outbox(args.outbox.as_deref())?;
    let mut filter = filter(args);
    filter.resolved = filter.resolved.or(Some(false));
    let page = Page::first(limit).within(Duration::MAX);
    let found = opened.store.dead_letter_groups(&outbox, &filter, page).await?;
    if json {
        return output::print_json(&found);
    }
    let mut table =
        Table::new(&["FINGERPRINT", "REASON", "COUNT", "FIRST", "LAST", "TYPES", "NEWEST ERROR"]);
    for group in &found.groups {
        let types: Vec<&str> = group.event_types.iter().map(|(name, _)| name.as_str()).collect();
        table.row(vec![
            group.fingerprint.clone(),
            group.reason.as_str().to_owned(),
            counted(group.count),
            group.first_failed_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            group.last_failed_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            brief(&types.join(", "), 40),
            brief(&group.sample, 60),
        ]);
    }
    match table.is_empty() {
        true => output::print("no dead letters\n"),
        false => table.print(),
    }
}

async fn show(opened: &Opened, outbox: Option<&str>, id: i64, json: bool) -> Result<(), Failure> {
    let outbox = opened.outbox(outbox)?;
    let Some(entry) = opened.store.dead_letter(&outbox, id).await? else {
        let what = format!("outbox `{}` has no dead letter {id}", outbox.name());
        return Err(Failure::NotFound(what));
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
        ("fingerprint", entry.fingerprint.clone()),
        ("detail", text(&entry.error_detail)),
        ("retry_count", entry.retry_count.to_string()),
        ("max_retries", entry.max_retries.map_or_else(|| "-".to_owned(), |n| n.to_string())),
        ("redrive_count", entry.redrive_count.to_string()),
        ("appended_at", entry.event_created_at.to_rfc3339()),
        ("expires_at", entry.expires_at.map_or_else(|| "-".to_owned(), |t| t.to_rfc3339())),
        ("failed_at", entry.failed_at.to_rfc3339()),
        ("resolved", if entry.resolved { "yes" } else { "no" }.to_owned()),
        ("resolved_by", text(&entry.resolved_by)),
        ("resolved_at", entry.resolved_at.map_or_else(|| "-".to_owned(), |t| t.to_rfc3339())),
        ("note", text(&entry.resolution_note)),
        ("retried_as", retried),
        ("content_hash", text(&entry.content_hash)),
        ("headers", text(&entry.headers)),
        ("payload", text(&entry.payload)),
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
    /// Row ids of the new events.
    retried_as: Vec<i64>,
    refused: Vec<String>,
}

async fn act(opened: &Opened, action: Action, args: ActArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.filter.outbox.as_deref())?;
    if args.all {
        let filter = filter(args.filter);
        let work = match action {
            Action::Retry => JobWork::DlqRetry { filter },
            Action::Resolve => JobWork::DlqResolve { filter },
        };
        return jobs::run(opened, &outbox, work, &args.pace, args.by, args.json).await;
    }
    if args.ids.is_empty() {
        return Err(Failure::Usage(
            "name the ids of dead letters, or give --all (with a filter, and --dry-run to look \
             first)"
                .to_owned(),
        ));
    }
    let dry_run = args.pace.dry_run;
    let mut acted = Acted { dry_run, ..Acted::default() };
    for id in &args.ids {
        act_on(opened, &outbox, action, *id, &args, &mut acted).await?;
    }
    match args.json {
        true => output::print_json(&acted)?,
        false => {
            let verb = match (action, dry_run) {
                (Action::Retry, false) => "sent again",
                (Action::Resolve, false) => "resolved",
                (_, true) => "would be acted on (dry run)",
            };
            output::print(&format!("{} {verb}\n", number(i128::from(acted.done))))?;
            if let [id, ..] = acted.retried_as.as_slice() {
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

/// Reopens dead letters. Those that cannot be reopened are reported, and the others are still
/// processed.
async fn reopen(
    opened: &Opened,
    outbox: Option<&str>,
    ids: &[i64],
    by: &By,
) -> Result<(), Failure> {
    let outbox = opened.outbox(outbox)?;
    let (mut done, mut refused) = (0, Vec::new());
    for id in ids {
        match opened.store.reopen(&outbox, *id, &by.operator, &by.note).await {
            Ok(()) => done += 1,
            Err(StoreError::Refused(why)) => refused.push(why),
            Err(error) => return Err(error.into()),
        }
    }
    output::print(&format!("{} open again\n", number(done)))?;
    match refused.is_empty() {
        true => Ok(()),
        false => Err(Failure::Partly(refused.join("\n"))),
    }
}

/// Acts on one entry. If another operator was faster, this is reported, and the other entries are
/// still processed.
async fn act_on(
    opened: &Opened,
    outbox: &Outbox,
    action: Action,
    id: i64,
    args: &ActArgs,
    acted: &mut Acted,
) -> Result<(), Failure> {
    let (store, operator, note) = (&opened.store, &args.by.operator, &args.by.note);
    let result = match (action, args.pace.dry_run) {
        (_, true) => match store.dead_letter(outbox, id).await? {
            Some(entry) if !entry.resolved => Ok(()),
            Some(_) => Err(StoreError::Refused(format!("dead letter {id} is resolved already"))),
            None => Err(StoreError::Refused(format!("there is no dead letter {id}"))),
        },
        (Action::Retry, false) => {
            let retention = opened.built.relay.inbox_retention;
            if let Some(warning) = forgotten(store.as_ref(), outbox, id, retention).await? {
                tracing::warn!("{warning}");
            }
            let retried = store.retry(outbox, id, operator, note).await;
            retried.map(|fresh| acted.retried_as.push(fresh))
        }
        (Action::Resolve, false) => store.resolve(outbox, id, operator, note).await,
    };
    match result {
        Ok(()) => acted.done += 1,
        Err(StoreError::Refused(why)) => acted.refused.push(why),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Returns a warning for an operator who retries an event that inboxes have already forgotten.
pub(crate) async fn forgotten(
    store: &dyn Database,
    outbox: &Outbox,
    id: i64,
    retention: Duration,
) -> Result<Option<String>, StoreError> {
    let letter = store.dead_letter(outbox, id).await?;
    let age = letter.and_then(|letter| (Utc::now() - letter.event_created_at).to_std().ok());
    Ok(age.filter(|age| *age > retention).map(|age| {
        let days = |time: Duration| time.as_secs() / (24 * 3600);
        format!(
            "the event of dead letter {id} is {} days old, and inboxes remember events for {}: a \
             consumer that handled it before handles it again",
            days(age),
            days(retention)
        )
    }))
}
