//! `postrider buffer`

use std::path::PathBuf;
use std::sync::Arc;

use postrider::buffer::{BufferLook, ListedBatch};
use postrider_command::{
    Failure,
    output::{self, Table, number},
};
use postrider_relay::{BufferConfig, delivery::backup, recover_buffers};
use postrider_store::{Application, BatchState, StoreError};
use serde::Serialize;

use super::buffer_ledger::BufferReconciliation;
use crate::cli::BufferCommand;
use crate::commands::{Context, Opened};

pub(crate) async fn buffer(context: &Context, command: BufferCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        BufferCommand::Status { buffer, json } => status(&opened, buffer.as_deref(), json).await,
        BufferCommand::Recover { buffer, json } => recover(&opened, buffer.as_deref(), json).await,
        BufferCommand::Import { files, operator, json } => {
            import(&opened, &files, &operator, json).await
        }
    }
}

/// Returns all buffers, or the one with this name.
fn chosen(opened: &Opened, name: Option<&str>) -> Result<Vec<BufferConfig>, Failure> {
    let all = &opened.built.buffers;
    let found: Vec<BufferConfig> =
        all.iter().filter(|b| name.is_none_or(|name| b.buffer.name() == name)).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = all.iter().map(|buffer| buffer.buffer.name()).collect();
    Err(Failure::Usage(match (name, names.is_empty()) {
        (_, true) => "the configuration has no [[buffer]]".to_owned(),
        (name, false) => {
            let name = name.unwrap_or_default();
            format!("no buffer `{name}` is configured; there is: {}", names.join(", "))
        }
    }))
}

#[derive(Debug, Serialize)]
struct Status {
    buffer: String,
    #[serde(flatten)]
    look: BufferLook,
    /// Number of batches whose owner is a registered relay that is not fenced.
    live: usize,
}

async fn status(opened: &Opened, name: Option<&str>, json: bool) -> Result<(), Failure> {
    let mut found = Vec::new();
    for config in chosen(opened, name)? {
        let look = config.buffer.look().await?;
        // Read after the batches: an owner registers before it moves anything.
        let relays = opened.store.relays().await?;
        let lives = |b: &&ListedBatch| relays.iter().any(|r| !r.fenced && r.relay_id == b.owner);
        let live = look.batches.iter().filter(lives).count();
        found.push(Status { buffer: config.buffer.name().to_owned(), look, live });
    }
    if json {
        return output::print_json(&found);
    }
    let mut table = Table::new(&[
        "BUFFER",
        "FIELDS",
        "MOVED",
        "APPLIED",
        "IGNORED",
        "GIVEN BACK",
        "DEAD",
        "WAITING",
        "BATCHES",
    ]);
    for Status { buffer, look, live } in &found {
        let ledger = look.ledger;
        let counts = [
            look.fields,
            ledger.moved,
            ledger.applied,
            ledger.ignored,
            ledger.given_back,
            ledger.dead,
            look.waiting(),
        ];
        let mut cells = vec![buffer.clone()];
        cells.extend(counts.map(|count| number(i128::from(count))));
        let orphans = look.batches.len() - live;
        cells.push(format!("{live} in work, {orphans} of dead workers"));
        table.row(cells);
    }
    table.print()
}

async fn recover(opened: &Opened, name: Option<&str>, json: bool) -> Result<(), Failure> {
    let buffers = chosen(opened, name)?;
    let store = Arc::clone(&opened.store);
    let recovered = recover_buffers(store, &opened.built.relay, buffers).await?;
    if json {
        return output::print_json(&recovered);
    }
    for buffer in recovered {
        let ended = buffer.found - buffer.left.min(buffer.found);
        output::print(&format!(
            "{}: {} batches found, {ended} ended, {} left to workers that live\n",
            buffer.buffer, buffer.found, buffer.left
        ))?;
    }
    Ok(())
}

#[derive(Debug, Default, Serialize)]
struct ImportReport {
    imported: usize,
    /// Entries that were already saved.
    known: usize,
    /// Entries that were not saved, with the reason.
    refused: Vec<String>,
}

async fn import(
    opened: &Opened,
    files: &[PathBuf],
    operator: &str,
    json: bool,
) -> Result<(), Failure> {
    let mut report = ImportReport::default();
    for path in files {
        let shown = path.display();
        let contents = backup::read(path)
            .map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
        for (line, why) in &contents.damaged {
            report.refused.push(format!("{shown}, line {line}: {why}"));
        }
        for dead in &contents.batches {
            let refused = |why: String| format!("{shown}, batch {}: {why}", dead.batch);
            match import_one(opened, dead, operator).await {
                Ok(Application::Applied) => report.imported += 1,
                Ok(Application::Known(BatchState::Applied | BatchState::Imported)) => {
                    report.known += 1;
                }
                Ok(Application::Known(state)) => {
                    report.refused.push(refused(format!("it is {}", state.as_str())));
                }
                Ok(Application::Refused(why)) | Err(StoreError::Refused(why)) => {
                    report.refused.push(refused(why));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    match json {
        true => output::print_json(&report)?,
        false => output::print(&format!(
            "{} batches imported, {} known already, {} refused\n",
            report.imported,
            report.known,
            report.refused.len()
        ))?,
    }
    match report.refused.is_empty() {
        true => Ok(()),
        false => Err(Failure::Partly(report.refused.join("\n"))),
    }
}

async fn import_one(
    opened: &Opened,
    dead: &backup::DeadBatch,
    operator: &str,
) -> Result<Application, StoreError> {
    let named = |config: &&BufferConfig| config.buffer.name() == dead.buffer;
    let config =
        opened.built.buffers.iter().find(named).ok_or_else(|| {
            StoreError::Refused(format!("no buffer `{}` is configured", dead.buffer))
        })?;
    let batch = dead.batch().map_err(StoreError::Refused)?;
    opened.store.import_batch(&batch, &config.target, operator).await
}

/// Reconciles the ledgers of all buffers, for `reconcile`.
pub(crate) async fn ledgers(opened: &Opened) -> Result<Vec<BufferReconciliation>, Failure> {
    let mut found = Vec::new();
    for config in &opened.built.buffers {
        found.push(BufferReconciliation::look(opened.store.as_ref(), &config.buffer).await?);
    }
    Ok(found)
}
