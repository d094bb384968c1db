//! The guard before every route: identifies the caller, refuses requests that another site's page
//! made a browser send, limits the rate, and checks the role.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::Utc;

use super::limits::Client;
use super::tokens::{digest, is_random};
use super::{Access, Caller, Credential, Role, SIGN_IN, Way};
use crate::http::problem::Problem;
use crate::http::{APPEND_PATH, ServerState, gateway};

/// Name of the session cookie.
pub(crate) const COOKIE: &str = "postrider_session";
/// The dashboard sends this header with every change; a form on another site cannot.
pub(crate) const PAGE_HEADER: &str = "x-postrider";

/// Admits only callers whose name and role are known, and adds both to the request.
pub(crate) async fn admit(
    State(state): State<ServerState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let access = &state.access;
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let calls = path.is_some_and(|path| path.starts_with(gateway::PREFIX));
    let caller = match access.caller(request.method(), calls, request.headers(), peer.ip()) {
        Ok(caller) => caller,
        Err(problem) => {
            // Unidentified callers are counted by their address.
            return match access.limits.request(Client::address(peer.ip())) {
                Ok(()) => problem.into_response(),
                Err(wait) => too_many("requests from this address", wait).into_response(),
            };
        }
    };
    // Appends and calls of gateways are not limited here, since they are what the store and the
    // gateways are for; the number of connections limits them.
    let appends = request.method() == Method::POST && path == Some(APPEND_PATH);
    if !appends
        && !calls
        && let Err(wait) = access.limits.request(Client::Name(caller.name.clone()))
    {
        return too_many("requests under this name", wait).into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Admits only callers with this role or a higher one.
pub(crate) async fn require(
    State(role): State<Role>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    if caller.role < role {
        let detail = format!(
            "this needs the role {}; `{}` is {}",
            role.as_str(),
            caller.name,
            caller.role.as_str()
        );
        return Problem::new(403, detail).into_response();
    }
    next.run(request).await
}

/// Adds headers that stop browsers from guessing content types, framing the answer, or loading
/// anything into it from elsewhere.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    const HEADERS: [(HeaderName, &str); 7] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
             font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

fn too_many(what: &str, wait: Duration) -> Problem {
    let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
    Problem::new(429, format!("too many {what}; again in {seconds} s")).retry_after(seconds)
}

impl Access {
    /// Identifies the caller by token, by session, or as a client on this machine if there are no
    /// tokens. `calls`: the request is for a gateway.
    fn caller(
        &self,
        method: &Method,
        calls: bool,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<Caller, Problem> {
        // Another site's page cannot read the answer, so safe methods and links to us are harmless.
        // A gateway calls its upstream with our credentials, so its calls are checked whatever
        // their method.
        let own_page = || match method.is_safe() && !calls {
            true => Ok(()),
            false => refuse_foreign_page(headers),
        };
        let Some(tokens) = &self.tokens else {
            self.require_loopback(headers)?;
            own_page()?;
            return Ok(Caller::local());
        };
        if let Some(given) = text(headers, header::AUTHORIZATION) {
            let bearer = given.split_once(' ').filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
            let token = bearer.map_or("", |(_, token)| token.trim_start_matches(' '));
            let holder = self.holder(token, peer)?;
            let credential = Credential::Token(holder.digest);
            return Ok(Caller {
                name: holder.name,
                role: holder.role,
                way: Way::Token,
                credential,
            });
        }
        let id = cookie(headers).ok_or_else(|| Problem::new(401, SIGN_IN))?;
        let over = || Problem::new(401, format!("the session is over; {SIGN_IN}"));
        let session = self.sessions.find(id, Instant::now()).ok_or_else(over)?;
        // A token that was removed or has expired ends its sessions.
        let holder = tokens.by_digest(&session.token).filter(|h| !h.expired(Utc::now()));
        let holder = holder.ok_or_else(over)?;
        own_page()?;
        if !method.is_safe() && !headers.contains_key(PAGE_HEADER) {
            let detail = format!("with a session, changes need the header `{PAGE_HEADER}: 1`");
            return Err(Problem::new(403, detail));
        }
        let credential = Credential::Session { id: digest(id), token: session.token };
        Ok(Caller { name: holder.name, role: holder.role, way: Way::Session, credential })
    }

    /// Returns whether the caller would still be admitted, for work that continues after its
    /// request was admitted. This does not count as use of the session, so that a dashboard that
    /// only watches is signed out like any other.
    pub(crate) fn still_admits(&self, caller: &Caller) -> bool {
        let (token, session) = match caller.credential {
            Credential::Loopback => return true,
            Credential::Token(token) => (token, None),
            Credential::Session { id, token } => (token, Some(id)),
        };
        let holder = self.tokens.as_ref().and_then(|tokens| tokens.by_digest(&token));
        holder.is_some_and(|holder| !holder.expired(Utc::now()))
            && session.is_none_or(|id| self.sessions.is_open(&id, Instant::now()))
    }

    /// Returns the holder of a token. An address that sent too many wrong tokens is refused for a
    /// while. Tokens too random to be guessed are checked even then, so that one client with an old
    /// token does not lock out the others behind the same address.
    pub(crate) fn holder(
        &self,
        token: &str,
        peer: IpAddr,
    ) -> Result<super::tokens::Holder, Problem> {
        let refused = |wait| too_many("wrong tokens from this address", wait);
        if let Some(wait) = self.limits.refused_for(peer).filter(|_| !is_random(token)) {
            return Err(refused(wait));
        }
        let found = self.tokens.as_ref().and_then(|tokens| tokens.find(token));
        match found {
            Some(holder) if !holder.expired(Utc::now()) => Ok(holder),
            found => {
                self.limits.failure(peer).map_err(refused)?;
                Err(Problem::new(
                    401,
                    match found {
                        Some(_) => "the token has expired; `postrider token new` makes another one",
                        None => SIGN_IN,
                    },
                ))
            }
        }
    }

    /// Requires that the client is on this machine. By DNS rebinding, a page in a browser on this
    /// machine could call us under another name, but it cannot choose the Host header. A request
    /// that came through a reverse proxy on this machine has its client elsewhere.
    fn require_loopback(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if let Some(name) = headers.keys().map(HeaderName::as_str).find(|name| is_of_proxy(name)) {
            let detail = format!(
                "the request came through a proxy (it has the header `{name}`), and without a \
                 token only this machine is served; set `tokens_file` in [api]"
            );
            return Err(Problem::new(403, detail));
        }
        match text(headers, header::HOST).is_some_and(is_loopback) {
            true => Ok(()),
            false => Err(Problem::new(
                403,
                "without a token only requests to a loopback host are served; set `tokens_file` in \
                 [api]",
            )),
        }
    }
}

/// Refuses requests that a page of another site made the browser send. Browsers add the request's
/// origin to it, and pages cannot change that; other programs send no such header.
pub(crate) fn refuse_foreign_page(headers: &HeaderMap) -> Result<(), Problem> {
    let foreign = match text(headers, HeaderName::from_static("sec-fetch-site")) {
        Some("same-origin" | "none") => false,
        Some(_) => true,
        None => text(headers, header::ORIGIN).is_some_and(|origin| {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_none() || host != text(headers, header::HOST)
        }),
    };
    match foreign {
        true => Err(Problem::new(403, "a page of another site may not do this")),
        false => Ok(()),
    }
}

/// Returns the content of the session cookie.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE)
        .map(|(_, value)| value)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns whether proxies add a header with this name (in lower case).
fn is_of_proxy(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ApiSection, ServerSection};

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::try_from(*name).unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn access(token: Option<&str>) -> Access {
        let token = token.map(|token| token.to_owned().into());
        let server = ServerSection { token, ..ServerSection::default() };
        Access::new(&server, &ApiSection::default()).unwrap()
    }

    fn status(access: &Access, method: &Method, pairs: &[(&str, &str)]) -> Option<u16> {
        let refused = access.caller(method, false, &headers(pairs), PEER).err()?;
        Some(refused.into_response().status().as_u16())
    }

    #[test]
    fn without_a_token_only_loopback_hosts_are_admitted() {
        let open = access(None);
        for host in ["localhost:7070", "127.0.0.1", "[::1]:7070", "127.8.8.8:1"] {
            assert_eq!(status(&open, &Method::POST, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:7070", "10.0.0.1", ""] {
            assert_eq!(status(&open, &Method::GET, &[("host", host)]), Some(403), "{host}");
        }
        assert_eq!(status(&open, &Method::POST, &[]), Some(403), "no host at all");
    }

    #[test]
    fn without_a_token_nobody_behind_a_proxy_is_admitted() {
        let (open, guarded) = (access(None), access(Some("correct-horse-battery")));
        let here = ("host", "localhost:7070");
        let token = ("authorization", "Bearer correct-horse-battery");
        for (name, value) in [
            ("forwarded", "for=192.0.2.1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "192.0.2.1"),
            ("via", "1.1 proxy"),
        ] {
            let proxied = (name, value);
            assert_eq!(status(&open, &Method::GET, &[here, proxied]), Some(403), "{name}");
            assert_eq!(status(&guarded, &Method::GET, &[here, proxied, token]), None, "{name}");
        }
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let open = access(None);
        let here = ("host", "localhost:7070");
        for (name, value, refused) in [
            ("origin", "http://localhost:7070", false),
            ("origin", "http://localhost:8080", true),
            ("origin", "https://evil.example", true),
            ("origin", "null", true),
            ("sec-fetch-site", "same-origin", false),
            ("sec-fetch-site", "none", false),
            ("sec-fetch-site", "same-site", true),
            ("sec-fetch-site", "cross-site", true),
        ] {
            let expected = refused.then_some(403);
            let found = status(&open, &Method::POST, &[here, (name, value)]);
            assert_eq!(found, expected, "{name}: {value}");
            assert_eq!(status(&open, &Method::GET, &[here, (name, value)]), None, "looking");
            let headers = headers(&[here, (name, value)]);
            let call = open.caller(&Method::GET, true, &headers, PEER);
            assert_eq!(call.is_err(), refused, "calling an upstream with {name}: {value}");
        }
    }

    #[test]
    fn with_a_token_only_that_token_is_admitted() {
        let guarded = access(Some("correct-horse-battery"));
        fn bearer(value: &str) -> [(&str, &str); 2] {
            [("authorization", value), ("host", "db.example")]
        }
        let get = |pairs: &[(&str, &str)]| status(&guarded, &Method::GET, pairs);
        for scheme in ["Bearer ", "bearer ", "BEARER   "] {
            assert_eq!(get(&bearer(&format!("{scheme}correct-horse-battery"))), None, "{scheme}");
        }
        assert_eq!(get(&bearer("Bearer correct-horse-batter")), Some(401));
        assert_eq!(get(&bearer("Basic correct-horse-battery")), Some(401));
        assert_eq!(get(&[]), Some(401));
    }

    #[test]
    fn a_guesser_is_refused_also_when_the_guess_is_right() {
        let guarded = access(Some("correct-horse-battery"));
        let get = |token: &str| {
            status(&guarded, &Method::GET, &[("authorization", &format!("Bearer {token}"))])
        };
        let answers: Vec<_> = (0..11).map(|n| get(&format!("guess-{n}"))).collect();
        assert_eq!(answers[9..], [Some(401), Some(429)]);
        assert_eq!(get("correct-horse-battery"), Some(429));
    }

    #[test]
    fn a_session_needs_the_page_header_for_changes() {
        let guarded = access(Some("correct-horse-battery"));
        let holder = guarded.holder("correct-horse-battery", PEER).unwrap();
        let id = guarded.sessions.open(holder.digest, Instant::now());
        let cookie = format!("a=b; {COOKIE}={id}");
        let cookie = ("cookie", cookie.as_str());
        assert_eq!(status(&guarded, &Method::GET, &[cookie]), None);
        assert_eq!(status(&guarded, &Method::POST, &[cookie]), Some(403));
        let page = (PAGE_HEADER, "1");
        assert_eq!(status(&guarded, &Method::POST, &[cookie, page]), None);
        let cross = ("sec-fetch-site", "cross-site");
        assert_eq!(status(&guarded, &Method::POST, &[cookie, page, cross]), Some(403));
        guarded.sessions.close(&id);
        assert_eq!(status(&guarded, &Method::GET, &[cookie]), Some(401));
    }
}
