//! Extractors for the parts of a request; invalid parts become problem documents.

use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use chrono::{DateTime, Datelike, Utc};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::ServerState;
use super::problem::Problem;

/// Maximum number of bytes that are read and discarded from a body that is too large, before the
/// answer is sent.
const DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;
const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

/// Fields of the path.
pub(crate) struct InPath<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        let refused =
            |error: PathRejection| Problem::new(400, format!("the path: {}", error.body_text()));
        found.map(|Path(found)| Self(found)).map_err(refused)
    }
}

/// Parameters of the query. Unknown ones are refused: a misspelled filter would show, or act on,
/// everything.
pub(crate) struct InQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if !is_text(parts.uri.query().unwrap_or_default()) {
            return Err(Problem::new(400, "the query: what is percent-encoded is not UTF-8"));
        }
        let found = Query::<T>::from_request_parts(parts, state).await;
        let refused =
            |error: QueryRejection| Problem::new(400, format!("the query: {}", error.body_text()));
        found.map(|Query(found)| Self(found)).map_err(refused)
    }
}

/// Returns whether the percent-encoded bytes in a query are UTF-8. Invalid ones would silently
/// become replacement characters.
fn is_text(query: &str) -> bool {
    let (mut decoded, mut rest) = (Vec::with_capacity(query.len()), query.as_bytes());
    while let [first, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        (decoded, rest) = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                (decoded, &after[2..])
            }
            _ => {
                decoded.push(*first);
                (decoded, after)
            }
        };
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// A JSON body within the limit.
pub(crate) struct InBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<ServerState> for InBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Problem> {
        read_json(request, state.body_bytes_max).await.map(Self)
    }
}

/// Reads a JSON body up to a limit.
pub(crate) async fn read_json<T: DeserializeOwned>(
    request: Request,
    bytes_max: usize,
) -> Result<T, Problem> {
    require_type(&request, "application/json")?;
    let body = read_body(request, bytes_max).await?;
    parse(&body, "the body")
}

/// Parses a JSON object. Serde alone would also accept a list of values, in the order of the
/// fields.
pub(crate) fn parse<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Problem> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::new(422, format!("{what} does not fit: it is a list, not an object")));
    }
    serde_json::from_slice(body).map_err(|error| match error.is_data() {
        true => Problem::new(422, format!("{what} does not fit: {error}")),
        false => Problem::new(400, format!("{what} is not valid JSON: {error}")),
    })
}

/// Reads a body up to a limit.
pub(crate) async fn read_body(
    request: Request,
    bytes_max: usize,
) -> Result<axum::body::Bytes, Problem> {
    let mut body = request.into_body();
    let mut read = Vec::new();
    // If the announced length is too large, nothing is read into memory.
    let mut too_large = body.size_hint().lower() > bytes_max as u64;
    while !too_large && let Some(frame) = body.frame().await {
        let broken = "the body ended early, or its chunks are broken; send it again";
        let frame = frame.map_err(|_| Problem::new(400, broken))?;
        if let Ok(data) = frame.into_data() {
            too_large = read.len() + data.len() > bytes_max;
            read.extend_from_slice(&data);
        }
    }
    if too_large {
        discard(body).await;
        return Err(Problem::new(413, format!("the body is larger than {bytes_max} bytes")));
    }
    Ok(read.into())
}

/// Reads and discards the rest of the body, within limits. A connection that is closed while the
/// client still sends is reset, and the client never sees the answer.
async fn discard(mut body: axum::body::Body) {
    let taking = async {
        let mut bytes = 0;
        while bytes < DISCARD_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            bytes += frame.data_ref().map_or(0, |data| data.len());
        }
    };
    // A client that stops sending is answered after this time.
    drop(tokio::time::timeout(DISCARD_TIME_MAX, taking).await);
}

pub(crate) fn require_type(request: &Request, allowed: &str) -> Result<(), Problem> {
    let given = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = given.and_then(|value| value.split(';').next());
    match kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(allowed)) {
        true => Ok(()),
        false => Err(Problem::new(415, format!("send the body as `Content-Type: {allowed}`"))),
    }
}

/// A field that is an object, for `deserialize_with`: see [`parse`].
pub(crate) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let fields = serde_json::Map::deserialize(deserializer)?;
    T::deserialize(serde_json::Value::Object(fields)).map_err(serde::de::Error::custom)
}

