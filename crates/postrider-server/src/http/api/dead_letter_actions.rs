//! Actions on dead letters: retry, resolve, reopen, edit and resend.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use postrider::Outbox;
use postrider_store::{Edit, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::dead_letters::unknown;
use super::pages::{Note, note};
use crate::commands::dlq::forgotten;
use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InBody, InPath};
use crate::http::problem::Problem;

/// A dead letter that was sent again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Retried {
    id: i64,
    /// Row id of the fresh event.
    retried_as: i64,
    /// What may come of it: the event is older than inboxes remember.
    warning: Option<String>,
}

/// Send a dead letter again: a fresh event with a fresh budget and the same identity.
#[utoipa::path(
    operation_id = "retry_dead_letter",
    post, path = "/api/v1/outboxes/{outbox}/dead-letters/{id}/retry", tag = "dead letters",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Id of the dead letter"),
    ),
    request_body = Note,
    responses(
        (status = 200, description = "It is on its way", body = Retried),
        (status = 409, description = "It is resolved already: by whom, when and how",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn retry(
    State(state): State<ServerState>,
    caller: Caller,
    InPath((name, id)): InPath<(String, i64)>,
    InBody(note): InBody<Note>,
) -> Result<Json<Retried>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let warning = forgotten(state.store.as_ref(), outbox, id, state.inbox_retention).await?;
    match state.store.retry(outbox, id, &caller.name, &note.checked()?).await {
        Ok(retried_as) => {
            state.waker.wake();
            Ok(Json(Retried { id, retried_as, warning }))
        }
        Err(error) => Err(not_applied(&state, outbox, id, error).await),
    }
}

/// A dead letter that was resolved by hand.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resolved {
    id: i64,
    resolved_by: String,
}

/// Resolve a dead letter by hand; it is not sent.
#[utoipa::path(
    operation_id = "resolve_dead_letter",
    post, path = "/api/v1/outboxes/{outbox}/dead-letters/{id}/resolve", tag = "dead letters",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Id of the dead letter"),
    ),
    request_body = Note,
    responses(
        (status = 200, description = "Resolved", body = Resolved),
        (status = 409, description = "It is resolved already: by whom, when and how",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resolve(
    State(state): State<ServerState>,
    caller: Caller,
    InPath((name, id)): InPath<(String, i64)>,
    InBody(note): InBody<Note>,
) -> Result<Json<Resolved>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    match state.store.resolve(outbox, id, &caller.name, &note.checked()?).await {
        Ok(()) => Ok(Json(Resolved { id, resolved_by: caller.name.to_string() })),
        Err(error) => Err(not_applied(&state, outbox, id, error).await),
    }
}

/// A dead letter that is open again.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reopened {
    id: i64,
}

/// Take back a resolution by hand. What was sent again stays sent.
#[utoipa::path(
    operation_id = "reopen_dead_letter",
    post, path = "/api/v1/outboxes/{outbox}/dead-letters/{id}/reopen", tag = "dead letters",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Id of the dead letter"),
    ),
    request_body = Note,
    responses(
        (status = 200, description = "It is open again", body = Reopened),
        (status = 409, description = "It is not resolved, or was sent again",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn reopen(
    State(state): State<ServerState>,
    caller: Caller,
    InPath((name, id)): InPath<(String, i64)>,
    InBody(note): InBody<Note>,
) -> Result<Json<Reopened>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let note = note.checked()?;
    if state.store.dead_letter(outbox, id).await?.is_none() {
        return Err(unknown(outbox, id));
    }
    state.store.reopen(outbox, id, &caller.name, &note).await?;
    Ok(Json(Reopened { id }))
}

/// What to change before a dead letter is sent again. What is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditBody {
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    event_type: Option<String>,
    /// The new body, as text.
    payload: Option<String>,
    /// Headers to set, or with `null` to remove.
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    #[serde(default)]
    #[schema(max_length = 1000)]
    note: String,
}

/// The event that an edited dead letter became.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resent {
    id: i64,
    /// Row id of the new event.
    retried_as: i64,
    /// Its identity, which is new.
    event_id: String,
}

/// Edit a dead letter and send it: a new event with a new identity, linked to the original.
#[utoipa::path(
    operation_id = "resend_dead_letter",
    post, path = "/api/v1/outboxes/{outbox}/dead-letters/{id}/resend", tag = "dead letters",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Id of the dead letter"),
    ),
    request_body = EditBody,
    responses(
        (status = 200, description = "It is on its way", body = Resent),
        (status = 409, description = "It is resolved already: by whom, when and how",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resend(
    State(state): State<ServerState>,
    caller: Caller,
    InPath((name, id)): InPath<(String, i64)>,
    InBody(body): InBody<EditBody>,
) -> Result<Json<Resent>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let note = note(body.note)?;
    let edit = Edit {
        aggregate_type: body.aggregate_type,
        aggregate_id: body.aggregate_id,
        event_type: body.event_type,
        payload: body.payload,
        headers: body.headers,
    };
    match state.store.resend(outbox, id, &edit, &caller.name, &note).await {
        Ok(resent) => {
            state.waker.wake();
            Ok(Json(Resent { id, retried_as: resent.id, event_id: resent.event_id }))
        }
        Err(error) => Err(not_applied(&state, outbox, id, error).await),
    }
}

/// Explains why an action does not apply: the entry is unknown or resolved, or the edit is invalid.
/// A caller that missed the first answer learns the state of the entry from this one.
async fn not_applied(state: &ServerState, outbox: &Outbox, id: i64, error: StoreError) -> Problem {
    let StoreError::Refused(why) = error else { return error.into() };
    match state.store.dead_letter(outbox, id).await {
        Ok(None) => unknown(outbox, id),
        Ok(Some(letter)) if letter.resolved => Problem::new(409, why)
            .with("resolved_at", letter.resolved_at)
            .with("resolved_by", letter.resolved_by)
            .with("resolution_note", letter.resolution_note)
            .with("retried_as", letter.retried_as),
        Ok(Some(_)) => Problem::new(422, why),
        Err(error) => error.into(),
    }
}
