//! What a caller gets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    AGE, ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, VIA,
};
use http::{Response, StatusCode};
use serde_json::json;

use super::answer::Answer;
use super::upstream::VIA_US;

/// Where an answer comes from.
const CACHE_HEADER: HeaderName = HeaderName::from_static("postrider-cache");

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From the upstream, just now.
    Upstream,
    /// From the cache.
    Cache,
    /// From the cache, older than it should be, because the upstream is down.
    Stale,
}

/// What a caller gets.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer of the upstream.
    Answer {
        /// What it said.
        answer: Arc<Answer>,
        /// How it got here.
        source: Source,
    },
    /// There is none.
    Problem(Problem),
}

/// Why there is no answer; as a problem document (RFC 9457) for those who ask over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Status.
    pub status: StatusCode,
    /// Cause and cure.
    pub detail: String,
    /// Whether the call was saved and will be repeated; `None` where that is no question.
    pub saved: Option<bool>,
    /// When to come back.
    pub retry_after: Option<Duration>,
    /// The methods that there are.
    pub allow: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), saved: None, retry_after: None, allow: None }
    }

    fn into_response(self) -> Response<Bytes> {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let mut body =
            json!({ "title": title, "status": self.status.as_u16(), "detail": self.detail });
        if let Some(saved) = self.saved {
            body["saved"] = saved.into();
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if let Some(allow) = self.allow.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl Reply {
    /// As an answer over HTTP. The header `postrider-cache` says `hit`, `miss` or `stale`.
    pub fn into_response(self) -> Response<Bytes> {
        let (answer, source) = match self {
            Self::Problem(problem) => return problem.into_response(),
            Self::Answer { answer, source } => (answer, source),
        };
        let word = match source {
            Source::Upstream => "miss",
            Source::Cache => "hit",
            Source::Stale => "stale",
        };
        let mut headers: HeaderMap = answer.headers.clone();
        headers.insert(CACHE_HEADER, HeaderValue::from_static(word));
        headers.insert(VIA, HeaderValue::from_static(VIA_US));
        if source != Source::Upstream {
            headers.insert(AGE, HeaderValue::from(answer.age_s()));
        }
        let mut response = Response::new(answer.body.clone());
        (*response.status_mut(), *response.headers_mut()) = (answer.status, headers);
        response
    }
}
