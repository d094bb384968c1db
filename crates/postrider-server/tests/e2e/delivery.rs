//! From a transaction to the receiver.

use std::time::Duration;

use postrider::NewEvent;
use postrider_testkit::conformance::steps::order;
use tokio::time::Instant;

use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    only_a_committed_event_is_delivered_with_headers_body_and_hash,
    an_event_waits_for_its_time_and_an_expired_one_is_a_dead_letter,
});

async fn only_a_committed_event_is_delivered_with_headers_body_and_hash(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (db, trace) = (&scene.db, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    db.execute("CREATE TABLE business (number INTEGER)").await;
    let daemon = scene.site.start().await;

    let mut undone = db.begin().await;
    undone.execute("INSERT INTO business VALUES (1)").await.unwrap();
    let lost = undone.append(&db.outbox, &order(1).header("x-tenant", "lost")).await.unwrap();
    undone.rollback().await.unwrap();

    let event = NewEvent::new("order", "n° 2/b", "OrderPlaced", r#"{"order":2,"name":"Ærø"}"#)
        .request_id("request-2")
        .header("x-tenant", "acme")
        .trace_context(trace, Some("vendor=1"));
    let mut done = db.begin().await;
    done.execute("INSERT INTO business VALUES (2)").await.unwrap();
    let kept = done.append(&db.outbox, &event).await.unwrap();
    done.commit().await.unwrap();
    scene.drained().await;

    let received = scene.target.received();
    assert_eq!(received.len(), 1, "only the committed one: {received:#?}");
    let request = &received[0];
    let postrider::Appended::New { event_id, id } = kept else { panic!("{kept:?}") };
    assert_ne!(id, 0);
    assert_ne!(postrider::Appended::New { id, event_id: event_id.clone() }, lost);
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/orders/n%C2%B0%202%2Fb")
    );
    assert_eq!(request.body, r#"{"order":2,"name":"Ærø"}"#);
    for (name, value) in [
        ("idempotency-key", event_id.as_str()),
        ("postrider-event-id", &event_id),
        ("postrider-event-type", "OrderPlaced"),
        ("postrider-aggregate-type", "order"),
        ("postrider-content-hash", &event.content_hash()),
        ("content-type", "application/json"),
        ("traceparent", trace),
        ("tracestate", "vendor=1"),
        ("x-tenant", "acme"),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    assert_eq!(db.integer("SELECT sum(number) FROM business").await, 2);
    daemon.shows("postrider_outbox_processed_total", &[("outbox", "orders")], 1.0).await;
    daemon.stop().await;
    scene.settle_up(&[crate::scene::Committed { id, event_id }], 0).await;
    let archived = scene.json(&["events", "show", &id.to_string()]).await;
    assert_eq!(archived["event"]["status"], "COMPLETED", "{archived:#}");
}

async fn an_event_waits_for_its_time_and_an_expired_one_is_a_dead_letter(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let wait = Duration::from_secs(2);
    let expired = scene.append_one(order(1).expires_after(Duration::from_millis(1))).await;
    let later = scene.append_one(order(2).deliver_after(wait)).await;
    let committed = Instant::now();
    let in_time = scene.append_one(order(3).expires_after(Duration::from_secs(3600))).await;
    let daemon = scene.site.start().await;
    scene.drained().await;

    let waited = scene.target.calls(&later.event_id)[0].at - committed;
    // The database's clock has milliseconds on SQLite, and ours started after its own.
    assert!(waited >= wait - Duration::from_millis(100), "delivered after {waited:?}");
    let dead = scene.dead_letters().await;
    assert_eq!(dead[0]["original_id"], expired.id);
    assert_eq!((&dead[0]["reason"], &dead[0]["retry_count"]), (&"expired".into(), &0.into()));
    let labels = [("reason", "expired"), ("event_type", "OrderPlaced")];
    daemon.shows("postrider_outbox_dlq_total", &labels, 1.0).await;
    daemon.stop().await;
    scene.settle_up(&[later, in_time], 1).await;
}
