//! `postrider inbox`

use std::sync::Arc;

use postrider_command::{
    Failure, connect,
    output::{self, Table, brief},
};
use postrider_store::{Database, InboxLetter};
use serde_json::json;

use crate::cli::InboxCommand;
use crate::commands::{Context, require_schema};

/// Opens only the store: a consumer's database need not have an outbox.
pub(crate) async fn open(context: &Context) -> Result<Arc<dyn Database>, Failure> {
    let config = context.load()?;
    let store = connect(config.store.url.expose(), config.store.connections_max, false).await?;
    require_schema(store.as_ref(), &[]).await?;
    Ok(store)
}

pub(crate) async fn inbox(context: &Context, command: &InboxCommand) -> Result<(), Failure> {
    let store = open(context).await?;
    match command {
        InboxCommand::List { consumer, limit, before, json } => {
            let letters = store.inbox_letters(consumer.as_deref(), *before, *limit).await?;
            list(&letters, *json)
        }
        InboxCommand::Retry { id, by } => {
            store.retry_inbox_letter(*id, &by.operator, &by.note).await?;
            output::print(&format!("message {id} is handled again when its consumer next looks\n"))
        }
        InboxCommand::Resolve { id, by } => {
            store.resolve_inbox_letter(*id, &by.operator, &by.note).await?;
            output::print(&format!("message {id} is resolved\n"))
        }
        InboxCommand::CleanUp { consumer, retention } => {
            let relay = context.load()?.build()?.relay;
            let retention = retention.unwrap_or(relay.inbox_retention);
            store.fold_inbox_ledger(relay.chunk).await?;
            let cleaned = store.clean_inbox(consumer.as_deref(), retention, relay.chunk).await?;
            output::print(&format!(
                "{} events forgotten, {} resolved messages removed\n",
                cleaned.forgotten, cleaned.letters
            ))
        }
    }
}

fn list(letters: &[InboxLetter], json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(&letters.iter().map(as_json).collect::<Vec<_>>());
    }
    let mut table = Table::new(&["ID", "CONSUMER", "EVENT", "SOURCE", "FAILED", "RETRY", "ERROR"]);
    for letter in letters {
        table.row(vec![
            letter.id.to_string(),
            brief(&letter.consumer, 32),
            letter.event_id.clone(),
            brief(&letter.source, 40),
            letter.failed_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            if letter.retry_asked_at.is_some() { "asked for" } else { "-" }.to_owned(),
            brief(&letter.error_message, 60),
        ]);
    }
    match table.is_empty() {
        true => output::print("no messages that could not be handled\n"),
        false => table.print(),
    }
}

/// Key and payload are bytes; invalid UTF-8 is shown with replacement characters.
fn as_json(letter: &InboxLetter) -> serde_json::Value {
    json!({
        "id": letter.id,
        "consumer": letter.consumer,
        "event_id": letter.event_id,
        "source": letter.source,
        "key": letter.key.as_deref().map(String::from_utf8_lossy),
        "headers": letter.headers,
        "payload": String::from_utf8_lossy(&letter.payload),
        "error_message": letter.error_message,
        "failed_at": letter.failed_at,
        "retry_asked_at": letter.retry_asked_at,
    })
}
