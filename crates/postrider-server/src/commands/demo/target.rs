//! An HTTP API that fails on demand.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;

/// Whether the API works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    Down,
}

impl Mood {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Well => "up",
            Self::Down => "DOWN",
        }
    }
}

#[derive(Default)]
struct Memory {
    mood: AtomicU8,
    /// Identities of the events that it accepted.
    taken: Mutex<HashSet<String>>,
}

pub(super) struct Target {
    pub(super) url: String,
    memory: Arc<Memory>,
}

impl Target {
    pub(super) async fn start() -> std::io::Result<Self> {
        let memory = Arc::new(Memory::default());
        let app = Router::new().route("/orders/{id}", post(take)).with_state(Arc::clone(&memory));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { drop(axum::serve(listener, app).await) });
        Ok(Self { url, memory })
    }

    pub(super) fn set(&self, mood: Mood) {
        self.memory.mood.store(u8::from(mood == Mood::Down), Ordering::Relaxed);
    }

    /// Returns the number of different events that it accepted.
    pub(super) fn distinct(&self) -> usize {
        self.memory.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    }
}

async fn take(State(memory): State<Arc<Memory>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if memory.mood.load(Ordering::Relaxed) == 1 {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    if body.windows(4).any(|window| window == b":-1}") {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let mut taken = memory.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    taken.insert(key.unwrap_or_default().to_owned());
    StatusCode::NO_CONTENT
}
