//! Relays, their lanes, and blocked keys.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_store::{BlockedKey, DownDestination, Key, RelayPulse, Serving, Share, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::traffic::TrafficBody;
use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::extract::{InBody, InPath};
use crate::http::problem::Problem;

/// Maximum number of blocked keys shown, and of rows searched for them.
const BLOCKED_KEYS_MAX: u32 = 100;
const ROWS_MAX: i64 = 10_000;

/// A destination to which a relay sends nothing but probes: its breaker is open.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DownBody {
    sink: String,
    /// Host, broker or the like.
    destination: String,
    since: DateTime<Utc>,
    error: String,
}

impl From<DownDestination> for DownBody {
    fn from(down: DownDestination) -> Self {
        let DownDestination { sink, destination, since, error } = down;
        Self { sink, destination, since, error }
    }
}

impl DownBody {
    pub(super) fn is_of(&self, sink: &str) -> bool {
        self.sink == sink
    }
}

/// Returns each destination that is down once, as seen by the relay that noticed it first.
pub(crate) fn down(relays: &[RelayPulse], of: impl Fn(&Serving) -> bool) -> Vec<DownBody> {
    let live = relays.iter().filter(|relay| !relay.fenced);
    let serving = live.flat_map(|relay| &relay.serving).filter(|serving| of(serving));
    let mut down: Vec<_> = serving.flat_map(|serving| serving.down.clone()).collect();
    down.sort_by(|a, b| {
        (&a.sink, &a.destination, a.since).cmp(&(&b.sink, &b.destination, b.since))
    });
    down.dedup_by(|a, b| (&a.sink, &a.destination) == (&b.sink, &b.destination));
    down.into_iter().map(DownBody::from).collect()
}

/// A share of the rows, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShareBody {
    of: u32,
    index: u32,
}

/// An outbox that a relay works on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServingBody {
    outbox: String,
    /// Which change of the claim mode it works in.
    mode_epoch: i64,
    /// A fixed share of the rows; absent: all of them.
    share: Option<ShareBody>,
    /// Claim mode `lanes`: the lanes that it owns.
    lanes: Vec<u8>,
    /// What it has in flight, and what the last minute was like.
    traffic: TrafficBody,
    /// Destinations that are down, as it sees them.
    down: Vec<DownBody>,
}

/// A process that delivers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RelayBody {
    relay_id: String,
    host: String,
    /// Counts up while it lives.
    heartbeat: i64,
    /// Declared dead; its events are being recovered.
    fenced: bool,
    /// Seconds since it registered.
    age_s: u64,
    serving: Vec<ServingBody>,
}

/// The relays, oldest first. What one has claimed is in the events with `status=PROCESSING`.
#[utoipa::path(
    operation_id = "list_relays",
    get, path = "/api/v1/relays", tag = "relays",
    responses((status = 200, description = "The relays", body = Vec<RelayBody>))
)]
pub(super) async fn list(
    State(state): State<ServerState>,
) -> Result<Json<Vec<RelayBody>>, Problem> {
    let mut relays = state.store.relays().await?;
    relays.sort_by_key(|relay| std::cmp::Reverse(relay.age));
    let mut lanes: BTreeMap<(String, String), Vec<u8>> = BTreeMap::new();
    for served in &state.outboxes {
        for owner in state.store.lane_owners(&served.outbox).await? {
            let Some(relay_id) = owner.relay_id else { continue };
            let key = (relay_id, served.outbox.name().to_owned());
            lanes.entry(key).or_default().push(owner.lane);
        }
    }
    let serving = |relay_id: &str, serving: Serving| ServingBody {
        lanes: lanes
            .get(&(relay_id.to_owned(), serving.outbox.clone()))
            .cloned()
            .unwrap_or_default(),
        outbox: serving.outbox,
        mode_epoch: serving.epoch,
        share: (serving.share != Share::WHOLE)
            .then_some(ShareBody { of: serving.share.of, index: serving.share.index }),
        traffic: TrafficBody::from(&serving.traffic),
        down: serving.down.into_iter().map(DownBody::from).collect(),
    };
    let relay = |relay: RelayPulse| RelayBody {
        serving: relay.serving.into_iter().map(|s| serving(&relay.relay_id, s)).collect(),
        relay_id: relay.relay_id,
        host: relay.host,
        heartbeat: relay.heartbeat,
        fenced: relay.fenced,
        age_s: relay.age.as_secs(),
    };
    Ok(Json(relays.into_iter().map(relay).collect()))
}

