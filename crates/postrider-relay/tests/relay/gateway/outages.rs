//! An upstream that is down: what is saved, what is repeated, and who is alerted.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use postrider_relay::{Preset, gateway::GatewaySettings};
use postrider_store::OnSuccess;
use postrider_testkit::{
    TestDb, eventually,
    http::Reply as Says,
    on_each_store,
    relay::{RecordedAlerts, RunningRelay},
};

use super::{Scene, header, hello, preset, problem, text};

on_each_store!(
    calls_of_an_outage_are_saved_once_repeated_once_and_in_the_cache_afterwards,
    a_change_with_a_key_is_repeated_with_the_same_key_and_our_credentials,
    the_answer_to_a_repeated_call_is_kept_with_the_call,
);

mod alone {
    postrider_testkit::on_store!(sqlite:
        a_change_without_a_key_is_not_saved_and_the_answer_does_not_claim_so,
        while_it_counts_as_down_nobody_waits_and_a_caller_finds_out_that_it_is_back,
        a_change_without_a_key_finds_out_that_it_is_back,
        an_old_answer_is_given_while_it_is_down_and_the_call_is_saved,
        a_saved_call_that_was_answered_meanwhile_is_not_repeated_and_is_no_sign_of_life,
        a_saved_call_that_gets_a_definite_answer_is_done,
        a_change_that_is_refused_at_replay_is_a_dead_letter,
        a_saved_call_that_always_times_out_dies_although_only_callers_succeed,
        refused_credentials_alert_although_no_event_was_sent,
        a_payload_that_is_no_call_is_a_dead_letter,
    );
}

async fn calls_of_an_outage_are_saved_once_repeated_once_and_in_the_cache_afterwards(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.until_it_counts_as_down().await;
    let targets: Vec<String> = (0..20).map(|number| format!("/character/{number}")).collect();
    for _ in 0..3 {
        for answer in join_all(targets.iter().map(|target| scene.get(target))).await {
            assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (503, "60"));
            let problem = problem(&answer);
            assert_eq!((&problem["status"], &problem["saved"]), (&503.into(), &true.into()));
            assert!(problem["detail"].as_str().unwrap().contains("saved"), "{problem}");
        }
    }
    assert_eq!(scene.db.count("").await, 26, "20, and 6 that made it count as down: each once");
    let table = scene.outbox.table();
    let saved = format!(
        "SELECT count(*) FROM {table} WHERE aggregate_type = 'nexon' AND \
         aggregate_id = '/character/7' AND event_type = 'GET /character'"
    );
    assert_eq!(scene.db.integer(&saved).await, 1);

    let before = scene.asked().len();
    scene.says(hello);
    let relay = scene.relay();
    scene.drained().await;
    let asked = scene.asked().split_off(before);
    for target in &targets {
        let times = asked.iter().filter(|asked| **asked == format!("/v1{target}")).count();
        assert_eq!(times, 1, "{target} in {asked:?}");
        let answer = scene.get(target).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "postrider-cache")), (200, "hit"));
    }
    relay.stop().await;
    assert_eq!(scene.db.count("_dlq").await, 0);
}

