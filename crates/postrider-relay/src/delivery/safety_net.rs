//! The safety net with its three stages: dead-letter table → backup file → critical alert.
//!
//! A row is removed only when its dead letter is in the table. Whichever stage fails, the row is
//! still in the outbox: marked `DEAD_LETTER` if it can be written, otherwise held and recovered
//! later.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use postrider::Outbox;
use postrider_store::{
    CountLimit, Database, Death, DlqFilter, Event, ImportEntry, Lease, MovedLetter, Result,
    StoreError, fingerprint,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::alerts::{Alert, Alerts, Severity};
use crate::delivery::backup::{Backup, Record};
use crate::delivery::settle::{Settler, repeat_wait};
use crate::lease::Membership;
use crate::monitor::judge::{Watched, judge_unresolved};
use crate::preset::Thresholds;
use crate::telemetry::{self, label};

pub(crate) struct SafetyNet {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) backup: Arc<Backup>,
    pub(crate) alerts: Alerts,
    /// By outbox name.
    pub(crate) thresholds: HashMap<String, Thresholds>,
    /// Tells which relay watches the tables of an outbox.
    pub(crate) memberships: watch::Receiver<Membership>,
    /// How long dead letters wait for the store before they are written to the backup file.
    pub(crate) backup_after: Duration,
}

/// When dead letters that wait for the store are written to the backup file, and whether that is
/// done.
#[derive(Clone)]
struct Filing {
    due_at: Instant,
    done: bool,
    /// The last error of the store.
    cause: String,
}

impl SafetyNet {
    /// Moves events to the dead letters, all at once, or one by one if that fails. Events that the
    /// store does not accept within [`SafetyNet::backup_after`] are also written to the backup
    /// file, and a closed line follows once the store has them. Their rows stay in the outbox until
    /// then.
    pub(crate) async fn move_to_dlq(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        dead: Vec<(Event, Death)>,
        settler: &Settler,
    ) -> Result<()> {
        let mut filing = Filing {
            due_at: Instant::now() + self.backup_after,
            done: false,
            cause: format!("the store has not answered for {:?}", self.backup_after),
        };
        self.move_some(outbox, lease, dead, settler, &mut filing).await
    }

