//! `postrider outbox pause`, `sink pause`, and their counterparts `resume`.

use postrider_command::{Failure, output};
use postrider_store::PauseKind;

use crate::cli::{By, SinkCommand};
use crate::commands::{Context, Opened};

pub(crate) async fn sink(context: &Context, command: &SinkCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    let (SinkCommand::Pause { sink, .. } | SinkCommand::Resume { sink, .. }) = command;
    let known: Vec<&str> = opened.built.outboxes.iter().map(|config| config.sink.name()).collect();
    if !known.contains(&sink.as_str()) {
        return Err(Failure::Usage(format!(
            "no outbox leads to a sink `{sink}`; there is: {}",
            known.join(", ")
        )));
    }
    match command {
        SinkCommand::Pause { by, .. } => pause(&opened, PauseKind::Sink, sink, by).await,
        SinkCommand::Resume { by, .. } => resume(&opened, PauseKind::Sink, sink, by).await,
    }
}

pub(crate) async fn pause(
    opened: &Opened,
    kind: PauseKind,
    name: &str,
    by: &By,
) -> Result<(), Failure> {
    let changed = opened.store.pause(kind, name, &by.operator, &by.note).await?;
    let kind = kind.as_str();
    output::print(&match changed {
        true => format!(
            "{kind} {name} is paused: relays finish what is in flight and start nothing more, \
             until `postrider {kind} resume {name}`\n"
        ),
        false => format!("{kind} {name} was paused already\n"),
    })
}

pub(crate) async fn resume(
    opened: &Opened,
    kind: PauseKind,
    name: &str,
    by: &By,
) -> Result<(), Failure> {
    let changed = opened.store.resume(kind, name, &by.operator, &by.note).await?;
    let kind = kind.as_str();
    output::print(&match changed {
        true => format!("{kind} {name} goes on with the next heartbeat of each relay\n"),
        false => format!("{kind} {name} was not paused\n"),
    })
}