async fn the_answer_to_a_repeated_call_is_kept_with_the_call(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| Says::Status(503));
    let saved = scene.get("/character/7").await;
    assert_eq!(problem(&saved)["saved"], true);
    scene.says(|_| Says::Full(200, Vec::new(), r#"{"level":7}"#.to_owned()));
    let preset = Preset { on_success: OnSuccess::Archive, ..preset() };
    let relay = RunningRelay::start(scene.relay_of(preset));
    scene.drained().await;
    relay.stop().await;
    let table = scene.outbox.table();
    let kept = format!(r#"SELECT count(*) FROM {table}_archive WHERE response = '{{"level":7}}'"#);
    assert_eq!(scene.db.integer(&kept).await, 1);
}

async fn a_change_with_a_key_is_repeated_with_the_same_key_and_our_credentials(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    scene.says(|_| Says::Status(503));
    let headers = [
        ("idempotency-key", "order-1"),
        ("authorization", "Bearer of-the-caller"),
        ("content-type", "application/json"),
    ];
    let saved = scene.send(Method::POST, "/points", &headers).await;
    assert_eq!(problem(&saved)["saved"], true);
    scene.says(hello);
    let relay = scene.relay();
    scene.drained().await;
    relay.stop().await;
    let received = scene.server.received();
    let repeat = received.requests.last().unwrap();
    assert_eq!((repeat.method.as_str(), repeat.target.as_str()), ("POST", "/v1/points"));
    assert_eq!((repeat.body.as_str(), repeat.header("idempotency-key")), ("{}", vec!["order-1"]));
    assert_eq!(repeat.header("x-api-key"), ["of the settings"]);
    assert_eq!(repeat.header("content-type"), ["application/json"]);
    assert!(repeat.header("authorization").is_empty());
    drop(received);
    let answer = scene.send(Method::POST, "/points", &headers).await;
    assert_eq!(
        header(&answer, "postrider-cache"),
        "hit",
        "the caller gets the answer of the repeat"
    );
}

async fn a_change_without_a_key_is_not_saved_and_the_answer_does_not_claim_so(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    scene.says(|_| Says::Status(503));
    let answer = scene.send(Method::POST, "/points", &[]).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (503, "60"));
    assert_eq!(problem(&answer)["saved"], false);
    assert!(text(&answer).contains("not saved"), "{}", text(&answer));
    assert_eq!(scene.db.count("").await, 0);
}

async fn while_it_counts_as_down_nobody_waits_and_a_caller_finds_out_that_it_is_back(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.until_it_counts_as_down().await;
    // No relay runs. The upstream does not answer at all: a caller that waited for it would wait 5
    // s.
    scene.says(|_| Says::Silence);
    let before = scene.asked().len();
    eventually("a caller's call is the probe", async || {
        let asked = tokio::time::timeout(Duration::from_secs(2), scene.get("/character/1")).await;
        assert_eq!(asked.expect("no call waits").status(), 503);
        (scene.asked().len() > before).then_some(())
    })
    .await;
    for number in 0..20 {
        assert_eq!(scene.get(&format!("/character/{number}")).await.status(), 503);
    }
    assert_eq!(scene.asked().len(), before + 1, "one probe at a time");

    scene.says(hello);
    eventually("it is back", async || {
        (scene.get("/character/2").await.status() == 200).then_some(())
    })
    .await;
}

async fn a_change_without_a_key_finds_out_that_it_is_back(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["GET".to_owned(), "POST".to_owned()],
        ..settings
    })
    .await;
    scene.until_it_counts_as_down().await;
    scene.says(hello);
    eventually("it is back", async || {
        (scene.send(Method::POST, "/points", &[]).await.status() == 200).then_some(())
    })
    .await;
}

async fn an_old_answer_is_given_while_it_is_down_and_the_call_is_saved(db: TestDb) {
    let (ttl, stale_ttl) = (Duration::from_millis(1), Duration::from_secs(60));
    let scene = Scene::with(db, |settings| GatewaySettings { ttl, stale_ttl, ..settings }).await;
    assert_eq!(scene.get("/character/1").await.status(), 200);
    scene.says(|_| Says::Status(503));
    let stale = eventually("the answer is old", async || {
        let answer = scene.get("/character/1").await;
        (header(&answer, "postrider-cache") == "stale").then_some(answer)
    })
    .await;
    assert_eq!((stale.status().as_u16(), text(&stale)), (200, "hello /v1/character/1"));
    eventually("the call is saved", async || (scene.db.count("").await == 1).then_some(())).await;
    assert_eq!(scene.get("/character/2").await.status(), 503, "nothing old is known of this one");
}

