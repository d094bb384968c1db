//! `postrider events`

use std::time::Duration;

use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, Table, brief},
};
use postrider_store::{Attempt, EventFilter, EventRecord, Page};

use crate::cli::{EventFilterArgs, EventsCommand};
use crate::commands::{Context, Opened};

pub(crate) async fn events(context: &Context, command: EventsCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        EventsCommand::List { status, error, filter, page } => {
            let outbox = opened.outbox(filter.outbox.as_deref())?;
            let filter = EventFilter { status, error, ..event_filter(filter) };
            let below = Page::first(page.limit).below(page.before).within(Duration::MAX);
            let events = opened.store.events(&outbox, &filter, below).await?.rows;
            match page.json {
                true => output::print_json(&events),
                false => print_list(&events, page.limit),
            }
        }
        EventsCommand::Find { outbox, event_id, json } => {
            let outbox = opened.outbox(outbox.as_deref())?;
            find(&opened, &outbox, &event_id, json).await
        }
        EventsCommand::Show { outbox, id, json } => {
            let outbox = opened.outbox(outbox.as_deref())?;
            show(&opened, &outbox, id, json).await
        }
    }
}

pub(crate) fn event_filter(args: EventFilterArgs) -> EventFilter {
    EventFilter {
        event_type: args.event_type,
        aggregate_type: args.aggregate_type,
        aggregate_id: args.aggregate_id,
        event_id: args.event_id,
        request_id: args.request_id,
        created_since: args.since,
        created_until: args.until,
        delivered_since: args.delivered_since,
        delivered_until: args.delivered_until,
        replayed: args.replayed,
        ..EventFilter::default()
    }
}

async fn find(opened: &Opened, outbox: &Outbox, id: &str, json: bool) -> Result<(), Failure> {
    let found = opened.store.event_by_identity(outbox, id, Duration::MAX).await?;
    let name = outbox.name();
    let unknown = found.events.is_empty() && found.dead_letters.is_empty();
    if json {
        output::print_json(&found)?;
    }
    if unknown {
        let what = format!("outbox `{name}` has nothing of identity {id}");
        return Err(Failure::NotFound(what));
    }
    if json {
        return Ok(());
    }
    let mut table = Table::new(&["WHERE", "TYPE", "SINCE", "LOOK AT IT WITH"]);
    for event in &found.events {
        table.row(vec![
            event.status.as_str().to_owned(),
            brief(&event.event_type, 40),
            event.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            format!("postrider events show {} --outbox {name}", event.id),
        ]);
    }
    for dead in &found.dead_letters {
        let resolved = if dead.resolved { "dead letter, resolved" } else { "dead letter" };
        table.row(vec![
            resolved.to_owned(),
            brief(&dead.event_type, 40),
            dead.failed_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            format!("postrider dlq show {} --outbox {name}", dead.id),
        ]);
    }
    table.print()
}

fn print_list(events: &[EventRecord], limit: u32) -> Result<(), Failure> {
    let mut table =
        Table::new(&["ID", "STATUS", "TYPE", "AGGREGATE", "RETRIES", "CREATED", "LAST ERROR"]);
    for event in events {
        table.row(vec![
            event.id.to_string(),
            event.status.as_str().to_owned(),
            brief(&event.event_type, 40),
            brief(&format!("{}/{}", event.aggregate_type, event.aggregate_id), 40),
            event.retry_count.to_string(),
            event.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            brief(event.last_error.as_deref().unwrap_or("-"), 60),
        ]);
    }
    if table.is_empty() {
        return output::print(
            "no events; delivered ones are in the archive (--status COMPLETED)\n",
        );
    }
    table.print()?;
    match events.last().filter(|_| events.len() == limit as usize) {
        Some(last) => output::print(&format!("more: --before {}\n", last.id)),
        None => Ok(()),
    }
}

async fn show(opened: &Opened, outbox: &Outbox, id: i64, json: bool) -> Result<(), Failure> {
    let Some(event) = opened.store.event(outbox, id).await? else {
        return Err(Failure::NotFound(format!(
            "outbox `{name}` has no live or archived event {id}; it may be deleted after delivery, \
             or in the dead letters (`postrider dlq list --outbox {name}`)",
            name = outbox.name()
        )));
    };
    let attempts = opened.store.attempts(outbox, &event.event_id).await?;
    if json {
        return output::print_json(&serde_json::json!({ "event": event, "attempts": attempts }));
    }
    let none = || "-".to_owned();
    let time = |at: Option<chrono::DateTime<chrono::Utc>>| at.map_or_else(none, |t| t.to_rfc3339());
    let hash = match &event.content_hash {
        None => "none".to_owned(),
        Some(hash) => {
            let computed = postrider::content_hash(
                event.request_id.as_deref(),
                &event.event_type,
                event.payload.as_deref().unwrap_or_default(),
            );
            let verdict = if computed.eq_ignore_ascii_case(hash) { "verified" } else { "MISMATCH" };
            format!("{hash} ({verdict})")
        }
    };
    print_fields(&[
        ("id", event.id.to_string()),
        ("event_id", event.event_id.clone()),
        ("status", event.status.as_str().to_owned()),
        ("type", event.event_type.clone()),
        ("aggregate", format!("{}/{}", event.aggregate_type, event.aggregate_id)),
        ("request_id", event.request_id.clone().unwrap_or_else(none)),
        ("created_at", event.created_at.to_rfc3339()),
        ("next_retry_at", time(event.next_retry_at)),
        ("expires_at", time(event.expires_at)),
        ("delivered_at", time(event.delivered_at)),
        ("retry_count", event.retry_count.to_string()),
        ("locked_by", event.locked_by.clone().unwrap_or_else(none)),
        ("last_error", event.last_error.clone().unwrap_or_else(none)),
        ("content_hash", hash),
        ("headers", event.headers.clone().unwrap_or_else(none)),
        ("payload", event.payload.clone().unwrap_or_else(none)),
        ("response", event.response.clone().unwrap_or_else(none)),
    ])?;
    print_attempts(&attempts)
}

pub(crate) fn print_fields(fields: &[(&str, String)]) -> Result<(), Failure> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    // Further lines of a value are indented to the column of values, so that they do not look like
    // other fields.
    let next_line = format!("\n{:width$}  ", "");
    for (name, value) in fields {
        let value = value.replace('\n', &next_line);
        output::print(&format!("{name:<width$}  {value}\n"))?;
    }
    Ok(())
}

pub(crate) fn print_attempts(attempts: &[Attempt]) -> Result<(), Failure> {
    if attempts.is_empty() {
        return Ok(());
    }
    output::print("\nfailed attempts\n")?;
    let mut table = Table::new(&["#", "FAILED AT", "TOOK", "ERROR"]);
    for attempt in attempts {
        table.row(vec![
            attempt.attempt.to_string(),
            attempt.failed_at.to_rfc3339(),
            format!("{} ms", attempt.took_ms),
            brief(&attempt.error, 100),
        ]);
    }
    table.print()
}
