//! `postrider outbox adopt`: imports the rows that an adopted table had before.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, number},
};
use postrider_store::{AdoptCursor, AdoptImport, AdoptStep, StoreError, adopt::Adoption};
use serde_json::json;

use crate::cli::AdoptArgs;
use crate::commands::Opened;

/// Maximum number of rows per step; each step is a transaction.
const ROWS_MAX: u32 = 1_000;
/// Number of attempts of a step that fails to get a lock in time.
const TRIES: u32 = 5;

/// The counts of an import.
#[derive(Debug, Default)]
struct Tally {
    seen: u64,
    events: u64,
    letters: u64,
}

/// Delivered rows that the next clean-up will delete: on the first night, everything that the old
/// relay left.
struct Expired {
    rows: u64,
    retention: Duration,
}

pub(crate) async fn adopt(opened: &Opened, args: &AdoptArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(Some(&args.outbox))?;
    let configured = opened.built.outboxes.iter().find(|config| config.outbox == outbox);
    let served = configured.and_then(|config| Some((config, config.adoption.as_ref()?)));
    let (config, adoption) = served.ok_or_else(|| {
        Failure::Usage(format!(
            "outbox `{}` serves no table of others; name one in [outbox.adopt]",
            outbox.name()
        ))
    })?;
    let bar = ProgressBar::new(opened.store.adoptable(&outbox, adoption).await?);
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let tally = tokio::select! {
        tally = import(opened, &outbox, adoption, args, &bar) => tally?,
        // Committed steps stay; the next call skips their rows.
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
    };
    bar.finish_and_clear();
    let retention = config.preset.retention;
    let expired = opened.store.expired_rows(&outbox, adoption, retention).await?;
    report(&outbox, adoption, args, &tally, &Expired { rows: expired, retention })
}

async fn import(
    opened: &Opened,
    outbox: &Outbox,
    adoption: &Adoption,
    args: &AdoptArgs,
    bar: &ProgressBar,
) -> Result<Tally, Failure> {
    let import =
        AdoptImport { operator: &args.operator, rows_max: ROWS_MAX, dry_run: args.dry_run };
    let (mut tally, mut next) = (Tally::default(), Some(AdoptCursor::START));
    while let Some(cursor) = next {
        let step = step(opened, outbox, adoption, &cursor, &import).await?;
        tally.seen += step.seen;
        match cursor {
            AdoptCursor::Rows(_) => tally.events += step.taken,
            AdoptCursor::Letters(_) => tally.letters += step.taken,
        }
        bar.set_position(tally.seen);
        bar.set_message(format!("{} taken", number(tally.events + tally.letters)));
        next = step.next;
    }
    Ok(tally)
}

/// Runs one step; if another session holds a lock, tries again a few times.
async fn step(
    opened: &Opened,
    outbox: &Outbox,
    adoption: &Adoption,
    cursor: &AdoptCursor,
    import: &AdoptImport<'_>,
) -> Result<AdoptStep, StoreError> {
    let mut tries = 1;
    loop {
        match opened.store.adopt_step(outbox, adoption, cursor, import).await {
            Err(StoreError::Busy(_)) if tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

fn report(
    outbox: &Outbox,
    adoption: &Adoption,
    args: &AdoptArgs,
    tally: &Tally,
    expired: &Expired,
) -> Result<(), Failure> {
    if args.json {
        return output::print_json(&json!({
            "outbox": outbox.name(),
            "table": adoption.table,
            "seen": tally.seen,
            "events": tally.events,
            "dead_letters": tally.letters,
            "expired": expired.rows,
            "dry_run": args.dry_run,
        }));
    }
    let would = if args.dry_run { "would be " } else { "" };
    output::print(&format!(
        "outbox {}: of {} rows, {} {would}taken as events and {} as dead letters; the others are \
         delivered, resolved or known\n",
        outbox.name(),
        number(tally.seen),
        number(tally.events),
        number(tally.letters)
    ))?;
    if expired.rows == 0 {
        return Ok(());
    }
    output::print(&format!(
        "{} rows of {} were delivered more than {} ago: the nightly clean-up deletes them; to keep \
         them longer, raise `retention`\n",
        number(expired.rows),
        adoption.table,
        humantime::format_duration(expired.retention)
    ))
}
