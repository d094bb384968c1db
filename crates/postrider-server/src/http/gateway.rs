//! `/gateway/<name>/…`: calls of upstreams, answered from the cache, by the upstream, or with a
//! problem that says that the call was saved.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;
use postrider_relay::gateway::Gateway;

use super::ServerState;
use super::access::{self, Role};
use super::extract::read_body;
use super::problem::Problem;

/// Prefix of the paths of gateways.
pub(crate) const PREFIX: &str = "/gateway/";
/// An upstream's page is not ours: it may do nothing here, least of all with our session.
const NOT_OUR_PAGE: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Requires the same role as appending: a call may write an event, and is made with our
/// credentials.
pub(super) fn routes() -> Router<ServerState> {
    ["/gateway/{gateway}", "/gateway/{gateway}/", "/gateway/{gateway}/{*path}"]
        .into_iter()
        .fold(Router::new(), |routes, path| routes.route(path, any(call)))
        .route_layer(from_fn_with_state(Role::Operator, access::require))
}

async fn call(State(state): State<ServerState>, request: Request) -> Result<Response, Problem> {
    // Not decoded: the upstream sees the path as it was sent.
    let uri = request.uri().clone();
    let rest = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let gateway = named(&state, name)?;
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let body = read_body(request, state.body_bytes_max).await?;
    let reply = match uri.query() {
        Some(query) => gateway.answer(method, &format!("{path}?{query}"), &headers, body).await,
        None => gateway.answer(method, path, &headers, body).await,
    };
    let mut response = reply.into_response().map(Body::from);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(NOT_OUR_PAGE));
    Ok(response)
}

fn named<'a>(state: &'a ServerState, name: &str) -> Result<&'a Gateway, Problem> {
    state.gateways.iter().find(|gateway| gateway.name() == name).ok_or_else(|| {
        let names: Vec<&str> = state.gateways.iter().map(Gateway::name).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let detail =
            format!("there is no gateway `{name}`; the [[gateway]] blocks define: {there}");
        Problem::new(404, detail)
    })
}
