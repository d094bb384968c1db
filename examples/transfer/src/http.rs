//! The endpoints. A refusal is returned as a problem document (RFC 9457).

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::bank::{self, Bank, Receipt, Refusal, Transfer};
use crate::{Outcome, Settings};

/// Serves until stopped.
pub(crate) async fn run(settings: Settings, stop: CancellationToken) -> Outcome {
    // The store creates the tables of the outbox, and the file if it is missing.
    drop(bank::store(&settings.database_url).await?);
    let bank = Bank::connect(&settings.database_url).await?;
    let routes = Router::new()
        .route("/accounts", post(open_account))
        .route("/transfers", post(transfer))
        .with_state(bank);
    let listener = TcpListener::bind(&settings.listen).await?;
    tracing::info!("serving http://{}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewAccount {
    id: String,
    balance: i64,
}

async fn open_account(State(bank): State<Bank>, body: Bytes) -> Result<StatusCode, Refusal> {
    let account: NewAccount = read(&body)?;
    bank.open(&account.id, account.balance).await?;
    Ok(StatusCode::CREATED)
}

async fn transfer(State(bank): State<Bank>, body: Bytes) -> Result<Json<Receipt>, Refusal> {
    let transfer: Transfer = read(&body)?;
    Ok(Json(bank.transfer(&transfer).await?))
}

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
            Self::UnknownAccount(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) | Self::AccountExists(_) => StatusCode::CONFLICT,
            Self::Insufficient { .. } | Self::Overflow(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Append(_) | Self::Database(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        // Database errors go to the log; the caller only learns that repeating is safe.
        let detail = match status.is_server_error() {
            true => {
                tracing::error!(error = %self, "a request failed");
                "the transfer was not confirmed; repeat it with the same request_id".to_owned()
            }
            false => self.to_string(),
        };
        let title = status.canonical_reason();
        let problem = json!({ "title": title, "status": status.as_u16(), "detail": detail });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (status, kind, problem.to_string()).into_response()
    }
}