/// A lane and who owns it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LaneBody {
    lane: u8,
    /// Absent: no relay.
    relay_id: Option<String>,
    /// Owners that died in a row.
    crash_count: i32,
}

/// The lanes of an outbox and who owns them; in claim mode `rows` they have no owners.
#[utoipa::path(
    operation_id = "lane_owners",
    get, path = "/api/v1/outboxes/{outbox}/lanes", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    responses((status = 200, description = "The lanes", body = Vec<LaneBody>))
)]
pub(super) async fn lanes(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
) -> Result<Json<Vec<LaneBody>>, Problem> {
    let owners = state.store.lane_owners(&state.served(&name)?.outbox).await?;
    let lane = |owner: postrider_store::LaneOwner| LaneBody {
        lane: owner.lane,
        relay_id: owner.relay_id,
        crash_count: owner.crash_count,
    };
    Ok(Json(owners.into_iter().map(lane).collect()))
}

/// A key whose events wait behind one that does not get through.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BlockedKeyBody {
    aggregate_type: String,
    aggregate_id: String,
    /// The event in front; absent where the key is parked with nothing live.
    head_id: Option<i64>,
    last_error: Option<String>,
    retry_count: i32,
    next_retry_at: Option<DateTime<Utc>>,
    /// Events behind it.
    waiting: i64,
    /// There may be more: counting was cut off here.
    at_least: bool,
    /// It stays where it is until somebody releases it.
    parked: bool,
}

impl From<BlockedKey> for BlockedKeyBody {
    fn from(blocked: BlockedKey) -> Self {
        Self {
            aggregate_type: blocked.key.aggregate_type,
            aggregate_id: blocked.key.aggregate_id,
            head_id: blocked.head_id,
            last_error: blocked.last_error,
            retry_count: blocked.retry_count,
            next_retry_at: blocked.next_retry_at,
            waiting: blocked.waiting,
            at_least: blocked.more,
            parked: blocked.parked,
        }
    }
}

/// Keys that do not get on, those with the oldest event first; the first hundred.
#[utoipa::path(
    get, path = "/api/v1/outboxes/{outbox}/blocked-keys", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    responses((status = 200, description = "The keys", body = Vec<BlockedKeyBody>))
)]
pub(super) async fn blocked_keys(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
) -> Result<Json<Vec<BlockedKeyBody>>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let blocked = state.store.blocked_keys(outbox, BLOCKED_KEYS_MAX, ROWS_MAX).await?;
    Ok(Json(blocked.into_iter().map(BlockedKeyBody::from).collect()))
}

/// A key to let go on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyBody {
    aggregate_type: String,
    aggregate_id: String,
}

/// A key that goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Released {
    aggregate_type: String,
    aggregate_id: String,
}

/// Let a parked key go on.
#[utoipa::path(
    post, path = "/api/v1/outboxes/{outbox}/blocked-keys/release", tag = "outboxes",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    request_body = KeyBody,
    responses(
        (status = 200, description = "It goes on", body = Released),
        (status = 409, description = "It is not parked",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn release_key(
    State(state): State<ServerState>,
    caller: Caller,
    InPath(name): InPath<String>,
    InBody(KeyBody { aggregate_type, aggregate_id }): InBody<KeyBody>,
) -> Result<Json<Released>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let key = Key { aggregate_type, aggregate_id };
    if key.aggregate_type.contains('\0') || key.aggregate_id.contains('\0') {
        return Err(StoreError::Refused("no key contains a NUL character".to_owned()).into());
    }
    state.store.release_key(outbox, &key, &caller.name).await?;
    state.waker.wake();
    let Key { aggregate_type, aggregate_id } = key;
    Ok(Json(Released { aggregate_type, aggregate_id }))
}