async fn a_saved_call_that_was_answered_meanwhile_is_not_repeated_and_is_no_sign_of_life(
    db: TestDb,
) {
    let scene = Scene::open(db).await;
    scene.says(|_| Says::Status(503));
    assert_eq!(scene.get("/character/1").await.status(), 503);
    scene.says(hello);
    assert_eq!(scene.get("/character/1").await.status(), 200);
    assert_eq!(scene.asked().len(), 2);
    scene.until_it_counts_as_down().await;
    let asked =
        |scene: &Scene, target: &str| scene.asked().iter().filter(|asked| *asked == target).count();
    // The relay settles the call that has its answer; the upstream stays down for the others.
    let relay = scene.relay();
    eventually("the answered call is done", async || {
        let gone = format!(
            "SELECT count(*) FROM {} WHERE aggregate_id = '/character/1'",
            scene.outbox.table()
        );
        (scene.db.integer(&gone).await == 0).then_some(())
    })
    .await;
    assert_eq!(asked(&scene, "/v1/character/1"), 2);
    assert_eq!(scene.get("/character/9").await.status(), 503);
    assert_eq!(scene.db.count("").await, 7);
    relay.stop().await;
}

async fn a_saved_call_that_gets_a_definite_answer_is_done(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| Says::Status(503));
    assert_eq!(scene.get("/character/1").await.status(), 503);
    scene.says(|_| Says::Status(404));
    let relay = scene.relay();
    scene.drained().await;
    relay.stop().await;
    assert_eq!(scene.db.count("_dlq").await, 0);
    assert_eq!(scene.asked().len(), 2, "asked once more, and answered");
    assert_eq!(scene.get("/character/1").await.status(), 404);
}

async fn a_change_that_is_refused_at_replay_is_a_dead_letter(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    scene.says(|_| Says::Status(503));
    let key = [("idempotency-key", "order-1")];
    assert_eq!(problem(&scene.send(Method::POST, "/points", &key).await)["saved"], true);
    scene.says(|_| Says::Status(422));
    let relay = scene.relay();
    eventually("it is a dead letter", async || (scene.db.count("_dlq").await == 1).then_some(()))
        .await;
    relay.stop().await;
}

/// It must not be tried forever: callers show that the upstream is healthy.
async fn a_saved_call_that_always_times_out_dies_although_only_callers_succeed(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|request| match request.target.as_str() {
        "/v1/poison" => Says::Close,
        _ => hello(request),
    });
    assert_eq!(scene.get("/poison").await.status(), 503);
    let relay = scene.relay();
    let mut number = 0;
    eventually("the poison is a dead letter", async || {
        number += 1;
        let answer = scene.get(&format!("/character/{number}")).await;
        assert_eq!(answer.status(), 200, "{}", text(&answer));
        (scene.db.count("_dlq").await == 1).then_some(())
    })
    .await;
    relay.stop().await;
}

async fn refused_credentials_alert_although_no_event_was_sent(db: TestDb) {
    // Saved calls are not due within this test: only callers ask.
    let replay_after = Duration::from_secs(3600);
    let scene = Scene::with(db, |settings| GatewaySettings { replay_after, ..settings }).await;
    let people = RecordedAlerts::new(false);
    let relay = RunningRelay::start(scene.unstarted_relay().alert_channel(people.subscribed()));
    scene.says(|_| Says::Status(401));
    assert_eq!(scene.get("/character/1").await.status(), 503);
    people.until("refuses our credentials").await;
    scene.says(hello);
    assert_eq!(scene.get("/character/1").await.status(), 200);
    people.until_resolved("takes our credentials").await;
    relay.stop().await;
}

async fn a_payload_that_is_no_call_is_a_dead_letter(db: TestDb) {
    let scene = Scene::open(db).await;
    for payload in ["{}", "no JSON", r#"{"method":"GET","target":"/../admin"}"#] {
        let event = postrider::NewEvent::new("nexon", "x", "GET /x", payload);
        scene.db.append(&[event]).await;
    }
    let relay = scene.relay();
    eventually("all are dead letters", async || (scene.db.count("_dlq").await == 3).then_some(()))
        .await;
    relay.stop().await;
    assert!(scene.asked().is_empty());
}
