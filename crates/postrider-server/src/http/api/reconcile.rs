//! Reconciliation of the ledger. It reads the whole table, so it runs in the background: one
//! request starts it, another one reads the result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use postrider::store::{BookLine, Books, ConsumerBook};
use serde::Serialize;
use utoipa::ToSchema;

use crate::commands::reconcile::Reconciliation;
use crate::http::ServerState;
use crate::http::problem::Problem;

/// Maximum number of unbalanced windows shown.
const WINDOWS_MAX: usize = 100;

/// Number of events and sum of their ids.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct LineBody {
    count: i64,
    /// As text: it is larger than the numbers of some languages.
    id_sum: String,
}

impl From<BookLine> for LineBody {
    fn from(line: BookLine) -> Self {
        Self { count: line.count, id_sum: line.id_sum.to_string() }
    }
}

/// A minute of `created_at` that does not balance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct WindowBody {
    window: DateTime<Utc>,
    appended: LineBody,
    delivered: LineBody,
    dead: LineBody,
    pending: LineBody,
}

impl From<Books> for WindowBody {
    fn from(books: Books) -> Self {
        Self {
            window: books.window,
            appended: books.appended.into(),
            delivered: books.delivered.into(),
            dead: books.dead.into(),
            pending: books.pending.into(),
        }
    }
}

/// The books of one outbox: `appended = delivered + dead + pending`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct BooksBody {
    outbox: String,
    balanced: bool,
    appended: LineBody,
    delivered: LineBody,
    dead: LineBody,
    pending: LineBody,
    /// The first hundred windows that do not balance.
    unbalanced: Vec<WindowBody>,
}

impl From<Reconciliation> for BooksBody {
    fn from(found: Reconciliation) -> Self {
        let windows = found.unbalanced.into_iter().take(WINDOWS_MAX);
        Self {
            outbox: found.outbox,
            balanced: found.balanced,
            appended: found.appended.into(),
            delivered: found.delivered.into(),
            dead: found.dead.into(),
            pending: found.pending.into(),
            unbalanced: windows.map(WindowBody::from).collect(),
        }
    }
}

/// The book of one consumer with an inbox: `received = applied + ignored + dead`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ConsumerBody {
    consumer: String,
    balanced: bool,
    received: i64,
    applied: i64,
    ignored: i64,
    dead: i64,
    /// Messages that could not be handled and that nobody resolved.
    unresolved: i64,
}

impl From<ConsumerBook> for ConsumerBody {
    fn from(book: ConsumerBook) -> Self {
        Self {
            balanced: book.balanced(),
            consumer: book.consumer,
            received: book.received,
            applied: book.applied,
            ignored: book.ignored,
            dead: book.dead,
            unresolved: book.unresolved,
        }
    }
}

/// A look at the books that has ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Ended {
    started_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    /// Who asked for it.
    operator: String,
    balanced: bool,
    outboxes: Vec<BooksBody>,
    consumers: Vec<ConsumerBody>,
    /// Why it is not complete.
    error: Option<String>,
}

/// Where the look at the books stands, in this server.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(super) struct ReconcileState {
    /// Since when one is under way; absent: none is.
    running_since: Option<DateTime<Utc>>,
    /// The last one that has ended.
    last: Option<Ended>,
}

/// Runs reconciliations, one at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reconciler(Arc<Mutex<ReconcileState>>);

impl Reconciler {
    fn lock(&self) -> MutexGuard<'_, ReconcileState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a reconciliation. Returns `false` if one is already running.
    fn begin(&self, now: DateTime<Utc>) -> bool {
        let mut state = self.lock();
        let free = state.running_since.is_none();
        state.running_since.get_or_insert(now);
        free
    }

    fn end(&self, ended: Ended) {
        *self.lock() = ReconcileState { running_since: None, last: Some(ended) };
    }
}

/// The last look at the books, and whether one is under way.
#[utoipa::path(
    operation_id = "show_reconcile",
    get, path = "/api/v1/reconcile", tag = "books",
    responses((status = 200, description = "Where it stands", body = ReconcileState))
)]
pub(super) async fn show(State(state): State<ServerState>) -> Json<ReconcileState> {
    let found = state.reconciler.lock().clone();
    Json(found)
}

/// Look at the books of all outboxes, in the background. While one look is under way, no second
/// one begins.
#[utoipa::path(
    operation_id = "start_reconcile",
    post, path = "/api/v1/reconcile", tag = "books",
    responses((status = 202, description = "It is under way", body = ReconcileState))
)]
pub(super) async fn start(
    State(state): State<ServerState>,
    caller: crate::http::access::Caller,
) -> Result<(StatusCode, Json<ReconcileState>), Problem> {
    let started_at = Utc::now();
    if state.reconciler.begin(started_at) {
        let (state, operator) = (state.clone(), caller.name.to_string());
        tokio::spawn(async move {
            let stop = state.stop.clone();
            stop.run_until_cancelled(look(&state, started_at, operator)).await;
        });
    }
    let found = state.reconciler.lock().clone();
    Ok((StatusCode::ACCEPTED, Json(found)))
}

async fn look(state: &ServerState, started_at: DateTime<Utc>, operator: String) {
    let (mut outboxes, mut error) = (Vec::new(), None);
    for served in &state.outboxes {
        match state.store.books(&served.outbox).await {
            Ok(books) => {
                let found = Reconciliation::new(served.outbox.name(), books);
                outboxes.push(BooksBody::from(found));
            }
            Err(cause) => {
                tracing::error!(error = %cause, outbox = served.outbox.name(), "books not read");
                let name = served.outbox.name();
                error = Some(format!("the books of `{name}` cannot be read; the log says why"));
            }
        }
    }
    let mut consumers: Vec<ConsumerBody> = Vec::new();
    match state.store.consumer_books().await {
        Ok(books) => consumers.extend(books.into_iter().map(ConsumerBody::from)),
        Err(cause) => {
            tracing::error!(error = %cause, "books of consumers not read");
            error = Some("the books of consumers cannot be read; the log says why".to_owned());
        }
    }
    let balanced = error.is_none()
        && outboxes.iter().all(|books| books.balanced)
        && consumers.iter().all(|book| book.balanced);
    let ended_at = Utc::now();
    state.reconciler.end(Ended {
        started_at,
        ended_at,
        operator,
        balanced,
        outboxes,
        consumers,
        error,
    });
}
