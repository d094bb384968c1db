//! Interprets HTTP responses.

use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};
use postrider::limits;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::outcome::{Cause, Outcome};

/// Maximum bytes of a response body that are kept for the dead letter.
const DETAIL_BYTES_MAX: usize = 4_096;
/// Maximum bytes of a successful response body that are read, to reuse the connection and to keep
/// the answer.
const BODY_BYTES_MAX: usize = limits::RESPONSE_BYTES_MAX;

/// A response, read as far as needed.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The beginning of the body; empty for a success.
    pub(crate) body: String,
    /// The whole body of a success, if it is wanted and not too long.
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
        // Read in any case, so that the connection can be reused; a large body is cheaper to cut
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

    /// Returns the wait that it asks for by `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        asked_wait(&self.headers)
    }

    /// Returns the outcome, by the table of the specification.
    pub(crate) fn outcome(self, asked: Option<Duration>) -> Outcome {
        if self.status.is_success() {
            return Outcome::Delivered;
        }
        let error = format!("HTTP {}", self.status);
        // A wait that the destination asks for applies to all calls, not to this event.
        let asks_to_wait = asked.is_some() || self.status == StatusCode::TOO_MANY_REQUESTS;
        let cause = if asks_to_wait { Cause::Destination } else { Cause::Unknown };
        let retry_after = asked;
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

/// Returns the wait that headers ask for by `Retry-After`.
pub(crate) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, Utc::now())
}

/// The meaning of a response that is not a success.
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

/// Reads at most `bytes_max` bytes of the body. Returns whether that is all of it.
async fn body_start(answer: &mut Response, bytes_max: usize) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (body, true),
            // The body is incomplete.
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

/// Parses seconds or a date. Seconds beyond what a number holds are the longest wait: whoever
/// obeys one limits it anyway.
fn retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let at = http_date(text, now)?;
    Some((at - now).to_std().unwrap_or(Duration::ZERO))
}

/// Parses a date in one of the three forms of RFC 9110, 5.6.7. The two old ones are obsolete but
/// must still be understood.
fn http_date(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if let Ok(at) = DateTime::parse_from_rfc2822(text) {
        return Some(at.to_utc());
    }
    // Without the day of the week: a year of two digits may result in a different one.
    let (_, date) = text.split_once(' ')?;
    if let Ok(at) = NaiveDateTime::parse_from_str(date, "%d-%b-%y %H:%M:%S GMT") {
        // The year with these two digits that is at most 50 years ahead.
        let last = now.year() + 50;
        let year = last - (last - at.year()).rem_euclid(100);
        return Some(at.with_year(year)?.and_utc());
    }
    NaiveDateTime::parse_from_str(date, "%b %e %H:%M:%S %Y").ok().map(|at| at.and_utc())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::HeaderValue;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz;
    use crate::outcome::RETRY_AFTER_MAX;

    /// Under a rate limit other events are accepted all the time; an event must not spend an
    /// attempt for that.
    #[test]
    fn an_answer_that_asks_to_wait_is_about_the_destination() {
        let wait = Some(Duration::from_secs(1));
        for (code, asked, wanted) in [
            (429, None, Cause::Destination),
            (503, wait, Cause::Destination),
            (503, None, Cause::Unknown),
        ] {
            let status = StatusCode::from_u16(code).unwrap();
            let answer =
                Answer { status, headers: HeaderMap::new(), body: String::new(), kept: None };
            let outcome = answer.outcome(asked);
            let is_wanted = matches!(outcome, Outcome::Down { cause, .. } if cause == wanted);
            assert!(is_wanted, "{code}: {outcome:?}");
        }
    }

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
        let far = "Thursday, 01-Jan-70 00:00:00 GMT";
        assert_eq!(retry_after(far, now), Some(Duration::from_secs(1_388_534_400)), "2070");
        assert_eq!(retry_after(&"9".repeat(40), now), Some(Duration::from_secs(u64::MAX)));
        for wrong in ["soon", "", "+5", "-5", "5s", "٥"] {
            assert_eq!(retry_after(wrong, now), None, "{wrong}");
        }
        assert_eq!(retry_after("Thursday, soon", now), None);
    }

    /// Generates responses with any status, and a header and a body of any bytes.
    fn answers() -> impl Strategy<Value = (u16, Vec<u8>, Vec<u8>)> {
        let second = 0..4_000_000_000_i64;
        let forms =
            ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
        let date = (second, select(forms.to_vec())).prop_map(|(second, form)| {
            let at = DateTime::from_timestamp(second, 0).unwrap_or_default();
            at.format(form).to_string().into_bytes()
        });
        let number = any::<u64>().prop_map(|number| number.to_string().into_bytes());
        let sound = prop_oneof![date, number];
        let asked = prop_oneof![2 => sound.clone(), 1 => fuzz::damaged(sound)];
        let body = prop_oneof![
            vec(any::<u8>(), 0..64),
            (any::<u8>(), 0..3 * DETAIL_BYTES_MAX).prop_map(|(byte, count)| vec![byte; count]),
        ];
        (100..1_000_u16, asked, body)
    }

    proptest! {
        /// Few bytes of a response are kept, whatever its status, and no text in `Retry-After`
        /// results in a wait that cannot be added to the current time.
        #[test]
        fn fuzz_answers((status, asked, body) in answers()) {
            let mut response = http::Response::builder().status(status);
            if let Ok(value) = HeaderValue::from_bytes(&asked) {
                response = response.header(RETRY_AFTER, value);
            }
            let response = Response::from(response.body(body.clone()).unwrap());
            let answer = Answer::read(response, true).now_or_never().unwrap();
            let wait = answer.retry_after();
            let kept = answer.kept.as_ref().map(Vec::len);
            prop_assert!(answer.body.chars().count() <= DETAIL_BYTES_MAX);
            let is_success = (200..300).contains(&status);
            prop_assert_eq!(kept, is_success.then_some(body.len()));
            let begun = &body[..body.len().min(DETAIL_BYTES_MAX)];
            prop_assert!(is_success || answer.body == String::from_utf8_lossy(begun));
            let outcome = answer.outcome(wait);
            prop_assert_eq!(matches!(outcome, Outcome::Delivered), is_success);
            if let Outcome::Down { retry_after, .. } = outcome {
                prop_assert_eq!(retry_after, wait);
                let bounded = wait.unwrap_or_default().min(RETRY_AFTER_MAX);
                prop_assert!(tokio::time::Instant::now().checked_add(bounded).is_some());
            }
        }

        /// A date means the same in each of its forms, for up to 50 years ahead.
        #[test]
        fn fuzz_answers_with_dates(ahead_s in 0..1_500_000_000_i64) {
            let now: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
            let at = now + chrono::Duration::seconds(ahead_s);
            for form in
                ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
            {
                let text = at.format(form).to_string();
                let wait = u64::try_from(ahead_s).map(Duration::from_secs).ok();
                prop_assert_eq!(retry_after(&text, now), wait, "{}", text);
            }
        }
    }
}