    async fn move_some(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        dead: Vec<(Event, Death)>,
        settler: &Settler,
        filing: &mut Filing,
    ) -> Result<()> {
        let mut wait = repeat_wait();
        let deaths: Vec<Death> = dead.iter().map(|(_, death)| death.clone()).collect();
        loop {
            let settling = self.store.settle_dead(outbox, lease, &deaths);
            match self.filing_meanwhile(settling, outbox, &dead, settler, filing).await {
                Ok(settled) => {
                    count_attempts(outbox, &deaths);
                    self.report(outbox, &dead);
                    // With fewer rows, one was no longer held by this relay; which one is not known
                    // here.
                    if filing.done && settled.rows == dead.len() as u64 {
                        self.close(outbox, &moved(&dead)).await;
                    }
                    self.check_unresolved(outbox).await;
                    return Ok(());
                }
                Err(StoreError::LeaseLost) => {
                    settler.lease_keeper.lost();
                    return Err(StoreError::LeaseLost);
                }
                // The row is safe in the outbox; the dead-letter table may work once the database
                // does.
                Err(error) if error.is_transient() => {
                    filing.cause = error.to_string();
                    let paused = settler.pause(outbox, lease, &mut wait, &error).await;
                    if paused.is_err() && settler.abort.is_cancelled() {
                        self.file(outbox, &dead, filing).await;
                    }
                    paused?;
                }
                Err(error) if dead.len() > 1 => {
                    tracing::error!(outbox = outbox.name(), %error, "dead letters: one by one");
                    for one in dead {
                        let (one, mut filing) = (vec![one], filing.clone());
                        Box::pin(self.move_some(outbox, lease, one, settler, &mut filing)).await?;
                    }
                    return Ok(());
                }
                Err(error) => {
                    filing.cause = error.to_string();
                    self.file(outbox, &dead, filing).await;
                    for (_, death) in dead {
                        self.mark(outbox, lease, death, settler).await?;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Waits for a settle. A dead connection may stay silent for long, so the events are written to
    /// the backup file before the store answers, when the time has come or the relay stops.
    async fn filing_meanwhile<T>(
        &self,
        settling: impl Future<Output = Result<T>>,
        outbox: &Outbox,
        dead: &[(Event, Death)],
        settler: &Settler,
        filing: &mut Filing,
    ) -> Result<T> {
        let mut settling = pin!(settling);
        while !filing.done {
            tokio::select! {
                biased;
                answer = &mut settling => return answer,
                () = settler.abort.cancelled() => {
                    self.file(outbox, dead, filing).await;
                    break;
                }
                () = tokio::time::sleep_until(filing.due_at) => {
                    self.file(outbox, dead, filing).await;
                }
            }
        }
        settling.await
    }

    /// Runs the second and third stages, once for each event.
    async fn file(&self, outbox: &Outbox, dead: &[(Event, Death)], filing: &mut Filing) {
        if filing.done {
            return;
        }
        let name = outbox.name();
        let record = |(event, death): &(Event, Death)| Record::Dead {
            outbox: name.to_owned(),
            written_at: Utc::now(),
            event: Box::new(import_entry(event, death)),
        };
        let records: Vec<Record> = dead.iter().map(record).collect();
        let backup = Arc::clone(&self.backup);
        let written = tokio::task::spawn_blocking(move || backup.append(&records)).await;
        let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        let (cause, place) = (&filing.cause, self.backup.path());
        match written {
            Ok(()) => {
                filing.done = true;
                metrics::counter!(telemetry::BACKUP, label::OUTBOX => name.to_owned())
                    .increment(dead.len() as u64);
                for (event, _) in dead {
                    tracing::error!(outbox = name, id = event.id, event_id = event.event_id, cause,
                        file = %place.display(),
                        "dead-letter table failed; event is in the backup file");
                }
                self.report_backup(outbox, dead, cause);
            }
            Err(error) => {
                // The rows are still in the outbox, and the file is tried again later.
                filing.due_at = Instant::now() + self.backup_after;
                metrics::counter!(telemetry::CRITICAL, label::OUTBOX => name.to_owned())
                    .increment(dead.len() as u64);
                for (event, death) in dead {
                    tracing::error!(outbox = name, id = event.id, event_id = event.event_id, cause,
                        %error,
                        "dead-letter table and backup file failed; the event is in the outbox");
                    self.report_critical(outbox, event, death, cause, &error);
                }
            }
        }
    }

    /// Marks the row, so that maintenance moves it later. Repeats until it is done or the row no
    /// longer belongs to this relay: no other relay recovers the rows of a live one.
    async fn mark(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        death: Death,
        settler: &Settler,
    ) -> Result<()> {
        let mut wait = repeat_wait();
        let death = [death];
        loop {
            match self.store.mark_dead(outbox, lease, &death).await {
                Ok(_) => {
                    count_attempts(outbox, &death);
                    return Ok(());
                }
                Err(StoreError::LeaseLost) => {
                    settler.lease_keeper.lost();
                    return Err(StoreError::LeaseLost);
                }
                Err(error) => settler.pause(outbox, lease, &mut wait, &error).await?,
            }
        }
    }

    /// Checks the number of unresolved dead letters after each move, if this relay watches the
    /// tables. It sees those that other relays moved when it folds the ledger.
    async fn check_unresolved(&self, outbox: &Outbox) {
        if !self.memberships.borrow().leads(outbox.name()) {
            return;
        }
        let filter = DlqFilter { resolved: Some(false), ..DlqFilter::default() };
        // Count at least up to the threshold.
        let at =
            self.thresholds(outbox).unresolved_at.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        let mut limit = CountLimit::default();
        limit.count_max = limit.count_max.max(at.unwrap_or(0));
        let read_at = Instant::now();
        match self.store.dead_letter_count(outbox, &filter, limit).await {
            // A count that was cut short below the threshold does not prove that there are few.
            Ok(counted) if at.is_some_and(|at| counted.reaches(at).is_none()) => {}
            Ok(counted) => self.report_unresolved(outbox, read_at, counted.count),
            // The next fold counts again.
            Err(error) => tracing::debug!(outbox = outbox.name(), %error, "not counted"),
        }
    }

    /// Begins or ends the alert about too many unresolved dead letters. Called after every count.
    pub(crate) fn report_unresolved(&self, outbox: &Outbox, read_at: Instant, count: i64) {
        let name = outbox.name();
        let verdict = judge_unresolved(name, count, self.thresholds(outbox).unresolved_at);
        match verdict.holds {
            true => self.alerts.begin_as_of(read_at, verdict.alert(name)),
            false => {
                let kind = Watched::Unresolved.kind(name);
                self.alerts.end_as_of(read_at, kind, verdict.title);
            }
        }
    }

    fn thresholds(&self, outbox: &Outbox) -> Thresholds {
        self.thresholds.get(outbox.name()).copied().unwrap_or(Thresholds::API_CALL)
    }

    /// Writes closed lines to the backup file for events that the dead-letter table now has.
    pub(crate) async fn close(&self, outbox: &Outbox, moved: &[MovedLetter]) {
        let closed = |letter: &MovedLetter| Record::Closed {
            outbox: outbox.name().to_owned(),
            written_at: Utc::now(),
            original_id: letter.original_id,
            event_id: Some(letter.event_id.clone()),
        };
        let records: Vec<Record> = moved.iter().map(closed).collect();
        let backup = Arc::clone(&self.backup);
        let written = tokio::task::spawn_blocking(move || backup.append(&records)).await;
        // Not needed for safety: an import asks the store which dead letters it has, or had.
        if let Ok(Err(error)) = written {
            tracing::warn!(outbox = outbox.name(), %error, "backup file: not marked as closed");
        }
    }

    /// Alerts about dead letters at once, with one alert per fingerprint and move: a thousand dead
    /// letters must not push out other alerts. The cool-down combines those of later moves.
    fn report(&self, outbox: &Outbox, dead: &[(Event, Death)]) {
        let name = outbox.name();
        metrics::counter!(telemetry::DEAD_LETTERS, label::OUTBOX => name.to_owned())
            .increment(dead.len() as u64);
        let mut kinds: BTreeMap<String, (&Event, &Death, u64)> = BTreeMap::new();
        for (event, death) in dead {
            metrics::counter!(telemetry::DLQ, label::OUTBOX => name.to_owned(),
                label::EVENT_TYPE => telemetry::event_type(&event.event_type),
                label::REASON => death.reason.as_str())
            .increment(1);
            let kind = fingerprint(death.reason, &death.message);
            kinds.entry(kind).or_insert((event, death, 0)).2 += 1;
        }
        if !self.thresholds(outbox).dead_letters {
            return;
        }
        for (kind, (event, death, count)) in kinds {
            let alert = Alert {
                severity: Severity::Critical,
                kind: format!("dead-letter/{name}/{kind}"),
                title: format!("Dead letter in outbox {name} ({})", death.reason.as_str()),
                fields: fields(event, death),
                event: None,
            };
            self.alerts.raise_many(alert, count);
        }
    }

    /// Sends one alert for all events of one failure, so that they do not push out other alerts.
    fn report_backup(&self, outbox: &Outbox, dead: &[(Event, Death)], cause: &str) {
        let Some((event, death)) = dead.first().filter(|_| self.thresholds(outbox).backups) else {
            return;
        };
        let name = outbox.name();
        let mut fields = fields(event, death);
        fields.push(("cause", cause.to_owned()));
        fields.push(("file", self.backup.path().display().to_string()));
        let alert = Alert {
            severity: Severity::Critical,
            kind: format!("backup/{name}"),
            title: format!(
                "Dead-letter table of outbox {name} failed; event is in the backup file"
            ),
            fields,
            event: None,
        };
        self.alerts.raise_many(alert, dead.len() as u64);
    }

    fn report_critical(
        &self,
        outbox: &Outbox,
        event: &Event,
        death: &Death,
        cause: &str,
        file_error: &std::io::Error,
    ) {
        if !self.thresholds(outbox).critical_failures {
            return;
        }
        let name = outbox.name();
        let mut fields = fields(event, death);
        fields.push(("table", cause.to_owned()));
        fields.push(("file", format!("{}: {file_error}", self.backup.path().display())));
        fields.push(("whereabouts", format!("table {} row {}", outbox.table(), event.id)));
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            // One alert per event: it may be the only copy outside of the outbox, so these are
            // never combined.
            kind: format!("critical/{name}/{}", event.id),
            title: format!("Dead letter of outbox {name} could be saved nowhere else"),
            fields,
            event: Some(Box::new(event.clone())),
        });
    }
}

/// Counts the last attempts of dead events as failed, like those before them.
fn count_attempts(outbox: &Outbox, deaths: &[Death]) {
    let attempted = deaths.iter().filter(|death| death.attempted).count();
    metrics::counter!(telemetry::FAILED, label::OUTBOX => outbox.name().to_owned())
        .increment(attempted as u64);
}

fn fields(event: &Event, death: &Death) -> Vec<(&'static str, String)> {
    let attempts = event.retry_count + i32::from(death.attempted);
    vec![
        ("id", event.id.to_string()),
        ("event_id", event.event_id.clone()),
        ("type", event.event_type.clone()),
        ("aggregate", format!("{}/{}", event.aggregate_type, event.aggregate_id)),
        ("retry_count", attempts.to_string()),
        ("error", death.message.chars().take(300).collect()),
        ("failed_at", Utc::now().to_rfc3339()),
    ]
}

fn moved(dead: &[(Event, Death)]) -> Vec<MovedLetter> {
    let letter = |(event, _): &(Event, Death)| MovedLetter {
        original_id: event.id,
        event_id: event.event_id.clone(),
    };
    dead.iter().map(letter).collect()
}

/// Names every field of an event, so that a new field does not compile until it is handled here.
fn import_entry(event: &Event, death: &Death) -> ImportEntry {
    let Event {
        id,
        event_id,
        request_id,
        aggregate_type,
        aggregate_id,
        event_type,
        payload,
        headers,
        content_hash,
        created_at,
        expires_at,
        retry_count,
        max_retries,
        redrive_count,
        // State of the row's last attempt, which ends with the row.
        crash_count: _,
        last_failed_at: _,
        claimed_at: _,
        version: _,
        place: _,
        // Part of the error message of the dead letter.
        defect: _,
    } = event;
    ImportEntry {
        original_id: *id,
        event_id: event_id.clone(),
        request_id: request_id.clone(),
        aggregate_type: aggregate_type.clone(),
        aggregate_id: aggregate_id.clone(),
        event_type: event_type.clone(),
        payload: payload.clone(),
        headers: headers.clone(),
        content_hash: content_hash.clone(),
        reason: death.reason,
        error_message: death.message.clone(),
        error_detail: death.detail.clone(),
        failed_at: Utc::now(),
        retry_count: retry_count.saturating_add(i32::from(death.attempted)),
        max_retries: *max_retries,
        redrive_count: *redrive_count,
        created_at: *created_at,
        expires_at: *expires_at,
    }
}
