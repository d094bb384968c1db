//! An answer of the upstream, as it is given to callers and kept in the cache.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// Headers that belong to one connection, to one caller, or to the page of another origin: they are
/// of no use to the callers of a gateway, or would give the upstream a say over them.
const NOT_KEPT: [&str; 19] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "set-cookie",
    "set-cookie2",
    "clear-site-data",
    "strict-transport-security",
    "alt-svc",
    "content-security-policy",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "service-worker-allowed",
    "age",
];
/// Digits of the time that a kept answer begins with.
pub(crate) const TIME_DIGITS: usize = 16;

/// What the upstream said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers, without those that belong to one connection or one caller.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// When it was asked for, in milliseconds since 1970: of two answers, the one asked for later is
    /// the newer one.
    pub(crate) asked_at_ms: u64,
}

/// What precedes the body of a kept answer.
#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Answer {
    pub(crate) fn new(
        status: StatusCode,
        mut headers: HeaderMap,
        body: Bytes,
        asked_at_ms: u64,
    ) -> Self {
        for name in NOT_KEPT {
            headers.remove(name);
        }
        Self { status, headers, body, asked_at_ms }
    }

    /// Bytes that it takes in a cache.
    pub(crate) fn weight_bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        self.body.len() + headers.sum::<usize>() + 128
    }

    /// Whether the upstream lets others than the caller have it.
    pub(crate) fn may_be_shared(&self) -> bool {
        let rules = self.headers.get_all(CACHE_CONTROL).iter();
        let rules = rules.filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(','));
        !rules.map(str::trim).any(|rule| {
            let name = rule.split('=').next().unwrap_or_default();
            name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("private")
        })
    }

    /// Whole seconds since it was asked for.
    pub(crate) fn age_s(&self) -> u64 {
        now_ms().saturating_sub(self.asked_at_ms) / 1_000
    }

    /// Time, head and body, for a cache that keeps bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let text = |value: &HeaderValue| value.to_str().map(str::to_owned).ok();
        let headers = self.headers.iter();
        let headers = headers
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)))
            .collect();
        let head = Head { status: self.status.as_u16(), headers };
        let head = serde_json::to_string(&head).unwrap_or_default();
        let mut bytes = format!("{:0TIME_DIGITS$}{head}\n", self.asked_at_ms).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// `None` if it is no answer that this version wrote.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Bytes::from(bytes);
        let asked_at_ms = std::str::from_utf8(bytes.get(..TIME_DIGITS)?).ok()?.parse().ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(bytes.get(TIME_DIGITS..end)?).ok()?;
        let headers = head.headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        Some(Self {
            status: StatusCode::from_u16(head.status).ok()?,
            headers: headers.collect(),
            body: bytes.slice(end + 1..),
            asked_at_ms,
        })
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &[(&'static str, &'static str)]) -> Answer {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers = headers.iter().map(header).collect();
        Answer::new(StatusCode::OK, headers, Bytes::from_static(b"a\n\xff\0b"), 1_750_000_000_000)
    }

    #[test]
    fn an_answer_survives_the_cache_without_what_belongs_to_one_caller() {
        let kept = answer(&[("content-type", "x/y"), ("set-cookie", "a=b"), ("etag", "\"1\"")]);
        let again = Answer::from_bytes(kept.to_bytes()).unwrap();
        assert_eq!(again, kept);
        assert_eq!(again.headers.len(), 2);
        for broken in [&b""[..], b"x", b"0000000000000001{}\nbody", b"no time at all {}\n"] {
            assert_eq!(Answer::from_bytes(broken.to_vec()), None, "{broken:?}");
        }
    }

    #[test]
    fn an_answer_for_one_caller_is_not_shared() {
        assert!(answer(&[]).may_be_shared());
        assert!(answer(&[("cache-control", "public, max-age=0")]).may_be_shared());
        assert!(!answer(&[("cache-control", "max-age=0, No-Store")]).may_be_shared());
        assert!(!answer(&[("cache-control", "private=\"x\"")]).may_be_shared());
    }
}
