//! A call to the upstream: its identity, and how it is saved and read back.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use postrider::{NewEvent, limits};
use postrider_store::Event;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::sinks::http::dot_segments;

/// Maximum bytes of path and query.
const TARGET_BYTES_MAX: usize = 8_192;

/// Why a path is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed path: {0}")]
pub struct MalformedPath(&'static str);

/// A request to the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    method: Method,
    target: String,
    headers: BTreeMap<String, String>,
    idempotency_key: Option<String>,
    body: Bytes,
}

/// Identity of a call: two calls with the same key are the same call and share an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Call {
    /// Creates a call without a body. `target` is the path and query below the URL of the upstream,
    /// percent-encoded: `/character/42?world=1`.
    ///
    /// # Errors
    /// If the target is not a valid path, or would lead outside of the upstream's URL.
    pub fn new(method: Method, target: impl Into<String>) -> Result<Self, MalformedPath> {
        let target = target.into();
        check_target(&target)?;
        let (headers, idempotency_key, body) = (BTreeMap::new(), None, Bytes::new());
        Ok(Self { method, target, headers, idempotency_key, body })
    }

    /// Same as [`Call::new`], with the method `GET`.
    ///
    /// # Errors
    /// Same as [`Call::new`].
    pub fn get(target: impl Into<String>) -> Result<Self, MalformedPath> {
        Self::new(Method::GET, target)
    }

    /// Adds a header. It is stored with the call, so credentials belong in the settings instead.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.insert(name.to_ascii_lowercase(), value.into());
        self
    }

    /// Sets an idempotency key, which makes it safe to repeat a call that changes something: the
    /// upstream recognises the repeat.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Returns whether the call changes nothing at the upstream.
    pub(crate) fn is_safe(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Returns whether the call replaces the state of its target, so that the last one wins. `POST`
    /// calls add up.
    pub(crate) fn overwrites(&self) -> bool {
        matches!(self.method, Method::PUT | Method::PATCH | Method::DELETE)
    }

    /// Returns whether the call may be made more than once, so that it can be saved, shared and
    /// answered from the cache.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.is_safe() || self.idempotency_key.is_some()
    }

    /// Returns the headers, including the idempotency key.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let key = self.idempotency_key.as_deref().filter(|_| !self.is_safe());
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(key.map(|key| ("idempotency-key", key)))
    }

    /// Returns the headers to send.
    ///
    /// # Errors
    /// Names the header that HTTP cannot carry.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, String> {
        let header = |(name, value): (&str, &str)| {
            let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            parsed.ok_or_else(|| {
                format!("header `{}` has no valid name or value", name.escape_debug())
            })
        };
        self.headers().map(header).collect()
    }

    /// Removes all headers but those to keep; the idempotency key stays.
    pub(crate) fn retain_headers(&mut self, keep: impl Fn(&str) -> bool) {
        self.headers.retain(|name, _| keep(name));
    }

    pub(crate) fn content(&self) -> Bytes {
        self.body.clone()
    }

    pub(crate) fn key(&self) -> Key {
        let call = [self.method.as_str().as_bytes(), self.target.as_bytes(), &self.body];
        let headers = self.headers().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        Key::of_parts(call.into_iter().chain(headers))
    }

    /// Returns a key that all calls of this target share.
    pub(crate) fn target_key(&self) -> Key {
        Key::of_parts([self.target.as_bytes()])
    }

    /// Builds the event that repeats this call: aggregate = upstream and target, type = endpoint,
    /// payload = parameters. Its request id is the call's key, so that a call has only one open
    /// event. `asked_at_ms` is when the caller made the call.
    pub(crate) fn event(&self, gateway: &str, asked_at_ms: u64) -> NewEvent {
        let key = self.key();
        let aggregate_id = shortened(&self.target, limits::AGGREGATE_ID_CHARS_MAX, &key);
        let payload = self.payload(asked_at_ms);
        NewEvent::new(gateway, aggregate_id, self.endpoint(), payload)
            .request_id(key.request_id(gateway))
    }

    /// Serialises the call.
    fn payload(&self, asked_at_ms: u64) -> String {
        let (body, body_base64) = match std::str::from_utf8(&self.body) {
            Ok("") => (None, None),
            Ok(text) if !text.contains('\0') => (Some(text.to_owned()), None),
            _ => (None, Some(STANDARD.encode(&self.body))),
        };
        let saved = SavedCall {
            method: self.method.as_str().to_owned(),
            target: self.target.clone(),
            headers: self.headers.clone(),
            idempotency_key: self.idempotency_key.clone(),
            body,
            body_base64,
            asked_at_ms: self.overwrites().then_some(asked_at_ms),
        };
        // A struct of texts always serialises.
        serde_json::json!(saved).to_string()
    }

    /// Returns the method and the first path segment: there are few of these, however many calls
    /// there are.
    fn endpoint(&self) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        let first = path.split('/').find(|segment| !segment.is_empty()).unwrap_or_default();
        let endpoint = format!("{} /{first}", self.method);
        endpoint.chars().take(limits::EVENT_TYPE_CHARS_MAX).collect()
    }

    /// Reads the call from an event, and when its caller made it.
    ///
    /// # Errors
    /// If the payload is not a call.
    pub(crate) fn of_event(event: &Event) -> Result<(Self, u64), String> {
        let wrong = |error: &dyn std::fmt::Display| format!("the payload is not a call: {error}");
        let saved: SavedCall =
            serde_json::from_str(&event.payload).map_err(|error| wrong(&error))?;
        let method = Method::from_bytes(saved.method.as_bytes()).map_err(|error| wrong(&error))?;
        let body = match (saved.body, saved.body_base64) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text).map_err(|error| wrong(&error))?,
            (None, None) => Vec::new(),
        };
        let call = Self::new(method, saved.target).map_err(|error| wrong(&error))?;
        let (headers, idempotency_key) = (saved.headers, saved.idempotency_key);
        let created_at_ms = u64::try_from(event.created_at.timestamp_millis()).unwrap_or_default();
        let asked_at_ms = saved.asked_at_ms.unwrap_or(created_at_ms);
        Ok((Self { headers, idempotency_key, body: body.into(), ..call }, asked_at_ms))
    }
}

