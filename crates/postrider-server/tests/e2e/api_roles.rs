//! Every route × every role, in one table.

use std::collections::BTreeSet;

use postrider_testkit::http_client::follow;

use crate::caller::{Caller, with_roles};
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite { every_route_asks_for_its_role_and_no_route_is_forgotten });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    Viewer,
    Operator,
    Admin,
}
use Needs::{Admin, Nothing, Operator, Viewer};

/// Everything below `/api/v1`. A route that is not here fails the test.
const TABLE: &[(&str, &str, Needs)] = &[
    ("POST", "/session", Nothing),
    ("DELETE", "/session", Nothing),
    ("GET", "/whoami", Viewer),
    ("GET", "/outboxes", Viewer),
    ("GET", "/outboxes/{outbox}", Viewer),
    ("GET", "/outboxes/{outbox}/history", Viewer),
    ("GET", "/outboxes/{outbox}/lanes", Viewer),
    ("GET", "/outboxes/{outbox}/blocked-keys", Viewer),
    ("GET", "/outboxes/{outbox}/events", Viewer),
    ("GET", "/outboxes/{outbox}/events/count", Viewer),
    ("GET", "/outboxes/{outbox}/events/{id}", Viewer),
    ("GET", "/outboxes/{outbox}/identities/{event_id}", Viewer),
    ("GET", "/outboxes/{outbox}/dead-letters", Viewer),
    ("GET", "/outboxes/{outbox}/dead-letters/count", Viewer),
    ("GET", "/outboxes/{outbox}/dead-letters/groups", Viewer),
    ("GET", "/outboxes/{outbox}/dead-letters/export", Viewer),
    ("GET", "/outboxes/{outbox}/dead-letters/{id}", Viewer),
    ("GET", "/jobs", Viewer),
    ("GET", "/jobs/{id}", Viewer),
    ("GET", "/relays", Viewer),
    ("GET", "/sinks", Viewer),
    ("GET", "/alerts", Viewer),
    ("GET", "/audit", Viewer),
    ("GET", "/reconcile", Viewer),
    ("GET", "/stream", Viewer),
    ("POST", "/outboxes/{outbox}/events", Operator),
    ("POST", "/outboxes/{outbox}/dead-letters/{id}/retry", Operator),
    ("POST", "/outboxes/{outbox}/dead-letters/{id}/resolve", Operator),
    ("POST", "/outboxes/{outbox}/dead-letters/{id}/reopen", Operator),
    ("POST", "/outboxes/{outbox}/dead-letters/{id}/resend", Operator),
    ("POST", "/outboxes/{outbox}/jobs", Operator),
    ("POST", "/jobs/{id}/stop", Operator),
    ("POST", "/jobs/{id}/resume", Operator),
    ("POST", "/outboxes/{outbox}/blocked-keys/release", Operator),
    ("POST", "/outboxes/{outbox}/pause", Operator),
    ("POST", "/outboxes/{outbox}/resume", Operator),
    ("POST", "/sinks/{sink}/pause", Operator),
    ("POST", "/sinks/{sink}/resume", Operator),
    ("POST", "/reconcile", Operator),
    ("POST", "/dead-letters/import", Admin),
    ("PUT", "/outboxes/{outbox}/claim", Admin),
];

async fn every_route_asks_for_its_role_and_no_route_is_forgotten(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let tokens = with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;

    let document = daemon.get("/api/v1/openapi.json").await.unwrap().json();
    let mut served = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let path = path.strip_prefix("/api/v1").unwrap_or_else(|| panic!("{path} is elsewhere"));
        for method in item.as_object().unwrap().keys() {
            served.insert((method.to_uppercase(), path.to_owned()));
        }
    }
    let listed: BTreeSet<_> =
        TABLE.iter().map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned())).collect();
    assert_eq!(served, listed, "the document and the table of this test");

    let [viewer, operator, admin] = tokens.each_ref().map(|token| Some(token.as_str()));
    let callers = [(Nothing, None), (Viewer, viewer), (Operator, operator), (Admin, admin)];
    for (method, route, needs) in TABLE {
        let path = format!("/api/v1{route}")
            .replace("{outbox}", "orders")
            .replace("{sink}", "api")
            .replace("{event_id}", "nobody")
            .replace("{id}", "4711");
        let said = &document["paths"][format!("/api/v1{route}")][method.to_lowercase()];
        let role = said["security"][0]["token"][0].as_str().unwrap_or("nothing");
        assert_eq!(role, format!("{needs:?}").to_lowercase(), "{method} {route} in the document");
        for (role, token) in callers {
            let status = match *route {
                "/stream" => {
                    let bearer = format!("Bearer {}", token.unwrap_or("none"));
                    let headers = [("authorization", bearer.as_str())];
                    follow(daemon.address(), &path, &headers).await.unwrap().status
                }
                _ => Caller { daemon: &daemon, token }.call(method, &path, "{}").await.status,
            };
            let refused = match (role, *needs) {
                (_, Nothing) => None,
                (Nothing, _) => Some(401),
                (role, needs) => (role < needs).then_some(403),
            };
            match refused {
                Some(expected) => assert_eq!(status, expected, "{method} {path} as {role:?}"),
                None => assert!(
                    ![401, 403, 405, 429].contains(&status) && status < 500,
                    "{method} {path} as {role:?}: {status}"
                ),
            }
        }
    }
    for path in ["/metrics", "/api/v1/whoami"] {
        assert_eq!(daemon.get(path).await.unwrap().status, 401, "{path} without a token");
        assert_eq!(
            Caller { daemon: &daemon, token: viewer }.call("GET", path, "").await.status,
            200
        );
    }
    daemon.stop().await;
}
