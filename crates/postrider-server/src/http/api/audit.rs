//! The audit trail: operators' actions on events, outboxes and everything else.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_store::{AuditEntry, AuditFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::pages::{Rows, page};
use crate::http::ServerState;
use crate::http::extract::{InQuery, text, time};
use crate::http::problem::Problem;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only this operator.
    operator: Option<String>,
    /// Only this action, such as `dlq.retry`.
    action: Option<String>,
    /// Only this outbox.
    outbox: Option<String>,
    /// Only this entry.
    target: Option<String>,
    /// At or after.
    since: Option<DateTime<Utc>>,
    /// Before.
    until: Option<DateTime<Utc>>,
    /// Only ids below this: `next` of the page before.
    before: Option<i64>,
    /// Rows at most; 50 if absent.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// A line of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditRow {
    id: i64,
    at: DateTime<Utc>,
    operator: String,
    action: String,
    /// Empty for what is not about one.
    outbox: String,
    target: String,
    detail: String,
}

impl From<AuditEntry> for AuditRow {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { id, at, operator, action, outbox, target, detail } = entry;
        Self { id, at, operator, action, outbox, target, detail }
    }
}

/// The audit trail, newest first.
#[utoipa::path(
    operation_id = "list_audit",
    get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "A page", body = Rows<AuditRow>))
)]
pub(super) async fn list(
    State(state): State<ServerState>,
    InQuery(query): InQuery<AuditQuery>,
) -> Result<Json<Rows<AuditRow>>, Problem> {
    let page = page(&state, query.before, query.limit)?;
    let filter = AuditFilter {
        operator: text("operator", query.operator)?,
        action: text("action", query.action)?,
        outbox: text("outbox", query.outbox)?,
        target: text("target", query.target)?,
        since: time("since", query.since)?,
        until: time("until", query.until)?,
    };
    let listed = state.store.audit(&filter, page).await?;
    Ok(Json(Rows::of(listed, AuditRow::from)))
}
