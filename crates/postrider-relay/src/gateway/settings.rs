//! Settings of a gateway, checked before anything is called.

use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use http::header::{HeaderMap, HeaderName};
use url::Url;

use super::cache::CacheSettings;
use crate::sinks::http::fixed_headers;

/// Methods that a gateway can be configured to pass on.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Headers of callers that are never passed on. Answers are shared and calls are stored, so neither
/// may contain what identifies or authorises one caller.
const NOT_FORWARDED: [&str; 15] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "via",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "idempotency-key",
];

/// Headers of answers that callers get by default.
const ANSWER_HEADERS: [&str; 16] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
];
/// Headers of answers that callers never get: they belong to one connection or one caller, are
/// written by the gateway itself, or would give the upstream control over pages of the gateway's
/// origin.
const NOT_ANSWERED: [&str; 20] = [
    "age",
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-length",
    "content-security-policy",
    "keep-alive",
    "postrider-cache",
    "proxy-authenticate",
    "proxy-connection",
    "service-worker-allowed",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
];
/// Callers do not get headers with this prefix either.
const NOT_ANSWERED_PREFIX: &str = "access-control-";

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Name in paths, metrics and messages.
    pub name: String,
    /// URL of the upstream; the path of a call is appended to it.
    pub url: String,
    /// Headers sent with every call, including replays; credentials belong here.
    pub headers: Vec<(String, String)>,
    /// Headers of the caller that are passed on. They are part of the identity of a call.
    pub forward_headers: Vec<String>,
    /// Headers of answers that callers get.
    pub answer_headers: Vec<String>,
    /// Methods that are passed on.
    pub methods: Vec<String>,
    /// Endpoints with a breaker of their own, such as `/character/{id}`; all other calls share one.
    pub endpoints: Vec<String>,
    /// Timeout of one call, including the wait for a permit.
    pub timeout: Duration,
    /// Maximum number of calls in flight.
    pub concurrency_max: usize,
    /// Maximum bytes of an answer.
    pub answer_bytes_max: usize,
    /// How long an answer is served from the cache.
    pub ttl: Duration,
    /// How long 404 and 410 are served from the cache; zero disables it.
    pub negative_ttl: Duration,
    /// How much longer an answer is served while the upstream is down; zero disables it.
    pub stale_ttl: Duration,
    /// Wait before a saved call is repeated for the first time.
    pub replay_after: Duration,
    /// The `Retry-After` that callers get.
    pub retry_after: Duration,
    /// Where answers are kept.
    pub cache: CacheSettings,
    /// Forward proxy; absent: the proxies of the environment.
    pub proxy: Option<String>,
    /// Certificates in PEM form, trusted in addition to those of the system.
    pub ca: Option<PathBuf>,
}

impl GatewaySettings {
    /// Creates settings with the defaults: `GET` and `HEAD`, 5 s, answers of up to 1 MiB kept for
    /// 10 minutes in this process.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            name: name.into(),
            url: url.into(),
            headers: Vec::new(),
            forward_headers: texts(&["accept", "accept-language", "content-type"]),
            answer_headers: texts(&ANSWER_HEADERS),
            methods: texts(&["GET", "HEAD"]),
            endpoints: Vec::new(),
            timeout: Duration::from_secs(5),
            concurrency_max: 64,
            answer_bytes_max: 1_024 * 1_024,
            ttl: Duration::from_secs(600),
            negative_ttl: Duration::ZERO,
            stale_ttl: Duration::ZERO,
            replay_after: Duration::from_secs(30),
            retry_after: Duration::from_secs(60),
            cache: CacheSettings::default(),
            proxy: None,
            ca: None,
        }
    }

    /// Parses the URL: `http` or `https`, without a query, because the target of a call is appended
    /// to it.
    pub(super) fn parsed_url(&self) -> Result<Url, String> {
        // The text itself is not shown: a URL may contain a password.
        let wrong = || {
            "`url` must be like https://api.example.com/v1: with a host, without query and fragment"
                .to_owned()
        };
        let url = Url::parse(&self.url).map_err(|_| wrong())?;
        let fits = matches!(url.scheme(), "http" | "https") && url.has_host();
        match fits && url.query().is_none() && url.fragment().is_none() {
            true => Ok(url),
            false => Err(wrong()),
        }
    }

    pub(super) fn parsed_methods(&self) -> Result<Vec<Method>, String> {
        if self.methods.is_empty() {
            return Err("`methods` is empty; GET and HEAD are the default".to_owned());
        }
        let method = |name: &String| {
            METHODS.iter().find(|method| method.as_str() == name).cloned().ok_or_else(|| {
                let allowed: Vec<&str> = METHODS.iter().map(Method::as_str).collect();
                format!("`methods`: `{name}` is unknown; allowed: {}", allowed.join(", "))
            })
        };
        self.methods.iter().map(method).collect()
    }

    pub(super) fn parsed_headers(&self) -> Result<HeaderMap, String> {
        fixed_headers(&self.headers)
    }

    pub(super) fn parsed_forward_headers(&self) -> Result<Vec<HeaderName>, String> {
        let own = self.parsed_headers()?;
        let header = |text: &String| {
            let name = HeaderName::try_from(text)
                .map_err(|_| format!("`forward_headers`: `{text}` cannot be a header name"))?;
            match NOT_FORWARDED.contains(&name.as_str()) || own.contains_key(&name) {
                true => Err(format!(
                    "`forward_headers`: `{name}` is not passed on from callers: answers are shared \
                     and calls are stored; what the upstream wants to see stands in `headers`"
                )),
                false => Ok(name),
            }
        };
        self.forward_headers.iter().map(header).collect()
    }

    pub(super) fn parsed_answer_headers(&self) -> Result<Vec<HeaderName>, String> {
        let header = |text: &String| {
            let name = HeaderName::try_from(text)
                .map_err(|_| format!("`answer_headers`: `{text}` cannot be a header name"))?;
            let refused = NOT_ANSWERED.contains(&name.as_str())
                || name.as_str().starts_with(NOT_ANSWERED_PREFIX);
            match refused {
                true => Err(format!(
                    "`answer_headers`: `{name}` is not passed on to callers: answers are shared, \
                     and this one is about a connection, one caller or our own pages"
                )),
                false => Ok(name),
            }
        };
        self.answer_headers.iter().map(header).collect()
    }

    pub(super) fn check_limits(&self) -> Result<(), String> {
        let named = !self.name.is_empty()
            && self.name.len() <= 40
            && self
                .name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c));
        if !named {
            return Err(
                "`name` has lower-case letters, digits, _ and -, 40 of them at most".to_owned()
            );
        }
        for (key, value) in
            [("concurrency_max", self.concurrency_max), ("answer_bytes_max", self.answer_bytes_max)]
        {
            if value == 0 {
                return Err(format!("`{key}` = 0: at least 1"));
            }
        }
        for (key, value) in [("timeout", self.timeout), ("ttl", self.ttl)] {
            if value < Duration::from_millis(1) {
                return Err(format!("`{key}` = {value:?}: at least 1ms"));
            }
        }
        Ok(())
    }
}
