//! Who may call: with a token, whoever has it; without, only this machine.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::ServerState;
use super::problem::Problem;

pub(crate) async fn admit(
    State(state): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(state.token.as_deref(), request.method(), request.headers()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(token: Option<&str>, method: &Method, headers: &HeaderMap) -> Option<Problem> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match token {
        Some(token) => {
            let given = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            let right = given.is_some_and(|given| given.as_bytes().ct_eq(token.as_bytes()).into());
            if !right {
                return Some(Problem::new(401, "send `Authorization: Bearer <token>`"));
            }
        }
        // A page in a browser on this machine could be made to call us under a foreign name (DNS
        // rebinding); it cannot choose the Host header.
        None => {
            if !text(header::HOST).is_some_and(is_loopback) {
                return Some(Problem::new(
                    403,
                    "without a token only requests to a loopback host are served; set `token` in \
                     [server]",
                ));
            }
        }
    }
    // A form of a foreign page cannot send this type without asking first.
    let json = text(header::CONTENT_TYPE)
        .and_then(|value| value.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    (method == Method::POST && !json)
        .then(|| Problem::new(415, "send the body as `Content-Type: application/json`"))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(token: Option<&str>, headers: &[(&str, &str)]) -> Option<u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = axum::http::HeaderName::try_from(*name).unwrap();
            map.insert(name, value.parse().unwrap());
        }
        let problem = refusal(token, &Method::POST, &map)?;
        Some(problem.into_response().status().as_u16())
    }

    #[test]
    fn without_a_token_only_loopback_hosts_and_json_are_admitted() {
        let json = ("content-type", "application/json; charset=utf-8");
        for host in ["localhost:7070", "127.0.0.1", "[::1]:7070", "127.8.8.8:1"] {
            assert_eq!(status(None, &[("host", host), json]), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:7070", "10.0.0.1", ""] {
            assert_eq!(status(None, &[("host", host), json]), Some(403), "{host}");
        }
        assert_eq!(status(None, &[json]), Some(403), "no host at all");
        let form = ("content-type", "text/plain");
        assert_eq!(status(None, &[("host", "localhost"), form]), Some(415));
    }

    #[test]
    fn with_a_token_only_that_token_is_admitted() {
        let json = ("content-type", "application/json");
        let bearer = |value| [("authorization", value), json, ("host", "db.example")];
        assert_eq!(status(Some("s3cret"), &bearer("Bearer s3cret")), None);
        assert_eq!(status(Some("s3cret"), &bearer("Bearer s3cre")), Some(401));
        assert_eq!(status(Some("s3cret"), &bearer("Basic s3cret")), Some(401));
        assert_eq!(status(Some("s3cret"), &[json]), Some(401));
    }
}
