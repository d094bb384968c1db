//! Active and past alerts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_relay::alerts::{AlertEntry, Severity};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::ServerState;

/// How bad it is.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SeverityWord {
    Info,
    Warning,
    Critical,
}

/// One alert.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AlertBody {
    /// What it is about.
    kind: String,
    severity: SeverityWord,
    /// In a sentence, as it was last seen.
    title: String,
    /// Names and values, as they were last seen.
    fields: BTreeMap<&'static str, String>,
    /// How often it happened.
    count: u64,
    since: DateTime<Utc>,
    last_at: DateTime<Utc>,
    /// Absent while it holds.
    ended_at: Option<DateTime<Utc>>,
}

impl From<AlertEntry> for AlertBody {
    fn from(entry: AlertEntry) -> Self {
        Self {
            kind: entry.kind,
            severity: match entry.severity {
                Severity::Info => SeverityWord::Info,
                Severity::Warning => SeverityWord::Warning,
                Severity::Critical => SeverityWord::Critical,
            },
            title: entry.title,
            fields: entry.fields.into_iter().collect(),
            count: entry.count,
            since: entry.since,
            last_at: entry.last_at,
            ended_at: entry.ended_at,
        }
    }
}

/// The alerts of this relay.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AlertsBody {
    /// What holds, worst first.
    active: Vec<AlertBody>,
    /// What is over, newest first; the last 200 since the start.
    past: Vec<AlertBody>,
}

/// What is wrong now and what was, as this relay knows it. The oldest relay watches the outboxes.
#[utoipa::path(
    operation_id = "list_alerts",
    get, path = "/api/v1/alerts", tag = "alerts",
    responses((status = 200, description = "The alerts", body = AlertsBody))
)]
pub(super) async fn list(State(state): State<ServerState>) -> Json<AlertsBody> {
    let lists = state.alerts.lists();
    let bodies = |entries: Vec<AlertEntry>| entries.into_iter().map(AlertBody::from).collect();
    Json(AlertsBody { active: bodies(lists.active), past: bodies(lists.past) })
}
