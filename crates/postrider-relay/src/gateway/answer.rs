//! An answer of the upstream, as callers get it and the cache keeps it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH,
};
use serde::{Deserialize, Serialize};

/// Headers of an answer without a body for a caller that already has it (RFC 9110, 15.4.5).
const OF_NOT_MODIFIED: [&str; 6] =
    ["cache-control", "content-location", "date", "etag", "expires", "vary"];
/// Digits of the time at the start of a cached answer.
pub(crate) const TIME_DIGITS: usize = 16;

/// An answer of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers that are passed on to callers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// When it was requested, in milliseconds since 1970: of two answers, the one requested later
    /// is newer.
    pub(crate) asked_at_ms: u64,
    /// Whether the upstream allows the answer to be shared with other callers.
    pub(crate) may_be_shared: bool,
}

/// The part of a cached answer before its body.
#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    /// Values as Latin-1: one character per byte.
    headers: Vec<(String, String)>,
    kept_for_ms: u64,
}

impl Answer {
    pub(crate) fn new(
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
        asked_at_ms: u64,
    ) -> Self {
        Self { status, headers, body, asked_at_ms, may_be_shared: true }
    }

    /// Returns the bytes that it takes in a cache.
    pub(crate) fn weight_bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        self.body.len() + headers.sum::<usize>() + 128
    }

    /// Returns the whole seconds since it was requested.
    pub(crate) fn age_s(&self) -> u64 {
        now_ms().saturating_sub(self.asked_at_ms) / 1_000
    }

    /// Returns whether a caller who sent these headers already has the answer. Entity tags are
    /// compared weakly.
    pub(crate) fn is_known_to(&self, asked: &HeaderMap) -> bool {
        let own = self.headers.get(ETAG).and_then(|tag| tag.to_str().ok());
        let own = own.and_then(|tag| opaque_tags(tag).next());
        let mut known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        self.status == StatusCode::OK
            && known.any(|tags| {
                tags.trim() == "*" || own.is_some_and(|own| opaque_tags(tags).any(|tag| tag == own))
            })
    }

    /// Returns the answer for a caller that already has it.
    pub(crate) fn not_modified(&self) -> Self {
        let headers = self.headers.iter();
        let headers = headers.filter(|(name, _)| OF_NOT_MODIFIED.contains(&name.as_str()));
        let headers = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { headers, status: StatusCode::NOT_MODIFIED, body: Bytes::new(), ..self.clone() }
    }

    /// Serialises time, head and body, for a cache that keeps them for `kept_for`.
    pub(crate) fn to_bytes(&self, kept_for: Duration) -> Vec<u8> {
        let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value)));
        let head = Head {
            status: self.status.as_u16(),
            headers: headers.collect(),
            kept_for_ms: u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX),
        };
        let head = serde_json::to_string(&head).unwrap_or_default();
        let mut bytes = format!("{:0TIME_DIGITS$}{head}\n", self.asked_at_ms).into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Parses an answer and for how long it was to be kept. `None` if the bytes were not written by
    /// this version.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Option<(Self, Duration)> {
        let bytes = Bytes::from(bytes);
        let asked_at_ms = std::str::from_utf8(bytes.get(..TIME_DIGITS)?).ok()?.parse().ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(bytes.get(TIME_DIGITS..end)?).ok()?;
        let value = |text: &String| {
            let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
            HeaderValue::from_bytes(&bytes?).ok()
        };
        let headers = head.headers.iter();
        let headers = headers
            .filter_map(|(name, text)| Some((HeaderName::try_from(name).ok()?, value(text)?)));
        let status = StatusCode::from_u16(head.status).ok()?;
        let answer = Self::new(status, headers.collect(), bytes.slice(end + 1..), asked_at_ms);
        Some((answer, Duration::from_millis(head.kept_for_ms)))
    }
}

