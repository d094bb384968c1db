//! The caller's identity; signing in and out.

use std::net::SocketAddr;
use std::time::Instant;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::ServerState;
use crate::http::access::{COOKIE, Caller, Role, Way, cookie, refuse_foreign_page};
use crate::http::extract::read_json;
use crate::http::problem::Problem;

/// Maximum size of a sign-in's body in bytes: its sender is not identified yet.
const SIGN_IN_BYTES_MAX: usize = 4 * 1024;

/// The name in the audit trail, and what it may do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Whoami {
    name: String,
    role: Role,
    way: Way,
    /// Version of the server.
    version: &'static str,
}

/// Under which name and role the request came.
#[utoipa::path(
    get, path = "/api/v1/whoami", tag = "session",
    responses((status = 200, description = "You", body = Whoami))
)]
pub(super) async fn whoami(caller: Caller) -> Json<Whoami> {
    let Caller { name, role, way, .. } = caller;
    Json(Whoami { name: name.to_string(), role, way, version: env!("CARGO_PKG_VERSION") })
}

/// A token, once, for a cookie.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    token: String,
}

/// A session of the page.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignedIn {
    name: String,
    role: Role,
    /// Seconds without a request after which it ends.
    idle_s: u64,
    /// Seconds after which it ends in any case.
    max_s: u64,
}

/// Sign in: a token for a cookie that a script cannot read. Changes then need the header
/// `x-postrider: 1`.
#[utoipa::path(
    post, path = "/api/v1/session", tag = "session", request_body = SignIn,
    responses(
        (status = 200, description = "Signed in; the cookie is set", body = SignedIn),
        (status = 409, description = "There are no tokens, so signing in is not needed",
         body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn sign_in(
    State(state): State<ServerState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    refuse_foreign_page(&headers)?;
    let access = &state.access;
    if access.tokens.is_none() {
        return Err(Problem::new(409, "there are no tokens: this machine needs no session"));
    }
    let body: SignIn = read_json(request, SIGN_IN_BYTES_MAX).await?;
    let holder = access.holder(&body.token, peer.ip())?;
    let id = access.sessions.open(holder.digest, Instant::now());
    tracing::info!(name = &*holder.name, role = holder.role.as_str(), "signed in");
    let (idle, max) = access.sessions.limits();
    let cookie = set_cookie(&id, max.as_secs(), &headers);
    let (name, role) = (holder.name.to_string(), holder.role);
    let answer = SignedIn { name, role, idle_s: idle.as_secs(), max_s: max.as_secs() };
    Ok(([(header::SET_COOKIE, cookie)], Json(answer)).into_response())
}

/// Sign out. Without a session nothing happens.
#[utoipa::path(
    delete, path = "/api/v1/session", tag = "session",
    responses((status = 204, description = "Signed out; the cookie is cleared"))
)]
pub(super) async fn sign_out(
    State(state): State<ServerState>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    refuse_foreign_page(&headers)?;
    if let Some(id) = cookie(&headers) {
        state.access.sessions.close(id);
    }
    let cleared = [(header::SET_COOKIE, set_cookie("", 0, &headers))];
    Ok((StatusCode::NO_CONTENT, cleared).into_response())
}

/// Builds the cookie. It is `Secure` if the proxy in front says that the client uses TLS. A client
/// that forges this header only keeps its own cookie from being sent without TLS.
fn set_cookie(id: &str, max_age_s: u64, headers: &HeaderMap) -> String {
    let tls = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = if tls { "; Secure" } else { "" };
    format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age_s}{secure}")
}
