//! What an answer means.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use postrider::limits;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::sink::{Cause, Outcome};

/// Bytes of an answer's body that are kept for the dead letter.
const DETAIL_BYTES_MAX: usize = 4_096;
/// Bytes of a successful answer's body that are read to keep the connection, and the answer.
const BODY_BYTES_MAX: usize = limits::RESPONSE_BYTES_MAX;

/// An answer, read as far as it is of interest.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The beginning of the body; empty for a success.
    pub(crate) body: String,
    /// The whole body of a success, where it is wanted and not too long.
    pub(super) kept: Option<Vec<u8>>,
}

impl Answer {
    pub(super) async fn read(mut response: Response, keep: bool) -> Self {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        if !status.is_success() {
            let body = body_start(&mut response, DETAIL_BYTES_MAX).await.0;
            let body = String::from_utf8_lossy(&body).into_owned();
            return Self { status, headers, body, kept: None };
        }
        // Read in any case, so that the connection can be used again; a large one is cheaper to cut
        // off.
        let kept = match keep {
            true => Some(body_start(&mut response, BODY_BYTES_MAX).await),
            false => {
                skip_body(&mut response, BODY_BYTES_MAX).await;
                None
            }
        };
        let kept = kept.and_then(|(body, is_whole)| is_whole.then_some(body));
        Self { status, headers, body: String::new(), kept }
    }

    /// The wait that it asks for by `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        asked_wait(&self.headers)
    }

    /// By the table of the specification.
    pub(crate) fn outcome(self, asked: Option<Duration>) -> Outcome {
        if self.status.is_success() {
            return Outcome::Delivered;
        }
        let error = format!("HTTP {}", self.status);
        let (retry_after, cause) = (asked, Cause::Unknown);
        let down = |error, credentials| Outcome::Down { error, retry_after, credentials, cause };
        match meaning(self.status) {
            Meaning::Rejected => {
                Outcome::Rejected { error, detail: Some(self.body).filter(|text| !text.is_empty()) }
            }
            Meaning::Retry => Outcome::Retry { error },
            Meaning::Down => down(error, false),
            Meaning::Credentials => down(error, true),
        }
    }
}

/// The wait that headers ask for by `Retry-After`.
pub(crate) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, Utc::now())
}

/// Of an answer that is no success.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Rejected,
    Retry,
    Down,
    Credentials,
}

pub(crate) fn meaning(status: StatusCode) -> Meaning {
    match status.as_u16() {
        400 | 409 | 410 | 413 | 415 | 422 => Meaning::Rejected,
        401 | 403 | 407 => Meaning::Credentials,
        408 | 425 | 429 | 500..=599 => Meaning::Down,
        _ => Meaning::Retry,
    }
}

/// So many bytes of the body at most, and whether that is all of it.
async fn body_start(answer: &mut Response, bytes_max: usize) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (body, true),
            // Half a body.
            Err(_) => return (body, false),
        }
        if body.len() > bytes_max {
            body.truncate(bytes_max);
            return (body, false);
        }
    }
}

async fn skip_body(answer: &mut Response, bytes_max: usize) {
    let mut skipped = 0;
    while let Ok(Some(chunk)) = answer.chunk().await {
        skipped += chunk.len();
        if skipped > bytes_max {
            return;
        }
    }
}

/// Seconds, or a date.
fn retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = http_date(text.trim(), now)?;
    Some((at - now).to_std().unwrap_or(Duration::ZERO))
}

/// A date in one of the three forms of RFC 9110, 5.6.7. The two old ones are obsolete and must still
/// be understood.
fn http_date(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(at) = DateTime::parse_from_rfc2822(text) {
        return Some(at.to_utc());
    }
    // Without the day of the week: a year of two digits may make it another one.
    let (_, date) = text.split_once(' ')?;
    if let Ok(at) = NaiveDateTime::parse_from_str(date, "%d-%b-%y %H:%M:%S GMT") {
        // More than 50 years ahead means the century before.
        let is_past = at.year() > now.year() + 50;
        let at = if is_past { at.with_year(at.year() - 100)? } else { at };
        return Some(at.and_utc());
    }
    NaiveDateTime::parse_from_str(date, "%b %e %H:%M:%S %Y").ok().map(|at| at.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_the_specification_says() {
        for (codes, wanted) in [
            (&[400, 409, 410, 413, 415, 422][..], Meaning::Rejected),
            (&[404, 402, 405, 418, 451, 301, 302, 304], Meaning::Retry),
            (&[408, 425, 429, 500, 502, 503, 504, 599], Meaning::Down),
            (&[401, 403, 407], Meaning::Credentials),
        ] {
            for code in codes {
                let status = StatusCode::from_u16(*code).unwrap();
                assert_eq!(meaning(status), wanted, "{code}");
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        let date = "Thu, 01 Jan 2026 00:01:30 GMT";
        assert_eq!(retry_after(date, now), Some(Duration::from_secs(90)));
        assert_eq!(retry_after("Wed, 31 Dec 2025 00:00:00 GMT", now), Some(Duration::ZERO));
        for date in ["Thursday, 01-Jan-26 00:01:30 GMT", "Thu Jan  1 00:01:30 2026"] {
            assert_eq!(retry_after(date, now), Some(Duration::from_secs(90)), "{date}");
        }
        for past in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(retry_after(past, now), Some(Duration::ZERO), "{past}");
        }
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("Thursday, soon", now), None);
    }
}
