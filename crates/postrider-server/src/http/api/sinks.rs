//! Sinks, and which of their destinations are down.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use postrider::store::PauseKind;
use serde::Serialize;
use utoipa::ToSchema;

use super::pauses::PauseBody;
use super::relays::{DownBody, down};
use crate::http::ServerState;
use crate::http::problem::Problem;

/// Where events go.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SinkBody {
    name: String,
    /// The outboxes that lead to it.
    outboxes: Vec<String>,
    /// Absent: it runs.
    paused: Option<PauseBody>,
    /// Destinations whose breaker is open, as some relay sees it; the first few of each relay.
    down: Vec<DownBody>,
}

/// The sinks with the destinations that are down.
#[utoipa::path(
    operation_id = "list_sinks",
    get, path = "/api/v1/sinks", tag = "sinks",
    responses((status = 200, description = "The sinks", body = Vec<SinkBody>))
)]
pub(super) async fn list(State(state): State<ServerState>) -> Result<Json<Vec<SinkBody>>, Problem> {
    let (pauses, relays) = (state.store.pauses().await?, state.store.relays().await?);
    let mut outboxes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for served in &state.outboxes {
        outboxes.entry(&served.sink).or_default().push(served.outbox.name().to_owned());
    }
    let sink = |(name, outboxes): (&str, Vec<String>)| {
        let mut down = down(&relays, |serving| outboxes.contains(&serving.outbox));
        down.retain(|down| down.is_of(name));
        let paused = PauseBody::find(&pauses, PauseKind::Sink, name);
        SinkBody { name: name.to_owned(), outboxes, paused, down }
    };
    Ok(Json(outboxes.into_iter().map(sink).collect()))
}

/// That there is such a sink.
pub(super) fn require_sink(state: &ServerState, name: &str) -> Result<(), Problem> {
    match state.outboxes.iter().any(|served| served.sink == name) {
        true => Ok(()),
        false => Err(Problem::new(404, format!("no outbox leads to a sink `{name}`"))),
    }
}
