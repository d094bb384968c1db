//! The state of outboxes, now and over time.

use axum::Json;
use axum::extract::State;
use postrider_store::ClaimMode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InBody, InPath, InQuery};
use crate::http::feed::{OutboxState, Snapshot};
use crate::http::history::{Reach, Sample};
use crate::http::problem::Problem;

/// All outboxes with their statistics, from the ledger.
#[utoipa::path(
    operation_id = "list_outboxes",
    get, path = "/api/v1/outboxes", tag = "outboxes",
    responses((status = 200, description = "The outboxes", body = Snapshot))
)]
pub(super) async fn list(State(state): State<ServerState>) -> Result<Json<Snapshot>, Problem> {
    let snapshot = state.feed.recent(&state).await?;
    Ok(Json(Snapshot::clone(&snapshot)))
}

/// One outbox with its statistics.
#[utoipa::path(
    operation_id = "show_outbox",
    get, path = "/api/v1/outboxes/{outbox}", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    responses((status = 200, description = "The outbox", body = OutboxState))
)]
pub(super) async fn show(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
) -> Result<Json<OutboxState>, Problem> {
    state.served(&name)?;
    let snapshot = state.feed.recent(&state).await?;
    let found = snapshot.outboxes.iter().find(|outbox| outbox.name == name).cloned();
    found.map(Json).ok_or_else(|| Problem::new(404, format!("there is no outbox `{name}`")))
}

/// How long ago to begin.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Span {
    /// The last hour, every ten seconds.
    #[default]
    Hour,
    /// The last two days, every minute.
    Days,
    /// The last thirty days, every quarter of an hour.
    Month,
}

impl From<Span> for Reach {
    fn from(span: Span) -> Self {
        match span {
            Span::Hour => Self::Hour,
            Span::Days => Self::Days,
            Span::Month => Self::Month,
        }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// `hour` (every ten seconds), `days` (two, every minute) or `month` (every quarter of an
    /// hour); `hour` if absent.
    #[param(inline)]
    span: Option<Span>,
}

/// How an outbox was doing, oldest first; since the start of the server at most.
#[utoipa::path(
    operation_id = "outbox_history",
    get, path = "/api/v1/outboxes/{outbox}/history", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox"), HistoryQuery),
    responses((status = 200, description = "The samples", body = Vec<Sample>))
)]
pub(super) async fn history(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
    InQuery(query): InQuery<HistoryQuery>,
) -> Result<Json<Vec<Sample>>, Problem> {
    state.served(&name)?;
    Ok(Json(state.feed.history(&name, query.span.unwrap_or_default().into())))
}

/// How relays share the work.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClaimWord {
    Rows,
    Lanes,
}

impl From<ClaimMode> for ClaimWord {
    fn from(mode: ClaimMode) -> Self {
        match mode {
            ClaimMode::Rows => Self::Rows,
            ClaimMode::Lanes => Self::Lanes,
        }
    }
}

/// A claim mode.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimBody {
    claim: ClaimWord,
}

/// The claim mode that holds now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ModeBody {
    claim: ClaimWord,
    /// Counts the changes.
    mode_epoch: i64,
}

/// Change the claim mode for all relays, while they run: each finishes what it holds first.
#[utoipa::path(
    put, path = "/api/v1/outboxes/{outbox}/claim", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    request_body = ClaimBody,
    responses((status = 200, description = "The mode", body = ModeBody))
)]
pub(super) async fn set_claim(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(body): InBody<ClaimBody>,
) -> Result<Json<ModeBody>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let claim = match body.claim {
        ClaimWord::Rows => ClaimMode::Rows,
        ClaimWord::Lanes => ClaimMode::Lanes,
    };
    let mode = state.store.set_mode(outbox, claim, &caller.name).await?;
    Ok(Json(ModeBody { claim: mode.claim.into(), mode_epoch: mode.epoch }))
}
