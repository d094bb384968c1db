//! Saved calls that no caller made. Anyone who may append to the outbox can write their payload.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, Sink,
    gateway::{GatewaySettings, GatewaySink},
};
use postrider_store::Event;
use postrider_testkit::{TestDb, relay::held_event};
use serde_json::json;
use tokio::time::Instant;

use super::Scene;

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        a_saved_call_is_made_only_by_a_method_that_callers_have,
        a_saved_call_brings_no_header_that_callers_could_not_send,
        a_saved_call_that_cannot_be_sent_is_not_an_outage,
        a_saved_call_does_not_leave_the_base_path,
    );
}

async fn scene(db: TestDb) -> Scene {
    let methods = vec!["GET".to_owned(), "PUT".to_owned()];
    Scene::with(db, |settings| GatewaySettings { methods, ..settings }).await
}

async fn replay(scene: &Scene, payload: serde_json::Value) -> Outcome {
    let event = Event { payload: payload.to_string(), ..held_event(1) };
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    let deadline = Instant::now() + Duration::from_secs(60);
    sink.deliver(Batch::new(&[event], deadline)).await.remove(0)
}

async fn a_saved_call_is_made_only_by_a_method_that_callers_have(db: TestDb) {
    let scene = scene(db).await;
    for (method, key, named) in [
        ("DELETE", Some("k"), "`methods`"),
        ("TRACE", Some("k"), "`methods`"),
        ("PUT", None, "`idempotency_key`"),
    ] {
        let call = json!({ "method": method, "target": "/a", "idempotency_key": key });
        match replay(&scene, call).await {
            Outcome::CannotEncode { error } => assert!(error.contains(named), "{error}"),
            other => panic!("{method}: {other:?}"),
        }
    }
    assert!(scene.asked().is_empty());
    let call = json!({ "method": "PUT", "target": "/a", "idempotency_key": "k", "body": "b" });
    assert_eq!(replay(&scene, call).await, Outcome::Delivered);
}

async fn a_saved_call_brings_no_header_that_callers_could_not_send(db: TestDb) {
    let scene = scene(db).await;
    let call = json!({
        "method": "PUT", "target": "/a", "idempotency_key": "k", "body": "GET /b HTTP/1.1\r\n\r\n",
        "headers": {
            "accept": "text/plain", "content-length": "0", "authorization": "Bearer forged",
            "host": "elsewhere", "Connection": "close", "x-forwarded-for": "127.0.0.1",
        },
    });
    assert_eq!(replay(&scene, call).await, Outcome::Delivered);
    assert_eq!(scene.get("/next").await.status(), 200);
    assert_eq!(scene.asked(), ["/v1/a", "/v1/next"], "the body is not read as a request");
    let received = scene.server.received();
    let request = &received.requests[0];
    assert_eq!(request.header("accept"), ["text/plain"]);
    assert_eq!(request.body, "GET /b HTTP/1.1\r\n\r\n");
    for name in ["authorization", "connection", "x-forwarded-for"] {
        assert!(request.header(name).is_empty(), "{name}");
    }
    assert!(request.header("host")[0].starts_with("127.0.0.1"));
}

/// If it were sent, it would fail before reaching the upstream, and count as one more failure of
/// it.
async fn a_saved_call_that_cannot_be_sent_is_not_an_outage(db: TestDb) {
    let scene = scene(db).await;
    for call in [
        json!({ "method": "GET", "target": "/a", "headers": { "accept": "a\r\nx: y" } }),
        json!({ "method": "PUT", "target": "/a", "idempotency_key": "a\nb" }),
    ] {
        let outcome = replay(&scene, call).await;
        assert!(matches!(&outcome, Outcome::CannotEncode { .. }), "{outcome:?}");
    }
    assert!(scene.asked().is_empty());
}

async fn a_saved_call_does_not_leave_the_base_path(db: TestDb) {
    let scene = scene(db).await;
    for target in ["/../admin", "/..%2fadmin", "/a/..%5Cadmin", "/..;x/admin", "/%252e%252e/admin"]
    {
        let outcome = replay(&scene, json!({ "method": "GET", "target": target })).await;
        assert!(matches!(&outcome, Outcome::CannotEncode { .. }), "{target}: {outcome:?}");
    }
    assert!(scene.asked().is_empty());
}
