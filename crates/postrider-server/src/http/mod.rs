//! The HTTP endpoints: health, metrics, and appending events.

mod guard;
mod ingest;
mod problem;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use postrider::store::{Database, SchemaState};
use postrider::{Appender, Outbox};
use postrider_relay::Waker;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use problem::Problem;

const NOTHING_HERE: &str = "there is nothing at this path; there is: GET /healthz, GET /readyz, \
     GET /metrics, POST /api/v1/outboxes/{name}/events";
const WRONG_METHOD: &str = "this path does not know the method; events are appended with POST";
/// Time for the database to answer a probe. A store waits longer for a connection than those who
/// probe wait for an answer.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// What the endpoints work on.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) appender: Appender,
    pub(crate) outboxes: Vec<Outbox>,
    pub(crate) waker: Waker,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) token: Option<String>,
    pub(crate) body_bytes_max: usize,
}

#[derive(Clone)]
pub(crate) struct ServerState(Arc<Parts>);

impl ServerState {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for ServerState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Serves until stopped; requests that were accepted are answered.
pub(crate) async fn serve(listener: TcpListener, state: ServerState, stop: CancellationToken) {
    let served = axum::serve(listener, router(state))
        .with_graceful_shutdown(stop.clone().cancelled_owned())
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the API stopped; stopping the relay");
        stop.cancel();
    }
}

fn router(state: ServerState) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/outboxes/{name}/events", post(ingest::append))
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::admit));
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .fallback(|| async { Problem::new(404, NOTHING_HERE) })
        .method_not_allowed_fallback(|| async { Problem::new(405, WRONG_METHOD) })
        .with_state(state)
}

/// Ready: the database answers, and its tables fit this program.
async fn ready(State(state): State<ServerState>) -> Response {
    let answer = state.store.schema_state(&state.outboxes);
    match tokio::time::timeout(READY_TIMEOUT, answer).await {
        Ok(Ok(SchemaState::Ready)) => "ready\n".into_response(),
        Ok(Ok(SchemaState::NeedsMigration(what) | SchemaState::TooNew(what))) => {
            Problem::new(503, what).into_response()
        }
        // What the database says may name hosts and users: that is for the log.
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Problem::new(503, "the database does not answer").into_response()
        }
        Err(_) => Problem::new(503, "the database does not answer").into_response(),
    }
}

async fn metrics(State(state): State<ServerState>) -> String {
    state.metrics.render()
}