impl Key {
    fn of_parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            // Lengths are included, so that no two lists of parts produce the same bytes.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Returns the request id by which the outbox recognises a repeat of the call.
    pub(crate) fn request_id(&self, gateway: &str) -> String {
        format!("{gateway}:{}", self.hex())
    }

    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns a number that identifies the call for the breaker. It is negative, because ids of
    /// events are positive.
    pub(crate) fn number(&self) -> i64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        Self::number_from([a, b, c, d, e, f, g, h])
    }

    fn number_from(bytes: [u8; 8]) -> i64 {
        i64::MIN | i64::from_le_bytes(bytes)
    }
}

/// Returns the number of the call that an event repeats, taken from its request id.
pub(crate) fn number_of(event: &Event) -> Option<i64> {
    let hex = event.request_id.as_deref()?.rsplit_once(':')?.1;
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    let mut bytes = [0; 8];
    for (at, place) in bytes.iter_mut().enumerate() {
        *place = byte(at)?;
    }
    Some(Key::number_from(bytes))
}

/// Returns the target in an event's payload; empty if there is none.
pub(crate) fn target_of(event: &Event) -> Cow<'_, str> {
    #[derive(Default, Deserialize)]
    struct Target<'a> {
        #[serde(borrow)]
        target: Cow<'a, str>,
    }
    serde_json::from_str::<Target<'_>>(&event.payload).unwrap_or_default().target
}

/// The payload of an event.
#[derive(Debug, Serialize, Deserialize)]
struct SavedCall {
    method: String,
    target: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// A body that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// When the caller made the call, in milliseconds since 1970; only for changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_at_ms: Option<u64>,
}

/// Refuses a target that is not a path, or that URL normalisation would turn into another path.
fn check_target(target: &str) -> Result<(), MalformedPath> {
    if !target.starts_with('/') {
        return Err(MalformedPath("it must start with /"));
    }
    if target.len() > TARGET_BYTES_MAX {
        return Err(MalformedPath("it is longer than 8,192 bytes"));
    }
    if target.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#' || byte == b'\\') {
        return Err(MalformedPath("percent-encode what is not visible ASCII, and # and \\"));
    }
    let escapes = target.split('%').skip(1);
    for rest in escapes {
        if !rest.get(..2).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Err(MalformedPath("a % is not followed by two hexadecimal digits"));
        }
    }
    match dot_segments(target) {
        0 => Ok(()),
        _ => Err(MalformedPath("it has a segment . or .., written out or encoded")),
    }
}

