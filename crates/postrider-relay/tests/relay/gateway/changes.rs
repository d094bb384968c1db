//! Saved changes next to newer ones of the same target.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Method;
use postrider_relay::{
    Batch, Outcome, Sink,
    gateway::{Call, GatewaySettings, GatewaySink},
};
use postrider_store::Event;
use postrider_testkit::{
    TestDb, eventually,
    http::{Receiver, Reply as Says},
    relay::held_event,
};
use serde_json::json;
use tokio::time::Instant;

use super::cache::{named, on_redis, other_process, redis};
use super::{Scene, hello, problem};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        a_saved_change_does_not_overwrite_a_newer_one,
        a_saved_change_that_its_caller_made_again_is_done,
        of_two_saved_changes_the_older_one_does_not_overwrite_the_newer,
        an_operator_who_retries_a_superseded_change_has_it_made,
        orders_add_up_and_supersede_nothing,
        a_newer_change_by_another_process_counts,
        changes_of_a_target_take_turns_among_processes,
    );
}

const METHODS: [&str; 3] = ["GET", "PUT", "POST"];

fn changing(settings: GatewaySettings) -> GatewaySettings {
    GatewaySettings { methods: METHODS.map(str::to_owned).to_vec(), ..settings }
}

/// Waits for the next millisecond, because times are compared in milliseconds.
pub(super) async fn next_millisecond() {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let before = now();
    while now() == before {
        tokio::task::yield_now().await;
    }
}

/// Makes a change while the upstream is down, so that it is saved, and then lets the upstream
/// recover.
async fn save(scene: &Scene, method: Method, key: &str) {
    scene.says(|_| Says::Status(503));
    let saved = scene.send(method, "/profile", &[("idempotency-key", key)]).await;
    assert_eq!(problem(&saved)["saved"], true);
    scene.says(hello);
    next_millisecond().await;
}

/// Returns the keys of the calls that the upstream received, in order.
fn keys(scene: &Scene) -> Vec<String> {
    let received = scene.server.received();
    let keys = received.requests.iter().flat_map(|request| request.header("idempotency-key"));
    keys.map(str::to_owned).collect()
}

fn saved_at(asked_at_ms: u64, key: &str) -> Event {
    let payload = json!({ "method": "PUT", "target": "/profile", "idempotency_key": key,
        "body": key, "asked_at_ms": asked_at_ms });
    Event { payload: payload.to_string(), ..held_event(1) }
}

async fn replay(scene: &Scene, event: Event) -> Outcome {
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    let deadline = Instant::now() + Duration::from_secs(60);
    sink.deliver(Batch::new(&[event], deadline)).await.remove(0)
}

fn assert_superseded(outcome: &Outcome) {
    let Outcome::CannotEncode { error } = outcome else { panic!("{outcome:?}") };
    assert!(error.starts_with("superseded"), "{error}");
}

async fn a_saved_change_does_not_overwrite_a_newer_one(db: TestDb) {
    let scene = Scene::with(db, changing).await;
    save(&scene, Method::PUT, "old").await;
    // It has no key of its own, but it counts as well.
    assert_eq!(scene.send(Method::PUT, "/profile", &[]).await.status(), 200);
    let relay = scene.relay();
    eventually("the old one is set aside", async || (scene.db.count("").await == 0).then_some(()))
        .await;
    relay.stop().await;
    assert_eq!(keys(&scene), ["old"], "asked for once, and not made");
    assert_eq!(scene.db.count("_dlq").await, 1);
}

async fn a_saved_change_that_its_caller_made_again_is_done(db: TestDb) {
    let ttl = Duration::from_millis(1);
    let scene = Scene::with(db, |settings| GatewaySettings { ttl, ..changing(settings) }).await;
    save(&scene, Method::PUT, "k").await;
    let again = scene.send(Method::PUT, "/profile", &[("idempotency-key", "k")]).await;
    assert_eq!(again.status(), 200);
    next_millisecond().await;
    let relay = scene.relay();
    scene.drained().await;
    relay.stop().await;
    assert_eq!((keys(&scene).len(), scene.db.count("_dlq").await), (2, 0));
}

