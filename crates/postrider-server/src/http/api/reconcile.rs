//! Reconciliation of the ledger. It reads the whole table, so it runs in the background: one
//! request starts it, another one reads the result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use postrider_store::{ConsumerLedger, LedgerLine, LedgerWindow};
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

impl From<LedgerLine> for LineBody {
    fn from(line: LedgerLine) -> Self {
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

impl From<LedgerWindow> for WindowBody {
    fn from(ledger: LedgerWindow) -> Self {
        Self {
            window: ledger.window,
            appended: ledger.appended.into(),
            delivered: ledger.delivered.into(),
            dead: ledger.dead.into(),
            pending: ledger.pending.into(),
        }
    }
}

/// The ledger of one outbox: `appended = delivered + dead + pending`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct LedgerBody {
    outbox: String,
    balanced: bool,
    appended: LineBody,
    delivered: LineBody,
    dead: LineBody,
    pending: LineBody,
    /// The first hundred windows that do not balance.
    unbalanced: Vec<WindowBody>,
}

impl From<Reconciliation> for LedgerBody {
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

/// The ledger of one consumer with an inbox: `received = applied + ignored + dead`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ConsumerBody {
    consumer: String,
    balanced: bool,
    received: i64,
    applied: i64,
    ignored: i64,
    dead: i64,
    /// Unresolved messages that could not be handled.
    unresolved: i64,
}

impl From<ConsumerLedger> for ConsumerBody {
    fn from(ledger: ConsumerLedger) -> Self {
        Self {
            balanced: ledger.balanced(),
            consumer: ledger.consumer,
            received: ledger.received,
            applied: ledger.applied,
            ignored: ledger.ignored,
            dead: ledger.dead,
            unresolved: ledger.unresolved,
        }
    }
}

/// A check of the ledger that has ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Ended {
    started_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    /// Who asked for it.
    operator: String,
    balanced: bool,
    outboxes: Vec<LedgerBody>,
    consumers: Vec<ConsumerBody>,
    /// Why it is not complete.
    error: Option<String>,
}

/// How far the check of the ledger has got, in this server.
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

/// The last check of the ledger, and whether one is under way.
#[utoipa::path(
    operation_id = "show_reconcile",
    get, path = "/api/v1/reconcile", tag = "ledger",
    responses((status = 200, description = "Where it stands", body = ReconcileState))
)]
pub(super) async fn show(State(state): State<ServerState>) -> Json<ReconcileState> {
    let found = state.reconciler.lock().clone();
    Json(found)
}

/// Check the ledgers of all outboxes, in the background. While one check is under way, no second
/// one begins.
#[utoipa::path(
    operation_id = "start_reconcile",
    post, path = "/api/v1/reconcile", tag = "ledger",
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
        match state.store.ledger(&served.outbox).await {
            Ok(ledger) => {
                let found = Reconciliation::new(served.outbox.name(), ledger);
                outboxes.push(LedgerBody::from(found));
            }
            Err(cause) => {
                tracing::error!(error = %cause, outbox = served.outbox.name(), "ledger not read");
                let name = served.outbox.name();
                error = Some(format!("the ledger of `{name}` cannot be read; the log says why"));
            }
        }
    }
    let mut consumers: Vec<ConsumerBody> = Vec::new();
    match state.store.consumer_ledgers().await {
        Ok(ledger) => consumers.extend(ledger.into_iter().map(ConsumerBody::from)),
        Err(cause) => {
            tracing::error!(error = %cause, "ledgers of consumers not read");
            error = Some("the ledgers of consumers cannot be read; the log says why".to_owned());
        }
    }
    let balanced = error.is_none()
        && outboxes.iter().all(|ledger| ledger.balanced)
        && consumers.iter().all(|ledger| ledger.balanced);
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