/// Longest text of a filter, note or name.
pub(crate) const TEXT_CHARS_MAX: usize = 1_000;
/// The range of times that every store can hold.
const TIME_FIRST: DateTime<Utc> = DateTime::UNIX_EPOCH;
const TIME_LAST: DateTime<Utc> = match DateTime::from_timestamp(253_402_300_799, 0) {
    Some(last) => last,
    None => DateTime::UNIX_EPOCH,
};

/// Checks that every store can hold the text.
pub(crate) fn text(name: &str, value: Option<String>) -> Result<Option<String>, Problem> {
    let Some(value) = value else { return Ok(None) };
    if value.contains('\0') {
        return Err(Problem::new(400, format!("`{name}` contains a NUL character; no event does")));
    }
    if value.chars().count() > TEXT_CHARS_MAX {
        let detail = format!("`{name}` has more than {TEXT_CHARS_MAX} characters");
        return Err(Problem::new(400, detail));
    }
    Ok(Some(value))
}

/// Checks an identity or a fingerprint. None contains other characters than ASCII, and some stores
/// cannot compare these.
pub(crate) fn ascii(name: &str, value: Option<String>) -> Result<Option<String>, Problem> {
    match text(name, value)? {
        Some(value) if !value.is_ascii() => {
            Err(Problem::new(400, format!("`{name}` has only ASCII characters")))
        }
        value => Ok(value),
    }
}

/// Clamps a time to the range that every store can compare with; a time outside of the range finds
/// the same as the nearest one inside. RFC 3339 ends with the year 9999, whose last hours may lie
/// in the next year in UTC.
pub(crate) fn time(
    name: &str,
    value: Option<DateTime<Utc>>,
) -> Result<Option<DateTime<Utc>>, Problem> {
    match value {
        Some(time) if time.year() > 10_000 => {
            Err(Problem::new(400, format!("`{name}` is after the year 9999")))
        }
        value => Ok(value.map(|time| time.clamp(TIME_FIRST, TIME_LAST))),
    }
}

/// Deserializes a whole number, for `deserialize_with`. JSON does not distinguish `155` from
/// `155.0`.
pub(crate) fn whole<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    let number = serde_json::Number::deserialize(deserializer)?;
    let refused = || serde::de::Error::custom(format!("{number} is not a whole number that fits"));
    // Floats represent every whole number up to 2^53 exactly.
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
    let whole = number.as_i64().or_else(|| float().map(|float| float as i64));
    whole.and_then(|whole| T::try_from(whole).ok()).ok_or_else(refused)
}

/// Like [`whole`], for a field that may be absent or `null`.
pub(crate) fn whole_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    struct Whole<T>(T);
    impl<'de, T: TryFrom<i64>> Deserialize<'de> for Whole<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            whole(deserializer).map(Self)
        }
    }
    Ok(Option::<Whole<T>>::deserialize(deserializer)?.map(|Whole(number)| number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_what_stores_hold_is_the_nearest_one() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let read = |text: &str| time("since", Some(at(text))).ok().flatten();
        assert_eq!(read("1800-01-01T00:00:00Z"), Some(at("1970-01-01T00:00:00Z")));
        assert_eq!(read("9999-12-31T23:59:59-12:00"), Some(at("9999-12-31T23:59:59Z")));
        assert_eq!(read("2026-01-01T00:00:00Z"), Some(at("2026-01-01T00:00:00Z")));
        assert!(time("since", Some(at("+20000-01-01T00:00:00Z"))).is_err());
    }

    #[test]
    fn a_number_is_whole_by_its_value() {
        #[derive(Deserialize)]
        struct Body {
            #[serde(deserialize_with = "whole")]
            count: u32,
            #[serde(default, deserialize_with = "whole_or_none")]
            rate: Option<u32>,
        }
        let read = |text: &str| {
            serde_json::from_str::<Body>(text).map(|body| (body.count, body.rate)).ok()
        };
        assert_eq!(read(r#"{"count": 155.0, "rate": 2e1}"#), Some((155, Some(20))));
        assert_eq!(read(r#"{"count": 155, "rate": null}"#), Some((155, None)));
        for refused in ["1.5", "-1", "-1.0", "1e300", "4294967296", "\"1\"", "true"] {
            assert_eq!(read(&format!(r#"{{"count": {refused}}}"#)), None, "{refused}");
        }
    }
}
