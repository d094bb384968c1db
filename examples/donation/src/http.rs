//! The endpoints. A refusal is returned as a problem document (RFC 9457).

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use postrider_relay::Waker;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::donation::{Donation, Member, Receipt, Refusal};
use crate::ledger::Ledger;

/// Maximum number of history entries in one answer.
const HISTORY_MAX: u32 = 1_000;

#[derive(Clone)]
struct Service {
    ledger: Ledger,
    waker: Waker,
}

pub(crate) fn router(ledger: Ledger, waker: Waker) -> Router {
    Router::new()
        .route("/members", post(add_member))
        .route("/members/{id}", get(show_member))
        .route("/donations", post(donate).get(history))
        .with_state(Service { ledger, waker })
}

async fn add_member(State(service): State<Service>, body: Bytes) -> Result<Response, Refusal> {
    let member: Member = read(&body)?;
    service.ledger.add(&member).await?;
    Ok((StatusCode::CREATED, Json(member)).into_response())
}

async fn show_member(
    State(service): State<Service>,
    Path(id): Path<String>,
) -> Result<Json<Member>, Refusal> {
    let found = service.ledger.member(&id).await?;
    found.map(Json).ok_or(Refusal::UnknownGuest(id))
}

/// Donates. A repeated request gets the same answer; a header shows that it was a repeat.
async fn donate(State(service): State<Service>, body: Bytes) -> Result<Response, Refusal> {
    let donation: Donation = read(&body)?;
    let donated = service.ledger.donate(&donation).await?;
    if !donated.repeated {
        service.waker.wake();
    }
    let repeated = [("idempotency-replayed", donated.repeated.to_string())];
    Ok((repeated, Json(donated.receipt)).into_response())
}

#[derive(Debug, Deserialize)]
struct HistoryQuery {
    guest: Option<String>,
    limit: Option<u32>,
}

async fn history(
    State(service): State<Service>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Json<Vec<Receipt>>, Refusal> {
    let Query(query) = query.map_err(|error| Refusal::Malformed(error.body_text()))?;
    let limit = query.limit.unwrap_or(50).min(HISTORY_MAX);
    Ok(Json(service.ledger.history(query.guest.as_deref(), limit).await?))
}

/// Parses a body. The error names the wrong field: a number with a fraction, a text instead of a
/// number, a missing one.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let error = error.to_string().replace("expected i64", "expected a whole number");
        Refusal::Malformed(format!("the body is not what is expected: {error}"))
    })
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::UnknownAdmin => StatusCode::FORBIDDEN,
            Self::UnknownGuest(_) => StatusCode::NOT_FOUND,
            Self::MemberExists(_) | Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Insufficient { .. } | Self::Overflow(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Locked(error) if !error.is_transient() => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Locked(_) | Self::Append(_) | Self::Database(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        // Database errors go to the log; the caller only learns that repeating is safe.
        let detail = match status.is_server_error() {
            true => {
                tracing::error!(error = %self, "a request failed");
                "the donation was not confirmed; repeat it with the same request_id".to_owned()
            }
            false => self.to_string(),
        };
        let problem = json!({
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
        });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, problem.to_string()).into_response();
        if status.is_server_error() {
            response.headers_mut().insert(header::RETRY_AFTER, 1.into());
        }
        response
    }
}
