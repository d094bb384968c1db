//! `/api/v1`: everything that an operator can see and do.
//!
//! Each route is listed once, below, under the role that it needs; its description is at its
//! handler. The OpenAPI document is generated from both.

mod alerts;
mod append;
mod audit;
mod dead_letter_actions;
mod dead_letters;
mod events;
mod jobs;
mod limits;
mod outboxes;
mod pages;
mod pauses;
mod reconcile;
mod relays;
mod session;
mod sinks;
mod stream;
mod traffic;
mod transfer;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{ContentBuilder, PathItem, Ref, RefOr, Response, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ServerState;
use super::access::{self, COOKIE, Role};
use super::problem::Problem;
pub(crate) use outboxes::ClaimWord;
pub(crate) use pauses::PauseBody;
pub(crate) use reconcile::Reconciler;
pub(crate) use relays::{DownBody, down};
pub(crate) use traffic::{TrafficBody, traffic};

const DOCUMENT_PATH: &str = "/api/v1/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postrider",
        description = "What an operator can see and do. Errors are problem documents (RFC 9457). \
                       Times are RFC 3339 in UTC. Lists are newest first; `next` leads to the next \
                       page, and `complete: false` says that there was no time to search further."
    ),
    servers((url = "/", description = "The server that this document comes from")),
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
        .routes(routes!(transfer::export))
        .routes(routes!(dead_letters::show))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(relays::list))
        .routes(routes!(relays::lanes))
        .routes(routes!(relays::blocked_keys))
        .routes(routes!(sinks::list))
        .routes(routes!(alerts::list))
        .routes(routes!(audit::list))
        .routes(routes!(reconcile::show))
        .routes(routes!(stream::stream))
}

fn operator() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new()
        .routes(routes!(append::append))
        .routes(routes!(dead_letter_actions::retry))
        .routes(routes!(dead_letter_actions::resolve))
        .routes(routes!(dead_letter_actions::reopen))
        .routes(routes!(dead_letter_actions::resend))
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
    OpenApiRouter::new().routes(routes!(outboxes::set_claim)).routes(routes!(transfer::import))
}

/// Signing in and out: the caller is not identified yet.
fn open() -> OpenApiRouter<ServerState> {
    OpenApiRouter::new().routes(routes!(session::sign_in, session::sign_out))
}

/// Returns the routes that need a role.
pub(crate) fn routes() -> Router<ServerState> {
    let roles = [(Role::Viewer, viewer()), (Role::Operator, operator()), (Role::Admin, admin())];
    roles.into_iter().fold(Router::new(), |all, (role, routes)| {
        let (routes, _) = routes.split_for_parts();
        all.merge(routes.route_layer(from_fn_with_state(role, access::require)))
    })
}

/// Returns the routes that need no role.
pub(crate) fn open_routes() -> Router<ServerState> {
    let (routes, _) = open().split_for_parts();
    // Built once: it never changes.
    let document: axum::body::Bytes = document().into();
    routes.route(
        DOCUMENT_PATH,
        get(|| async move { ([("content-type", "application/json")], document) }),
    )
}

/// Returns the OpenAPI document as text.
pub(crate) fn document() -> String {
    let mut head = Head::openapi();
    if let Some(components) = &mut head.components {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        let cookie = ApiKey::Cookie(ApiKeyValue::new(COOKIE));
        components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
        let failures = failures().map(|(name, response)| (name.to_owned(), RefOr::T(response)));
        components.responses.extend(failures);
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
    limits::add(&mut head);
    let mut text = head.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().filter_map(Option::as_mut)
}

/// The ways in which a route can fail: status, name in the document, description.
const FAILURES: [(&str, &str, &str); 11] = [
    ("400", "BadRequest", "The request cannot be understood"),
    (
        "401",
        "Unauthorized",
        "No token, or one that is wrong or expired; `WWW-Authenticate: Bearer`",
    ),
    ("403", "Forbidden", "The role is not enough, or a page of another site asks"),
    ("404", "NotFound", "There is no such thing"),
    ("413", "TooLarge", "The body is too large"),
    ("415", "WrongType", "The body has another content type"),
    ("422", "DoesNotFit", "The body does not fit"),
    ("429", "TooMany", "Too many requests; `Retry-After` says when to come back"),
    ("500", "Refused", "The database refused; the log of the server has its words"),
    ("503", "Unavailable", "The database does not answer right now, or too many ask"),
    ("504", "NotInTime", "No answer in time; whether a change was made is not known"),
];

fn failures() -> impl Iterator<Item = (&'static str, Response)> {
    FAILURES.into_iter().map(|(_, name, description)| {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(description);
        (name, response.content("application/problem+json", content).build())
    })
}

/// Adds the parts that all routes share: who may call them, and how they can fail.
fn describe(operation: &mut Operation, path: &str, role: Option<Role>) {
    let needs = |scheme| role.map(|role| SecurityRequirement::new(scheme, [role.as_str()]));
    operation.security = role.map(|_| ["token", "session"].into_iter().filter_map(needs).collect());
    for (status, name, _) in FAILURES {
        let possible = match status {
            "404" => path.contains('{'),
            "413" | "415" | "422" => operation.request_body.is_some(),
            _ => true,
        };
        if possible {
            let response = RefOr::Ref(Ref::from_response_name(name));
            operation.responses.responses.entry(status.to_owned()).or_insert(response);
        }
    }
}
