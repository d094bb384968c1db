//! Export of dead letters into a backup file, and import from one.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use futures_util::stream::try_unfold;
use postrider::Outbox;
use postrider_relay::delivery::backup::{self, Contents, Record};
use postrider_store::{DlqFilter, ImportEntry, Imported, Page, StoreError};
use serde::Serialize;
use utoipa::ToSchema;

use super::dead_letters::DeadLetterSelection;
use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InPath, InQuery, read_body, require_type};
use crate::http::problem::Problem;

const NDJSON: &str = "application/x-ndjson";
/// Number of dead letters per read.
const EXPORT_ROWS: u32 = 500;
/// Bytes of payloads per chunk. An export holds one chunk and one more payload in memory.
const EXPORT_BYTES: i64 = 8 * 1024 * 1024;
/// Time limit of one read; the export as a whole has no limit.
const EXPORT_BUDGET: Duration = Duration::from_secs(1);
/// Maximum number of damaged lines reported.
const DAMAGED_MAX: usize = 100;

/// The dead letters that fit, newest first, as the lines of a backup file: each with a checksum.
/// `dlq import` and `POST /api/v1/dead-letters/import` read it.
#[utoipa::path(
    operation_id = "export_dead_letters",
    get, path = "/api/v1/outboxes/{outbox}/dead-letters/export", tag = "dead letters",
    params(("outbox" = String, Path, description = "Name of the outbox"), DeadLetterSelection),
    responses((
        status = 200,
        description = "The lines",
        body = String,
        content_type = "application/x-ndjson"
    ))
)]
pub(super) async fn export(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
    InQuery(query): InQuery<DeadLetterSelection>,
) -> Result<Response, Problem> {
    let outbox = state.served(&name)?.outbox.clone();
    let filter = query.filter()?;
    let pages = try_unfold(Some(None), move |cursor| {
        let (state, outbox, filter) = (state.clone(), outbox.clone(), filter.clone());
        async move {
            let Some(before) = cursor else { return Ok(None) };
            let (lines, next) = some_lines(&state, &outbox, &filter, before).await?;
            Ok::<_, std::io::Error>(Some((lines, next.map(Some))))
        }
    });
    let name = format!("attachment; filename=\"dead-letters-{name}.jsonl\"");
    let headers = [(header::CONTENT_TYPE, NDJSON.to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(pages)).into_response())
}

/// Returns the next lines and the position to continue from. A failure aborts the answer, so that a
/// client cannot mistake half of an export for all of it.
async fn some_lines(
    state: &ServerState,
    outbox: &Outbox,
    filter: &DlqFilter,
    before: Option<i64>,
) -> std::io::Result<(Bytes, Option<i64>)> {
    let page = Page::first(EXPORT_ROWS).below(before).within(EXPORT_BUDGET);
    let listed = state.store.dead_letters(outbox, filter, page).await.map_err(broken_off)?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for found in listed.rows {
        // One by one, since lists contain no payloads. A dead letter may have been cleaned up in
        // the meantime; it is left out.
        let letter = state.store.dead_letter(outbox, found.id).await.map_err(broken_off)?;
        if let Some(entry) = letter.and_then(ImportEntry::of) {
            let (outbox, event) = (outbox.name().to_owned(), Box::new(entry));
            backup::write(&mut lines, &Record::Dead { outbox, written_at: Utc::now(), event })?;
        }
        bytes += found.payload_bytes;
        if bytes >= EXPORT_BYTES {
            return Ok((lines.into(), Some(found.id)));
        }
    }
    Ok((lines.into(), listed.next))
}

fn broken_off(error: StoreError) -> std::io::Error {
    tracing::error!(%error, "an export was broken off");
    std::io::Error::other("the database does not answer")
}

/// A line that cannot be trusted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DamagedLine {
    /// From 1; absent where the line is sound, but its event cannot be held.
    line: Option<usize>,
    reason: String,
}

/// What became of an imported file.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct ImportReport {
    /// They are in the dead letters now.
    restored: u64,
    /// The outbox still has them.
    live: u64,
    /// The dead letters have them, or had them until they were resolved and cleaned up; or they
    /// were delivered.
    known: u64,
    /// The file itself says that the dead letters have them.
    closed: usize,
    /// Lines that were passed over; the first hundred.
    damaged: Vec<DamagedLine>,
}

/// Put events from a backup file into the dead letters, unless they are live or known. A repeat
/// changes nothing.
#[utoipa::path(
    operation_id = "import_dead_letters",
    post, path = "/api/v1/dead-letters/import", tag = "dead letters",
    request_body(content = String, content_type = "application/x-ndjson",
                 description = "The lines of a backup file"),
    responses((status = 200, description = "What became of it", body = ImportReport))
)]
pub(super) async fn import(
    State(state): State<ServerState>,
    caller: Caller,
    request: Request,
) -> Result<Json<ImportReport>, Problem> {
    require_type(&request, NDJSON)?;
    let body = read_body(request, state.import_bytes_max).await?;
    let reading = tokio::task::spawn_blocking(move || backup::read_from(&body[..]));
    let Ok(Ok(contents)) = reading.await else {
        return Err(Problem::new(400, "the body cannot be read"));
    };
    let Contents { open, closed, damaged, .. } = contents;
    // Checked before the first event is imported.
    for (name, _) in &open {
        state.served(name).map_err(|_| {
            let detail = format!("the file has events of outbox `{name}`, which is not configured");
            Problem::new(422, detail)
        })?;
    }
    let damaged = damaged.into_iter().take(DAMAGED_MAX);
    let damaged = damaged.map(|(line, reason)| DamagedLine { line: Some(line), reason }).collect();
    let mut report = ImportReport { closed, damaged, ..ImportReport::default() };
    for (name, entry) in open {
        let outbox = &state.served(&name)?.outbox;
        match state.store.import(outbox, &entry, &caller.name).await {
            Ok(Imported::Restored) => report.restored += 1,
            Ok(Imported::Live) => report.live += 1,
            Ok(Imported::Known) => report.known += 1,
            // An event that the store refuses must not keep the others from being restored.
            Err(StoreError::Refused(reason)) if report.damaged.len() < DAMAGED_MAX => {
                report.damaged.push(DamagedLine { line: None, reason });
            }
            Err(StoreError::Refused(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(report))
}
