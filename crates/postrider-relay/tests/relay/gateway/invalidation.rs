//! A change ends the cached answers of its target (RFC 9111, 4.4), in memory and in Redis.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use http::Method;
use postrider_relay::{
    Batch, Outcome, Sink,
    gateway::{Call, GatewaySettings, GatewaySink},
};
use postrider_store::Event;
use postrider_testkit::{
    TestDb,
    http::{Receiver, Reply as Says},
    relay::held_event,
};
use serde_json::json;
use tokio::time::Instant;

use super::cache::{named, on_redis, other_process, redis};
use super::changes::next_millisecond;
use super::{Scene, header, hello};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        a_live_change_ends_the_answers_of_its_target,
        a_live_change_ends_the_answers_of_its_target_in_redis,
        a_refused_change_ends_nothing,
        an_answer_that_was_under_way_during_a_change_is_not_given_again,
        an_answer_that_was_under_way_during_a_change_is_not_given_again_from_redis,
        a_saved_change_ends_the_answers_of_its_target_when_it_is_made,
        a_saved_change_ends_the_answers_of_its_target_in_redis_when_it_is_made,
        a_change_by_another_process_ends_answers,
        who_asks_after_a_change_does_not_share_an_older_call,
    );
}

const TARGET: &str = "/profile";

fn changing(settings: GatewaySettings) -> GatewaySettings {
    let methods = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "POST"];
    GatewaySettings { methods: methods.map(str::to_owned).to_vec(), ..settings }
}

async fn in_memory(db: TestDb) -> Scene {
    Scene::with(db, changing).await
}

async fn in_redis(db: TestDb, test: &str) -> Option<Scene> {
    let url = redis(test)?;
    Some(Scene::with(db, |settings| named(changing(settings), on_redis(&url))).await)
}

/// Returns how the gateway came by its answer: `hit`, `miss` or `stale`.
async fn source(scene: &Scene, target: &str) -> String {
    next_millisecond().await;
    let answer = scene.get(target).await;
    assert_eq!(answer.status(), 200);
    header(&answer, "postrider-cache").to_owned()
}

/// Puts an answer into the cache.
async fn fill(scene: &Scene, target: &str) {
    while source(scene, target).await != "hit" {}
}

async fn a_live_change_ends_the_answers_of_its_target(db: TestDb) {
    live_changes(in_memory(db).await).await;
}

async fn a_live_change_ends_the_answers_of_its_target_in_redis(db: TestDb) {
    let test = "a_live_change_ends_the_answers_of_its_target_in_redis";
    if let Some(scene) = in_redis(db, test).await {
        live_changes(scene).await;
    }
}

async fn live_changes(scene: Scene) {
    fill(&scene, "/other").await;
    for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::POST] {
        for (number, key) in [None, Some("a"), Some("b")].into_iter().enumerate() {
            fill(&scene, TARGET).await;
            let key = key.map(|key| format!("{method}-{key}"));
            let headers: Vec<_> = key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
            assert_eq!(scene.send(method.clone(), TARGET, &headers).await.status(), 200);
            assert_eq!(source(&scene, TARGET).await, "miss", "after {method} {number}");
            assert_eq!(source(&scene, TARGET).await, "hit", "the new answer is kept");
        }
    }
    assert_eq!(source(&scene, "/other").await, "hit", "what was not changed");
}

async fn a_refused_change_ends_nothing(db: TestDb) {
    let scene = in_memory(db).await;
    fill(&scene, TARGET).await;
    scene.says(|_| Says::Status(422));
    assert_eq!(scene.send(Method::PUT, TARGET, &[]).await.status(), 422);
    scene.says(hello);
    assert_eq!(source(&scene, TARGET).await, "hit");
}

async fn an_answer_that_was_under_way_during_a_change_is_not_given_again(db: TestDb) {
    answer_under_way(in_memory(db).await).await;
}

async fn an_answer_that_was_under_way_during_a_change_is_not_given_again_from_redis(db: TestDb) {
    let test = "an_answer_that_was_under_way_during_a_change_is_not_given_again_from_redis";
    if let Some(scene) = in_redis(db, test).await {
        answer_under_way(scene).await;
    }
}