/// Truncates a text that is too long and appends the key, so that it stays unique.
fn shortened(text: &str, chars_max: usize, key: &Key) -> String {
    if text.len() <= chars_max {
        return text.to_owned();
    }
    let tail = key.hex();
    // The text is visible ASCII, so bytes are characters.
    format!("{}~{tail}", &text[..chars_max - tail.len() - 1])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz;

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for wrong in [
            "",
            "x",
            "http://h/",
            "/a/../b",
            "/..",
            "/%2e%2E/b",
            "/.%2e",
            "/a/..%2fb",
            "/a/..%5Cb",
            "/a%2F%2e%2e",
            "/..;a=b/c",
            "/%252e%252e/b",
            "/a b",
            "/a#b",
            "/a\\b",
            "/a%2",
            "/a%zz",
            "/ä",
            "/a\n",
            &format!("/{}", "x".repeat(8_192)),
        ] {
            assert!(Call::get(wrong).is_err(), "{wrong}");
        }
        for right in [
            "/",
            "/a/b?c=../d&e=%20",
            "/a..b/...",
            "//a",
            "/a/%C3%A4",
            "/a?b=/..",
            "/group%2Fproject;v=1",
        ] {
            assert!(Call::get(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn calls_that_differ_anywhere_have_different_keys() {
        let get = || Call::get("/a").unwrap();
        let post = || Call::new(Method::POST, "/a").unwrap();
        let calls = [
            get(),
            Call::get("/a?b").unwrap(),
            Call::new(Method::HEAD, "/a").unwrap(),
            get().header("Accept", "x"),
            get().header("Accept", "y"),
            post(),
            post().body("b"),
            post().idempotency_key("k"),
            post().idempotency_key("k").body("b"),
            post().header("idempotency", "-keyk"),
        ];
        let keys: std::collections::HashSet<_> = calls.iter().map(Call::key).collect();
        assert_eq!(keys.len(), calls.len());
        assert_eq!(get().key(), get().idempotency_key("of no use").key());
        assert!(keys.iter().all(|key| key.number() < 0));
    }

    #[test]
    fn only_a_call_that_may_be_repeated_is_repeatable() {
        assert!(Call::get("/a").unwrap().is_repeatable());
        let post = Call::new(Method::POST, "/a").unwrap();
        assert!(!post.is_repeatable());
        assert!(post.idempotency_key("k").is_repeatable());
    }

    #[test]
    fn a_long_target_makes_an_aggregate_id_that_fits_and_is_one_of_a_kind() {
        let long = |end: &str| Call::get(format!("/{}{end}", "x".repeat(300))).unwrap();
        let id =
            |call: &Call| shortened(call.target(), limits::AGGREGATE_ID_CHARS_MAX, &call.key());
        assert_eq!(id(&long("a")).len(), limits::AGGREGATE_ID_CHARS_MAX);
        assert_ne!(id(&long("a")), id(&long("b")));
        assert!(long("a").event("nexon", 1).validate().is_ok());
    }

    fn calls() -> impl Strategy<Value = Call> {
        let methods = vec![Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE];
        let target = "(/[a-z.%0-9;=]{0,4}){1,4}(\\?[a-z=&/.]{0,9})?"
            .prop_filter_map("a target", |target| {
                Call::get(target.clone()).is_ok().then_some(target)
            });
        let body =
            prop_oneof![fuzz::payload().prop_map(String::into_bytes), vec(any::<u8>(), 0..9)];
        let headers = vec((fuzz::name(), fuzz::text()), 0..3);
        (select(methods), target, body, headers, proptest::option::of(fuzz::text())).prop_map(
            |(method, target, body, headers, key)| {
                let call = Call::new(method, target).unwrap().body(body);
                let call =
                    headers.into_iter().fold(call, |call, (name, value)| call.header(&name, value));
                match key {
                    Some(key) => call.idempotency_key(key),
                    None => call,
                }
            },
        )
    }

    fn event_of(payload: String) -> Event {
        Event { payload, ..fuzz::sample() }
    }

    proptest! {
        /// A saved call is the same call when it is read back.
        #[test]
        fn fuzz_gateway_calls(call in calls(), asked_at_ms in any::<u64>()) {
            let (read, at) = Call::of_event(&event_of(call.payload(asked_at_ms))).unwrap();
            prop_assert_eq!(&read, &call);
            prop_assert_eq!(read.key(), call.key());
            prop_assert!(!call.overwrites() || at == asked_at_ms);
        }

        /// A forged payload makes no call other than the one that it names, and none that leaves
        /// the upstream's path.
        #[test]
        fn fuzz_gateway_calls_that_are_forged(
            payload in fuzz::damaged(calls().prop_map(|call| call.payload(1).into_bytes())),
        ) {
            let event = event_of(String::from_utf8_lossy(&payload).into_owned());
            let target = target_of(&event).into_owned();
            if let Ok((call, _)) = Call::of_event(&event) {
                prop_assert_eq!(call.target(), target);
                prop_assert!(Call::get(call.target()).is_ok());
                if let Ok(headers) = call.header_map() {
                    prop_assert!(headers.values().all(|value| !value.as_bytes().contains(&b'\n')));
                }
            }
        }

        /// An accepted target stays below the base path, however it is written.
        #[test]
        fn fuzz_gateway_targets(target in "(/|\\.|%|2|5|e|E|f|c|;|3|b|6|\\?|a|#|\\\\|@|:){1,14}") {
            let target = format!("/{target}");
            let Ok(call) = Call::get(target.clone()) else { return Ok(()) };
            let url = url::Url::parse(&format!("http://h/base{}", call.target())).unwrap();
            prop_assert_eq!(url.host_str(), Some("h"));
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            prop_assert_eq!(url.path(), format!("/base{path}"));
            prop_assert_eq!(url.query().unwrap_or_default(), query);
        }
    }
}
