//! `/api/v1`: everything that an operator can see and do.
//!
//! A route is listed once, below, under the role that it needs; its description stands at its
//! handler. The OpenAPI document is made from both.

mod append;
mod audit;
mod dead_letters;
mod events;
mod jobs;
mod outboxes;
mod pages;
mod pauses;
mod reconcile;
mod relays;
mod session;
mod sinks;
mod stream;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{ContentBuilder, PathItem, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ServerState;
use super::access::{self, COOKIE, Role};
use super::problem::Problem;
pub(crate) use outboxes::ClaimWord;
pub(crate) use pauses::PauseBody;
pub(crate) use reconcile::Reconciler;
pub(crate) use relays::{DownBody, down};

const DOCUMENT_PATH: &str = "/api/v1/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postrider",
        description = "What an operator can see and do. Errors are problem documents (RFC 9457). \
                       Times are RFC 3339 in UTC. Lists are newest first; `next` leads to the next \
                       page, and `complete: false` says that there was no time to search further."
    ),
    components(schemas(Problem))
)]
struct Head;

fn viewer() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(session::whoami))
        .routes(routes!(outboxes::list))
        .routes(routes!(outboxes::show))
        .routes(routes!(outboxes::history))
        .routes(routes!(events::list))
        .routes(routes!(events::count))
        .routes(routes!(events::show))
        .routes(routes!(events::by_identity))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::count))
        .routes(routes!(dead_letters::groups))
        .routes(routes!(dead_letters::show))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(relays::list))
        .routes(routes!(relays::lanes))
        .routes(routes!(relays::blocked_keys))
        .routes(routes!(sinks::list))
        .routes(routes!(audit::list))
        .routes(routes!(reconcile::show))
        .routes(routes!(stream::stream))
}

fn operator() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(append::append))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(dead_letters::resolve))
        .routes(routes!(dead_letters::resend))
        .routes(routes!(jobs::create))
        .routes(routes!(jobs::stop))
        .routes(routes!(jobs::resume))
        .routes(routes!(relays::release_key))
        .routes(routes!(pauses::pause_outbox))
        .routes(routes!(pauses::resume_outbox))
        .routes(routes!(pauses::pause_sink))
        .routes(routes!(pauses::resume_sink))
        .routes(routes!(reconcile::start))
}

fn admin() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(outboxes::set_claim))
}

/// Signing in and out: whoever comes here is not known yet.
fn open() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(session::sign_in, session::sign_out))
}

/// The routes that need a role.
pub(crate) fn routes() -> Router<ServerState> {
    let roles = [(Role::Viewer, viewer()), (Role::Operator, operator()), (Role::Admin, admin())];
    roles.into_iter().fold(Router::new(), |all, (role, routes)| {
        let (routes, _) = routes.split_for_parts();
        all.merge(routes.route_layer(from_fn_with_state(role, access::require)))
    })
}

/// The routes that need none.
pub(crate) fn open_routes() -> Router<ServerState> {
    let (routes, _) = open().split_for_parts();
    // Made once: it never changes.
    let document: axum::body::Bytes = document().into();
    routes.route(
        DOCUMENT_PATH,
        get(|| async move { ([("content-type", "application/json")], document) }),
    )
}

/// The OpenAPI document as text.
pub(crate) fn document() -> String {
    let mut head = Head::openapi();
    if let Some(components) = &mut head.components {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        let cookie = ApiKey::Cookie(ApiKeyValue::new(COOKIE));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    }
    let parts = [
        (None, open()),
        (Some(Role::Viewer), viewer()),
        (Some(Role::Operator), operator()),
        (Some(Role::Admin), admin()),
    ];
    for (role, routes) in parts {
        let (_, mut part) = routes.split_for_parts();
        for (path, item) in &mut part.paths.paths {
            for operation in operations(item) {
                describe(operation, path, role);
            }
        }
        head.merge(part);
    }
    let mut text = head.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().filter_map(Option::as_mut)
}

/// Adds what holds for every route: who may call it, and how it can fail.
fn describe(operation: &mut Operation, path: &str, role: Option<Role>) {
    let needs = |scheme| role.map(|role| SecurityRequirement::new(scheme, [role.as_str()]));
    operation.security = role.map(|_| ["token", "session"].into_iter().filter_map(needs).collect());
    let mut problems = vec![
        (400, "The request cannot be understood"),
        (401, "No token, or one that is wrong or expired"),
        (403, "The role is not enough, or the request comes from a page of another site"),
        (429, "Too many requests; `Retry-After` says when to come back"),
        (500, "The database refused; the server's log has its words"),
        (503, "The database does not answer right now"),
        (504, "No answer in time; whether a change was made is not known"),
    ];
    if operation.request_body.is_some() {
        problems.push((413, "The body is too large"));
        problems.push((415, "The body has another content type"));
        problems.push((422, "The body does not fit"));
    }
    if path.contains('{') {
        problems.push((404, "There is no such thing"));
    }
    for (status, description) in problems {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content)
            .build();
        let responses = &mut operation.responses.responses;
        responses.entry(status.to_string()).or_insert(RefOr::T(response));
    }
}
