//! Errors as problem documents (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postrider_store::StoreError;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// What went wrong, and what to do about it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The status in words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// Cause and fix, for people.
    detail: String,
    /// More about this problem, for programs.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    more: Box<Map<String, Value>>,
    #[serde(skip)]
    #[schema(ignore)]
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: u16, detail: impl Into<String>) -> Self {
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self {
            title: code.canonical_reason().unwrap_or("Error"),
            status: code.as_u16(),
            detail: detail.into(),
            more: Box::default(),
            retry_after: None,
        }
    }

    /// Adds a field for programs.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Adds the time after which the client may try again.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::json!(self).to_string();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"postrider\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Logs the database's error and leaves it out of the answer: it may name hosts and users.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(why) => Self::new(409, why),
            error if error.is_transient() => {
                tracing::warn!(%error, "a request failed");
                let detail = "the database does not answer right now; repeat the request";
                Self::new(503, detail).retry_after(1)
            }
            error => {
                tracing::error!(%error, "a request failed");
                Self::new(500, "the database refused; the log of the server has its words")
            }
        }
    }
}
