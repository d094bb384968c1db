//! The API that provides the characters. It can be switched off.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Switch {
    /// It replies normally.
    On,
    /// It replies with 503.
    Off,
    /// It accepts calls and never replies.
    Silent,
}

struct Api {
    switch: Switch,
    /// Number of calls of each character since the last switch.
    calls: BTreeMap<String, u32>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Api>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Api> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn router() -> Router {
    let api = Api { switch: Switch::On, calls: BTreeMap::new() };
    Router::new()
        .route("/character/{name}", get(character))
        .route("/switch/{to}", post(switch))
        .route("/calls", get(calls))
        .with_state(Shared(Arc::new(Mutex::new(api))))
}

async fn character(State(api): State<Shared>, Path(name): Path<String>) -> Response {
    let switch = {
        let mut api = api.lock();
        *api.calls.entry(name.clone()).or_default() += 1;
        api.switch
    };
    match switch {
        Switch::On => {
            let level = name.bytes().map(u32::from).sum::<u32>() % 300 + 1;
            Json(json!({ "name": name, "level": level })).into_response()
        }
        Switch::Off => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Switch::Silent => std::future::pending().await,
    }
}

async fn switch(State(api): State<Shared>, Path(to): Path<String>) -> Response {
    let switch = match to.as_str() {
        "on" => Switch::On,
        "off" => Switch::Off,
        "silent" => Switch::Silent,
        _ => return (StatusCode::NOT_FOUND, "on, off or silent\n").into_response(),
    };
    *api.lock() = Api { switch, calls: BTreeMap::new() };
    format!("{to}\n").into_response()
}

/// Returns how often each character was requested since the last switch.
async fn calls(State(api): State<Shared>) -> Json<BTreeMap<String, u32>> {
    Json(api.lock().calls.clone())
}