/// Returns the headers that callers get. An answer to `HEAD` keeps the length of the body that it
/// does not have; for any other, the length is computed when it is sent.
pub(super) fn passed_on(headers: &HeaderMap, allowed: &[HeaderName], is_head: bool) -> HeaderMap {
    let of_connection = named_by_connection(headers);
    let is_passed_on = |name: &HeaderName| {
        (allowed.contains(name) || (is_head && name == CONTENT_LENGTH))
            && !of_connection.contains(name)
    };
    let kept = headers.iter().filter(|(name, _)| is_passed_on(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the headers that belong to one connection because `Connection` names them (RFC 9110,
/// 7.6.1).
pub(super) fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = list(headers, CONNECTION);
    names.iter().filter_map(|name| HeaderName::try_from(name.as_str()).ok()).collect()
}

/// Returns whether the upstream allows an answer with these headers to be shared with other
/// callers.
pub(super) fn may_be_shared(headers: &HeaderMap) -> bool {
    !list(headers, CACHE_CONTROL).iter().any(|rule| {
        let name = rule.split('=').next().unwrap_or_default();
        name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("private")
    })
}

/// Returns the members of a list header. A member with bytes that are not ASCII does not hide the
/// others.
fn list(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    texts
        .flat_map(|text| text.split(',').map(|m| m.trim().to_owned()).collect::<Vec<_>>())
        .collect()
}

/// Returns the quoted parts of entity tags, which contain no quotes: what a weak comparison
/// compares.
fn opaque_tags(tags: &str) -> impl Iterator<Item = &str> {
    tags.split('"').skip(1).step_by(2)
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn headers(headers: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static [u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        headers.iter().map(header).collect()
    }

    fn answer(named: &[(&'static str, &'static [u8])]) -> Answer {
        let body = Bytes::from_static(b"a\n\xff\0b");
        Answer::new(StatusCode::OK, headers(named), body, 1_750_000_000_000)
    }

    #[test]
    fn an_answer_survives_the_cache_whatever_its_headers_hold() {
        let kept = answer(&[("content-type", b"x/y"), ("link", b"<\xe9>"), ("link", b"\xc3\xa9")]);
        let minute = Duration::from_secs(60);
        assert_eq!(Answer::from_bytes(kept.to_bytes(minute)), Some((kept, minute)));
        for broken in [&b""[..], b"x", b"0000000000000001{}\nbody", b"no time at all {}\n"] {
            assert_eq!(Answer::from_bytes(broken.to_vec()), None, "{broken:?}");
        }
    }

    #[test]
    fn only_headers_on_the_list_are_passed_on() {
        let answer = headers(&[
            ("content-type", b"x/y"),
            ("set-cookie", b"a=b"),
            ("content-length", b"7"),
            ("etag", b"\"1\""),
            ("connection", b"close, ETag"),
        ]);
        let allowed = [HeaderName::from_static("content-type"), ETAG];
        assert_eq!(passed_on(&answer, &allowed, false), headers(&[("content-type", b"x/y")]));
        let of_head = headers(&[("content-type", b"x/y"), ("content-length", b"7")]);
        assert_eq!(passed_on(&answer, &allowed, true), of_head);
        let odd = headers(&[("etag", b"\"1\""), ("connection", b"\xe9, etag")]);
        assert_eq!(passed_on(&odd, &allowed, false), HeaderMap::new());
    }

    #[test]
    fn an_answer_for_one_caller_is_not_shared() {
        let shared = |rules| may_be_shared(&headers(&[("cache-control", rules)]));
        assert!(may_be_shared(&HeaderMap::new()) && shared(b"public, max-age=0"));
        assert!(!shared(b"max-age=0, No-Store") && !shared(b"private=\"x\""));
        assert!(!shared(b"no-store, x=\"\xe9\""), "bytes that are not ASCII hide nothing");
    }

    #[test]
    fn a_caller_has_an_answer_whose_tag_is_among_his() {
        let tagged = answer(&[("etag", b"W/\"a,b\"")]);
        let has = |tags| tagged.is_known_to(&headers(&[("if-none-match", tags)]));
        assert!(has(b"\"a,b\"") && has(b"W/\"a,b\"") && has(b"\"x\", W/\"a,b\"") && has(b"*"));
        assert!(!has(b"\"a\"") && !has(b"") && !has(b"a,b") && !has(b"\"x\", \"y\""));
        assert!(!tagged.is_known_to(&HeaderMap::new()));
        assert!(!answer(&[]).is_known_to(&headers(&[("if-none-match", b"\"a,b\"")])));
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let value = vec(any::<u8>(), 0..6)
            .prop_filter_map("a header's value", |bytes| HeaderValue::from_bytes(&bytes).ok());
        let name = "[a-z]{1,4}".prop_map(|name| HeaderName::try_from(name).unwrap());
        let headers = vec((name, value), 0..4);
        (100..1_000_u16, headers, vec(any::<u8>(), 0..32), 0..10_u64.pow(15)).prop_map(
            |(status, headers, body, at)| {
                let status = StatusCode::from_u16(status).unwrap();
                Answer::new(status, headers.into_iter().collect(), body.into(), at)
            },
        )
    }

    proptest! {
        /// An answer is read back from the cache unchanged. Other bytes yield no answer, or one
        /// that can be sent.
        #[test]
        fn fuzz_gateway_answers(
            answer in answers(),
            kept_for_ms in any::<u64>(),
            edits in vec(fuzz::edit(), 1..4),
        ) {
            let kept_for = Duration::from_millis(kept_for_ms);
            let mut bytes = answer.to_bytes(kept_for);
            prop_assert_eq!(Answer::from_bytes(bytes.clone()), Some((answer, kept_for)));
            edits.iter().for_each(|edit| edit.apply(&mut bytes));
            let length = bytes.len();
            if let Some((read, kept_for)) = Answer::from_bytes(bytes) {
                prop_assert!(read.body.len() < length);
                let again = Answer::from_bytes(read.to_bytes(kept_for));
                prop_assert_eq!(again, Some((read, kept_for)));
            }
        }

        /// No bytes in `Connection` or `Cache-Control` hide their other members.
        #[test]
        fn fuzz_gateway_answer_headers(
            connection in vec(fuzz::name(), 0..4),
            rules in fuzz::damaged(Just(b"public, max-age=60, no-store".to_vec())),
        ) {
            let mut own = headers(&[("a", b"1"), ("b", b"2"), ("secret", b"3")]);
            if let Ok(value) = HeaderValue::try_from(connection.join(", ")) {
                own.insert(CONNECTION, value);
            }
            if let Ok(value) = HeaderValue::from_bytes(&rules) {
                own.insert(CACHE_CONTROL, value);
            }
            let allowed = [HeaderName::from_static("a"), HeaderName::from_static("b")];
            let passed = passed_on(&own, &allowed, false);
            prop_assert!(passed.keys().all(|name| allowed.contains(name)));
            if own.contains_key(CONNECTION) {
                let listed = connection.iter().flat_map(|names| names.split(','));
                for name in listed.map(str::trim) {
                    prop_assert!(!allowed.iter().any(|a| a.as_str().eq_ignore_ascii_case(name))
                        || !passed.contains_key(name));
                }
            }
            let text = String::from_utf8_lossy(&rules).to_ascii_lowercase();
            let forbids = text.split(',').any(|rule| rule.trim() == "no-store");
            prop_assert!(!forbids || !own.contains_key(CACHE_CONTROL) || !may_be_shared(&own));
        }
    }
}
