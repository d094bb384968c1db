//! Sinks and the state of their destinations.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_relay::{BreakerState, KnownDestination};
use postrider_store::PauseKind;
use serde::Serialize;
use utoipa::ToSchema;

use super::pauses::PauseBody;
use super::relays::{DownBody, down};
use crate::http::ServerState;
use crate::http::problem::Problem;

/// Maximum number of destinations shown per outbox; those that are down come first.
const SHOWN_MAX: usize = 100;

/// Whether events are sent to a destination.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum BreakerWord {
    /// Up.
    Closed,
    /// Down: events wait.
    Open,
    /// Down, and an event is under way to see whether it is back.
    Probing,
}

/// A destination that the relay of this server has sent events to.
#[derive(Debug, Serialize, ToSchema)]
struct DestinationBody {
    outbox: String,
    destination: String,
    state: BreakerWord,
    /// Events at the same time. Absent: no limit.
    window: Option<u32>,
    /// When it last took an event.
    last_success_at: Option<DateTime<Utc>>,
}

impl DestinationBody {
    fn new(outbox: &str, known: KnownDestination) -> Self {
        let KnownDestination { destination, state, window, last_success_at } = known;
        let state = match state {
            BreakerState::Closed => BreakerWord::Closed,
            BreakerState::Open => BreakerWord::Open,
            BreakerState::Probing => BreakerWord::Probing,
        };
        Self { outbox: outbox.to_owned(), destination, state, window, last_success_at }
    }
}

/// How fast events may be sent, by the configuration of this server.
#[derive(Debug, Serialize, ToSchema)]
struct RateBody {
    events_per_s: f64,
    /// Events at once after a pause.
    burst: u32,
}

/// Where events go.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SinkBody {
    name: String,
    /// The outboxes that lead to it.
    outboxes: Vec<String>,
    /// Absent: it runs.
    paused: Option<PauseBody>,
    /// Absent: no limit.
    rate: Option<RateBody>,
    /// No relay counts one of its destinations as down.
    up: bool,
    /// Destinations whose breaker is open, as some relay sees it; the first few of each relay.
    down: Vec<DownBody>,
    /// Destinations that the relay of this server knows, up or down; the first 100 of each outbox,
    /// those that are down first. After a start or a pause, those that got an event since.
    destinations: Vec<DestinationBody>,
}

/// The sinks with their destinations, and what is down.
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
        let known = |outbox: &String| {
            let known = state.destinations.of(outbox, SHOWN_MAX).into_iter();
            known.map(|known| DestinationBody::new(outbox, known)).collect::<Vec<_>>()
        };
        let destinations: Vec<_> = outboxes.iter().flat_map(known).collect();
        // This relay's own view reaches the statistics of relays only with its next heartbeat.
        let closed = |known: &DestinationBody| matches!(known.state, BreakerWord::Closed);
        let up = down.is_empty() && destinations.iter().all(closed);
        let rate = state.outboxes.iter().filter(|served| served.sink == name);
        let rate = rate.filter_map(|served| served.rate.as_deref()).next();
        let rate =
            rate.map(|rate| RateBody { events_per_s: rate.events_per_s(), burst: rate.burst() });
        SinkBody { name: name.to_owned(), outboxes, paused, rate, up, down, destinations }
    };
    Ok(Json(outboxes.into_iter().map(sink).collect()))
}

/// Checks that the sink exists.
pub(super) fn require_sink(state: &ServerState, name: &str) -> Result<(), Problem> {
    match state.outboxes.iter().any(|served| served.sink == name) {
        true => Ok(()),
        false => Err(Problem::new(404, format!("no outbox leads to a sink `{name}`"))),
    }
}
