//! Pausing and resuming outboxes and sinks.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_store::{Pause, PauseKind};
use serde::Serialize;
use utoipa::ToSchema;

use super::pages::Note;
use super::sinks::require_sink;
use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InBody, InPath};
use crate::http::problem::Problem;

/// A pause: relays read it with their next heartbeat.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PauseBody {
    operator: String,
    note: String,
    paused_at: DateTime<Utc>,
}

impl PauseBody {
    pub(crate) fn find(pauses: &[Pause], kind: PauseKind, name: &str) -> Option<Self> {
        let found = pauses.iter().find(|pause| pause.kind == kind && pause.name == name)?;
        Some(Self {
            operator: found.operator.clone(),
            note: found.note.clone(),
            paused_at: found.paused_at,
        })
    }
}

/// Where it stands now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PauseState {
    name: String,
    /// Absent: it runs.
    paused: Option<PauseBody>,
    /// Whether this request changed it.
    changed: bool,
}

/// Pause an outbox: nothing of it is claimed or begun; what is in flight is finished.
#[utoipa::path(
    post, path = "/api/v1/outboxes/{outbox}/pause", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    request_body = Note,
    responses((status = 200, description = "Paused", body = PauseState))
)]
pub(super) async fn pause_outbox(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(note): InBody<Note>,
) -> Result<Json<PauseState>, Problem> {
    state.served(&name)?;
    set(&state, PauseKind::Outbox, name, true, &caller, note).await
}

/// Let an outbox go on.
#[utoipa::path(
    post, path = "/api/v1/outboxes/{outbox}/resume", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    request_body = Note,
    responses((status = 200, description = "It runs", body = PauseState))
)]
pub(super) async fn resume_outbox(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(note): InBody<Note>,
) -> Result<Json<PauseState>, Problem> {
    state.served(&name)?;
    set(&state, PauseKind::Outbox, name, false, &caller, note).await
}

/// Pause a sink: nothing is sent to it, from whatever outbox.
#[utoipa::path(
    post, path = "/api/v1/sinks/{sink}/pause", tag = "sinks",
    params(("sink" = String, Path, description = "Name of the sink")),
    request_body = Note,
    responses((status = 200, description = "Paused", body = PauseState))
)]
pub(super) async fn pause_sink(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(note): InBody<Note>,
) -> Result<Json<PauseState>, Problem> {
    require_sink(&state, &name)?;
    set(&state, PauseKind::Sink, name, true, &caller, note).await
}

/// Let a sink go on.
#[utoipa::path(
    post, path = "/api/v1/sinks/{sink}/resume", tag = "sinks",
    params(("sink" = String, Path, description = "Name of the sink")),
    request_body = Note,
    responses((status = 200, description = "It runs", body = PauseState))
)]
pub(super) async fn resume_sink(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(note): InBody<Note>,
) -> Result<Json<PauseState>, Problem> {
    require_sink(&state, &name)?;
    set(&state, PauseKind::Sink, name, false, &caller, note).await
}

/// Pauses or resumes. A repeat changes nothing, and the answer says so.
async fn set(
    state: &ServerState,
    kind: PauseKind,
    name: String,
    pause: bool,
    caller: &Caller,
    note: Note,
) -> Result<Json<PauseState>, Problem> {
    let note = note.checked()?;
    let changed = match pause {
        true => state.store.pause(kind, &name, &caller.name, &note).await?,
        false => state.store.resume(kind, &name, &caller.name, &note).await?,
    };
    let paused = PauseBody::find(&state.store.pauses().await?, kind, &name);
    Ok(Json(PauseState { name, paused, changed }))
}
