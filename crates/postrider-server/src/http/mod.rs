//! The HTTP server: health, metrics, the API, gateways, and the dashboard, which uses the API.

pub(crate) mod access;
pub(crate) mod api;
mod connections;
mod extract;
mod feed;
mod framing;
mod gateway;
mod history;
mod page;
mod places;
mod problem;
mod ready;
mod write_timeout;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use postrider::Outbox;
use postrider_relay::{
    DestinationRegistry, RateLimit, Waker, alerts::AlertRegistry, gateway::Gateway,
};
use postrider_store::{Appender, Database};
use tokio_util::sync::CancellationToken;

use access::{Access, Role};
pub(crate) use api::{Reconciler, document};
pub(crate) use connections::serve;
pub(crate) use feed::Feed;
use problem::Problem;
pub(crate) use ready::Readiness;

const NOTHING_HERE: &str = "there is nothing at this path; GET /api/v1/openapi.json lists what \
     there is, besides the page at /, /healthz, /readyz, /metrics and /gateway";
const WRONG_METHOD: &str = "this path does not know the method; see GET /api/v1/openapi.json";
/// Path for appending events.
pub(crate) const APPEND_PATH: &str = "/api/v1/outboxes/{outbox}/events";
/// Path for uploading a backup file, and its time limit: such a file has many events.
const IMPORT_PATH: &str = "/api/v1/dead-letters/import";
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Everything that the endpoints work with.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) appender: Appender,
    pub(crate) outboxes: Vec<Served>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) waker: Waker,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) access: Access,
    pub(crate) alerts: Arc<AlertRegistry>,
    pub(crate) destinations: Arc<DestinationRegistry>,
    /// Whether the relay of this process failed to write its last heartbeat.
    pub(crate) heartbeat_fails: Arc<AtomicBool>,
    pub(crate) feed: Feed,
    pub(crate) reconciler: Reconciler,
    pub(crate) readiness: Readiness,
    pub(crate) connections_per_address_max: usize,
    pub(crate) body_bytes_max: usize,
    pub(crate) write_timeout: Duration,
    pub(crate) import_bytes_max: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) list_budget: Duration,
    pub(crate) inbox_retention: Duration,
    /// Ends work that would otherwise go on for ever, such as streams.
    pub(crate) stop: CancellationToken,
}

/// An outbox as it is configured.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) outbox: Outbox,
    pub(crate) preset: &'static str,
    pub(crate) sink: String,
    /// The outboxes that its events are copied into, if its sink is a fan-out.
    pub(crate) branches: Vec<String>,
    /// Whether delivered events are kept.
    pub(crate) archives: bool,
    /// The limit on how fast events may be sent, if there is one.
    pub(crate) rate: Option<Arc<RateLimit>>,
}

#[derive(Clone)]
pub(crate) struct ServerState(Arc<Parts>);

impl ServerState {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns the outbox with this name, or an error that names the existing ones.
    fn served(&self, name: &str) -> Result<&Served, Problem> {
        self.outboxes.iter().find(|served| served.outbox.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.outboxes.iter().map(|s| s.outbox.name()).collect();
            let detail = format!("there is no outbox `{name}`; there is: {}", names.join(", "));
            Problem::new(404, detail)
        })
    }
}

impl std::ops::Deref for ServerState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

fn router(state: ServerState) -> Router {
    let metrics = Router::new()
        .route("/metrics", get(metrics))
        .route_layer(from_fn_with_state(Role::Viewer, access::require));
    let guarded = api::routes()
        .merge(metrics)
        .merge(gateway::routes())
        .route_layer(from_fn_with_state(state.clone(), in_time))
        .route_layer(from_fn_with_state(state.clone(), access::admit));
    // Callers of these routes are not identified yet, and get no more time than others.
    let open = api::open_routes().route_layer(from_fn_with_state(state.clone(), in_time));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready::ready))
        .merge(guarded)
        .merge(open)
        .merge(page::routes())
        .fallback(|| async { Problem::new(404, NOTHING_HERE) })
        .method_not_allowed_fallback(|| async { Problem::new(405, WRONG_METHOD) })
        .layer(from_fn(framing::check))
        .layer(from_fn(access::protect))
        .with_state(state)
}

/// Cuts off requests that take too long. A change may have been made by then or not; repeating the
/// request shows which.
async fn in_time(
    State(state): State<ServerState>,
    path: MatchedPath,
    request: Request,
    next: Next,
) -> Response {
    let limit = match path.as_str() {
        IMPORT_PATH => IMPORT_TIMEOUT,
        _ => state.request_timeout,
    };
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!(
                "no answer within {limit:?}; whether a change was made is not known, look or \
                 repeat it"
            );
            Problem::new(504, detail).into_response()
        }
    }
}

async fn metrics(State(state): State<ServerState>) -> String {
    state.metrics.render()
}
