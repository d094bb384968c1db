//! Requirements of RFC 9112 for every request and connection, whatever the route: exactly one
//! `Host`, and an announcement before the connection is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};

use super::problem::Problem;

/// Refuses a request without one unambiguous host. Adds `Connection: close` if part of the body was
/// not read: the connection cannot be used after that.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let read = Arc::new(AtomicBool::new(body.is_end_stream()));
    let mut response = match one_host(&parts) {
        Err(fault) => Problem::new(400, fault).into_response(),
        Ok(()) => {
            let body = Tracked { body, read: Arc::clone(&read) };
            next.run(Request::from_parts(parts, Body::new(body))).await
        }
    };
    if !read.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Checks that there is one host. If there are no tokens, the host decides on access, so it must
/// not be ambiguous.
fn one_host(parts: &Parts) -> Result<(), &'static str> {
    let mut hosts = parts.headers.get_all(header::HOST).into_iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host,
        (Some(_), Some(_)) => return Err("the request has two `Host` headers; send one"),
        // HTTP/1.0 requests need no host: load balancers probe with it.
        (None, _) if parts.version < Version::HTTP_11 && parts.uri.authority().is_none() => {
            return Ok(());
        }
        (None, _) => return Err("the request has no `Host` header; send one"),
    };
    let valid = |host: &Authority| !host.as_str().contains('@');
    let host = Authority::try_from(host.as_bytes()).ok().filter(valid);
    let host = host.ok_or("the `Host` header is not a host with an optional port")?;
    match parts.uri.authority() {
        Some(target) if *target != host => {
            Err("the request's target names another host than `Host`")
        }
        _ => Ok(()),
    }
}

/// A body that records whether it was read to its end.
struct Tracked {
    body: Body,
    read: Arc<AtomicBool>,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.read.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(version: Version, target: &str, hosts: &[&str]) -> Option<&'static str> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        one_host(&request.body(()).unwrap().into_parts().0).err()
    }

    #[test]
    fn a_request_names_one_host() {
        let new = Version::HTTP_11;
        for (target, hosts, word) in [
            ("/", &["localhost:7070"][..], None),
            ("/", &["[::1]:7070"], None),
            ("http://LOCALHOST:7070/", &["localhost:7070"], None),
            ("/", &[], Some("no `Host`")),
            ("/", &["localhost", "localhost"], Some("two `Host`")),
            ("/", &[""], Some("not a host")),
            ("/", &["local host"], Some("not a host")),
            ("/", &["evil@localhost"], Some("not a host")),
            ("/", &["localhost/path"], Some("not a host")),
            ("http://evil.example/", &["localhost"], Some("another host")),
            ("http://localhost:1/", &["localhost"], Some("another host")),
        ] {
            let found = fault(new, target, hosts);
            let same = found.is_some() == word.is_some();
            assert!(
                same && found.unwrap_or_default().contains(word.unwrap_or_default()),
                "{target} {hosts:?}: {found:?}"
            );
        }
        assert_eq!(fault(Version::HTTP_10, "/", &[]), None, "a probe of a load balancer");
        assert!(fault(Version::HTTP_10, "/", &["a", "b"]).is_some());
        assert!(fault(Version::HTTP_10, "http://localhost/", &[]).is_some());
    }
}