async fn of_two_saved_changes_the_older_one_does_not_overwrite_the_newer(db: TestDb) {
    let scene = Scene::with(db, changing).await;
    assert_eq!(replay(&scene, saved_at(2, "newer")).await, Outcome::Delivered);
    assert_superseded(&replay(&scene, saved_at(1, "older")).await);
    assert_eq!(replay(&scene, saved_at(3, "newest")).await, Outcome::Delivered);
    assert_eq!(keys(&scene), ["newer", "newest"]);
}

async fn an_operator_who_retries_a_superseded_change_has_it_made(db: TestDb) {
    let scene = Scene::with(db, changing).await;
    assert_eq!(replay(&scene, saved_at(2, "newer")).await, Outcome::Delivered);
    let retried = Event { redrive_count: 1, ..saved_at(1, "older") };
    assert_eq!(replay(&scene, retried).await, Outcome::Delivered);
    assert_eq!(keys(&scene), ["newer", "older"]);
}

async fn orders_add_up_and_supersede_nothing(db: TestDb) {
    let scene = Scene::with(db, changing).await;
    save(&scene, Method::POST, "first").await;
    let second = scene.send(Method::POST, "/profile", &[("idempotency-key", "second")]).await;
    assert_eq!(second.status(), 200);
    let relay = scene.relay();
    scene.drained().await;
    relay.stop().await;
    assert_eq!(keys(&scene), ["first", "second", "first"]);
    assert_eq!(scene.db.count("_dlq").await, 0);
}

async fn a_newer_change_by_another_process_counts(db: TestDb) {
    let Some(url) = redis("a_newer_change_by_another_process_counts") else { return };
    let scene = Scene::with(db, |settings| named(changing(settings), on_redis(&url))).await;
    save(&scene, Method::PUT, "old").await;
    let other = other_process(&scene, changing(on_redis_settings(&scene, &url))).await;
    let newer = Call::new(Method::PUT, "/profile").unwrap().body("newer");
    assert_eq!(other.fetch(newer).await.into_response().status(), 200);
    let relay = scene.relay();
    eventually("the old one is set aside", async || (scene.db.count("").await == 0).then_some(()))
        .await;
    relay.stop().await;
    assert_eq!((keys(&scene).len(), scene.db.count("_dlq").await), (1, 1));
}

/// A repeat that is under way must not reach the API after a newer call of another process.
async fn changes_of_a_target_take_turns_among_processes(db: TestDb) {
    let Some(url) = redis("changes_of_a_target_take_turns_among_processes") else { return };
    let scene = Scene::with(db, |settings| named(changing(settings), on_redis(&url))).await;
    let quick = Receiver::start(hello).await;
    let settings = GatewaySettings {
        url: quick.url("/v1"),
        timeout: Duration::from_millis(300),
        ..changing(on_redis_settings(&scene, &url))
    };
    let other = other_process(&scene, settings).await;
    let newer = async || {
        let call = Call::new(Method::PUT, "/profile").unwrap().body("newer");
        other.fetch(call).await.into_response()
    };
    scene.server.shut();
    let mut older = pin!(replay(&scene, saved_at(1, "older")));
    let arrives = scene.server.until("the older change is there", |all| all.requests.len() == 1);
    tokio::select! {
        () = arrives => {}
        _ = &mut older => panic!("it is held back"),
    }
    let early = newer().await;
    assert_eq!(early.status(), 503);
    let detail = problem(&early)["detail"].to_string();
    assert!(detail.contains("another change"), "{detail}");
    assert!(quick.received().requests.is_empty(), "the older change is still under way");
    scene.server.open();
    assert_eq!(older.await, Outcome::Delivered);
    eventually("the turn has ended", async || (newer().await.status() == 200).then_some(())).await;
    assert_superseded(&replay(&scene, saved_at(2, "late")).await);
}

fn on_redis_settings(scene: &Scene, url: &str) -> GatewaySettings {
    GatewaySettings {
        name: scene.gateway.name().to_owned(),
        cache: on_redis(url),
        ..GatewaySettings::new("", scene.server.url("/v1"))
    }
}
