//! `postrider dlq export` and `dlq import`: writing and reading backup files.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Utc;
use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, number},
};
use postrider_relay::delivery::backup::{self, BackupFiles, Record};
use postrider_store::{DlqFilter, ImportEntry, Imported, Page, Status, StoreError};
use serde::Serialize;

use crate::cli::ExportArgs;
use crate::commands::Opened;
use crate::commands::dlq::filter;

/// Number of dead letters per read; their payloads are read one by one.
const PAGE: u32 = 500;

pub(crate) async fn export(opened: &Opened, args: ExportArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.filter.outbox.as_deref())?;
    let filter = filter(args.filter);
    if args.to.as_os_str() == "-" {
        write(opened, &outbox, &filter, &mut std::io::stdout()).await?;
        return Ok(());
    }
    let failed = |error| Failure::Usage(format!("--to {}: {error}", args.to.display()));
    // Only this user may read the payloads, and an older export must not be overwritten.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.to);
    let mut out = BufWriter::new(file.map_err(failed)?);
    let written = write(opened, &outbox, &filter, &mut out).await?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let (count, place) = (number(written), args.to.display());
    output::print(&format!("{count} written to {place}; `postrider dlq import` reads it\n"))
}

async fn write(
    opened: &Opened,
    outbox: &Outbox,
    filter: &DlqFilter,
    out: &mut (dyn Write + Send),
) -> Result<i64, Failure> {
    let mut page = Page::first(PAGE).within(Duration::MAX);
    let mut written = 0;
    loop {
        let listed = opened.store.dead_letters(outbox, filter, page).await?;
        for found in listed.rows {
            let letter = opened.store.dead_letter(outbox, found.id).await?;
            // The dead letter was cleaned up in the meantime; it is left out.
            let Some(entry) = letter.and_then(ImportEntry::of) else { continue };
            let (outbox, written_at) = (outbox.name().to_owned(), Utc::now());
            let record = Record::Dead { outbox, written_at, event: Box::new(entry) };
            backup::write(out, &record).map_err(Failure::Output)?;
            written += 1;
        }
        let Some(next) = listed.next else { break };
        page = page.below(Some(next));
    }
    out.flush().map_err(Failure::Output)?;
    Ok(written)
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

pub(crate) async fn import(
    opened: &Opened,
    files: &[PathBuf],
    dry_run: bool,
    operator: &str,
    json: bool,
) -> Result<(), Failure> {
    let mut report = ImportReport { dry_run, ..ImportReport::default() };
    // All files are read together: an entry that one file closes is closed in all of them.
    let mut together = BackupFiles::default();
    for path in &with_folders(files)? {
        let damaged = add(&mut together, path).map_err(|error| unreadable(path, &error))?;
        let damaged = damaged.into_iter();
        let named = damaged.map(|(line, why)| format!("{} line {line}: {why}", path.display()));
        report.damaged.extend(named);
    }
    let contents = together.contents();
    report.closed = contents.closed;
    for (name, entry) in contents.open {
        let outbox = opened.outbox(Some(&name))?;
        let imported = match dry_run {
            true => preview(opened, &outbox, &entry).await,
            false => opened.store.import(&outbox, &entry, operator).await,
        };
        match imported {
            Ok(Imported::Restored) => report.restored += 1,
            Ok(Imported::Live) => report.live += 1,
            Ok(Imported::Known) => report.known += 1,
            // An event that the store refuses must not keep the others from being restored.
            Err(StoreError::Refused(why)) => report.damaged.push(why),
            Err(error) => return Err(error.into()),
        }
    }
    match json {
        true => output::print_json(&report)?,
        false => output::print(&format!(
            "{} {}, {} still in the outbox, {} known already, {} closed, {} damaged\n",
            report.restored,
            if dry_run { "would be restored (dry run)" } else { "restored to the dead letters" },
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

/// Returns the result that an import would have now.
async fn preview(
    opened: &Opened,
    outbox: &Outbox,
    entry: &ImportEntry,
) -> Result<Imported, StoreError> {
    // Called first, since it refuses whatever an import would refuse.
    let was_closed = opened.store.was_closed(outbox, entry).await?;
    let live = opened.store.event(outbox, entry.original_id).await?;
    let is_it = |event_id: &str| event_id.eq_ignore_ascii_case(&entry.event_id);
    if live.is_some_and(|e| e.status != Status::Completed && is_it(&e.event_id)) {
        return Ok(Imported::Live);
    }
    let filter = DlqFilter { event_id: Some(entry.event_id.clone()), ..DlqFilter::default() };
    let page = Page::first(PAGE).within(Duration::MAX);
    let letters = opened.store.dead_letters(outbox, &filter, page).await?.rows;
    if letters.iter().any(|letter| letter.original_id == entry.original_id) {
        return Ok(Imported::Known);
    }
    Ok(if was_closed { Imported::Known } else { Imported::Restored })
}

/// Replaces each folder by the backup files in it.
fn with_folders(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => {
                let found = backup::files_in(path).map_err(|error| unreadable(path, &error))?;
                files.extend(found);
            }
            false => files.push(path.clone()),
        }
    }
    Ok(files)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("backup file `{}` cannot be read: {error}", path.display()))
}

fn add(files: &mut BackupFiles, path: &Path) -> std::io::Result<Vec<(usize, String)>> {
    match path.as_os_str() == "-" {
        true => files.add(std::io::stdin().lock()),
        false => files.add(BufReader::new(File::open(path)?)),
    }
}