/// The upstream may have made the answer before the change.
async fn answer_under_way(scene: Scene) {
    scene.server.shut();
    let both = async {
        let get = scene.get(TARGET);
        let put = async {
            scene.server.until("the read is there", |all| all.requests.len() == 1).await;
            next_millisecond().await;
            scene.send(Method::PUT, TARGET, &[]).await
        };
        tokio::join!(get, put)
    };
    let open = async {
        scene.server.until("both are there", |all| all.requests.len() == 2).await;
        scene.server.open();
    };
    let ((get, put), ()) = tokio::join!(both, open);
    assert_eq!((get.status().as_u16(), put.status().as_u16()), (200, 200));
    assert_eq!(source(&scene, TARGET).await, "miss");
}

async fn a_saved_change_ends_the_answers_of_its_target_when_it_is_made(db: TestDb) {
    saved_changes(in_memory(db).await).await;
}

async fn a_saved_change_ends_the_answers_of_its_target_in_redis_when_it_is_made(db: TestDb) {
    let test = "a_saved_change_ends_the_answers_of_its_target_in_redis_when_it_is_made";
    if let Some(scene) = in_redis(db, test).await {
        saved_changes(scene).await;
    }
}

/// What counts is when the relay made it, not when its caller asked for it.
async fn saved_changes(scene: Scene) {
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    for (method, redrive_count) in [("PUT", 0), ("DELETE", 0), ("POST", 0), ("PUT", 1)] {
        fill(&scene, TARGET).await;
        let key = format!("{method}-{redrive_count}");
        let payload = json!({ "method": method, "target": TARGET, "idempotency_key": key,
            "body": "x", "asked_at_ms": 2 });
        let event = Event { payload: payload.to_string(), redrive_count, ..held_event(1) };
        let deadline = Instant::now() + Duration::from_secs(60);
        let outcomes = sink.deliver(Batch::new(&[event], deadline)).await;
        assert_eq!(outcomes, [Outcome::Delivered], "{key}");
        assert_eq!(source(&scene, TARGET).await, "miss", "after {key}");
    }
}

fn as_of_another_process(scene: &Scene, url: &str, server: &Receiver) -> GatewaySettings {
    changing(GatewaySettings {
        name: scene.gateway.name().to_owned(),
        cache: on_redis(url),
        ..GatewaySettings::new("", server.url("/v1"))
    })
}

async fn a_change_by_another_process_ends_answers(db: TestDb) {
    let test = "a_change_by_another_process_ends_answers";
    let (Some(url), Some(scene)) = (redis(test), in_redis(db, test).await) else { return };
    fill(&scene, TARGET).await;
    let other = other_process(&scene, as_of_another_process(&scene, &url, &scene.server)).await;
    let put = other.fetch(Call::new(Method::PUT, TARGET).unwrap()).await.into_response();
    assert_eq!(put.status(), 200);
    assert_eq!(source(&scene, TARGET).await, "miss");
}

async fn who_asks_after_a_change_does_not_share_an_older_call(db: TestDb) {
    let test = "who_asks_after_a_change_does_not_share_an_older_call";
    let (Some(url), Some(scene)) = (redis(test), in_redis(db, test).await) else { return };
    let quick = Receiver::start(hello).await;
    let other = other_process(&scene, as_of_another_process(&scene, &url, &quick)).await;
    scene.server.shut();
    let mut older = pin!(scene.get(TARGET));
    assert!(poll!(&mut older).is_pending());
    let first = scene.server.until("the older call is there", |all| all.requests.len() == 1);
    tokio::select! {
        () = first => {}
        _ = &mut older => panic!("it is held back"),
    }
    next_millisecond().await;
    let put = other.fetch(Call::new(Method::PUT, TARGET).unwrap()).await.into_response();
    assert_eq!(put.status(), 200);
    next_millisecond().await;
    let mut newer = pin!(scene.get(TARGET));
    assert!(poll!(&mut newer).is_pending());
    scene.server.open();
    let (older, newer) = tokio::join!(older, newer);
    assert_eq!((older.status().as_u16(), newer.status().as_u16()), (200, 200));
    assert_eq!(scene.asked().len(), 2, "the newer caller's answer was asked for after the change");
}
