//! Lost answers.

use std::time::Duration;

use http::Method;
use postrider_relay::gateway::GatewaySettings;
use postrider_testkit::{FaultProxy, TestDb, eventually, http::Reply as Says, on_each_server};

use super::{Scene, header, hello, problem};

on_each_server!(
    the_answer_to_the_commit_is_lost_and_the_call_is_saved_once_and_not_claimed_before,
    with_the_database_away_the_answer_does_not_claim_that_the_call_was_saved,
);

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        the_upstream_did_it_but_its_answer_was_lost_and_the_repeat_has_the_same_key,
    );
}

async fn the_answer_to_the_commit_is_lost_and_the_call_is_saved_once_and_not_claimed_before(
    db: TestDb,
) {
    let (proxy, through) = FaultProxy::in_front_of(&db.url).await;
    let scene = Scene::saving_to(db, &through, |settings| settings).await;
    scene.says(|_| Says::Status(503));
    proxy.lose_answer_to(b"COMMIT");
    let answer = scene.get("/character/1").await;
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!((answer.status().as_u16(), &problem(&answer)["saved"]), (503, &false.into()));
    assert_eq!(scene.db.count("").await, 1, "the database has it, but we never heard");
    let again = eventually("the database is reached again", async || {
        let answer = scene.get("/character/1").await;
        (problem(&answer)["saved"] == true).then_some(answer)
    })
    .await;
    assert_eq!(again.status(), 503);
    assert_eq!(scene.db.count("").await, 1);
}

async fn with_the_database_away_the_answer_does_not_claim_that_the_call_was_saved(db: TestDb) {
    let (proxy, through) = FaultProxy::in_front_of(&db.url).await;
    let scene = Scene::saving_to(db, &through, |settings| settings).await;
    scene.says(|_| Says::Status(503));
    for fail in [FaultProxy::cut, FaultProxy::blackhole] {
        fail(&proxy);
        let answer = tokio::time::timeout(Duration::from_secs(30), scene.get("/character/1")).await;
        let answer = answer.expect("a caller is not kept waiting");
        assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (503, "60"));
        assert_eq!(problem(&answer)["saved"], false);
        proxy.pass();
    }
    assert_eq!(scene.db.count("").await, 0);
    eventually("it is saved when the database is back", async || {
        (problem(&scene.get("/character/1").await)["saved"] == true).then_some(())
    })
    .await;
}

async fn the_upstream_did_it_but_its_answer_was_lost_and_the_repeat_has_the_same_key(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    scene.says(|_| Says::Close);
    let key = [("idempotency-key", "order-1")];
    let answer = scene.send(Method::POST, "/points", &key).await;
    assert_eq!((answer.status().as_u16(), &problem(&answer)["saved"]), (503, &true.into()));
    scene.says(hello);
    let relay = scene.relay();
    scene.drained().await;
    relay.stop().await;
    let received = scene.server.received();
    let keys: Vec<_> = received.requests.iter().map(|r| r.header("idempotency-key")).collect();
    assert!(keys.len() >= 2 && keys.iter().all(|key| *key == ["order-1"]), "{keys:?}");
}
