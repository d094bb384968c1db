//! Replies to callers.

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

/// Header that says where an answer comes from.
const CACHE_HEADER: HeaderName = HeaderName::from_static("postrider-cache");

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From the upstream, just now.
    Upstream,
    /// From the cache.
    Cache,
    /// From the cache, past its time to live, because the upstream is down.
    Stale,
}

/// A reply to a caller.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer of the upstream.
    Answer {
        /// The answer.
        answer: Arc<Answer>,
        /// Where it comes from.
        source: Source,
    },
    /// There is no answer.
    Problem(Problem),
}

/// Why there is no answer; over HTTP, a problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Status.
    pub status: StatusCode,
    /// The cause, and what to do.
    pub detail: String,
    /// Whether the call was saved and will be repeated; `None` if that does not apply.
    pub saved: Option<bool>,
    /// When to retry.
    pub retry_after: Option<Duration>,
    /// The allowed methods.
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
    /// Converts the reply into an HTTP response. The header `postrider-cache` is `hit`, `miss` or
    /// `stale`.
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
