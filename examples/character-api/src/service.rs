//! The service's endpoints: characters, and the number of waiting calls.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use postrider::Outbox;
use postrider_relay::{
    gateway::{Call, Gateway},
    message::template::percent_encoded,
};
use postrider_store::Database;
use serde_json::json;

struct Service {
    gateway: Gateway,
    store: Arc<dyn Database>,
    outbox: Outbox,
}

pub(crate) fn router(gateway: Gateway, store: Arc<dyn Database>, outbox: Outbox) -> Router {
    Router::new()
        .route("/characters/{name}", get(character))
        .route("/waiting", get(waiting))
        .with_state(Arc::new(Service { gateway, store, outbox }))
}

/// Returns a character from the cache or from the API, or 503 with a note that the call is saved.
async fn character(State(service): State<Arc<Service>>, Path(name): Path<String>) -> Response {
    match Call::get(format!("/character/{}", percent_encoded(&name))) {
        Ok(call) => service.gateway.fetch(call).await.into_response().map(Body::from),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Returns how many calls wait to be repeated.
async fn waiting(State(service): State<Arc<Service>>) -> Response {
    match service.store.statistics(&service.outbox).await {
        Ok(statistics) => Json(json!({ "waiting": statistics.pending })).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}
