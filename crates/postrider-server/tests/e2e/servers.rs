//! What only a database server does: commits that come late, and crashes of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider::NewEvent;
use postrider_store::Appender;
use postrider_testkit::{
    Answer, FaultProxy, PATIENCE, PrivateServer, TestDb, conformance::steps::order, eventually,
};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql: {
    a_late_commit_is_delivered,
    a_daemon_survives_crashes_of_its_database,
    a_daemon_whose_session_is_cut_while_it_starts_tries_again,
});

/// The smaller id commits when larger ones are long delivered, and claims have moved on.
async fn a_late_commit_is_delivered(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new().outbox("batch", 10)).await else {
        return;
    };
    let daemon = scene.site.start().await;
    let mut slow = scene.db.begin().await;
    let early = slow.append(&scene.db.outbox, &order(1)).await.unwrap();
    let postrider::Appended::New { id, event_id } = early else { panic!("{early:?}") };
    let mut all = Vec::new();
    for _ in 0..3 {
        let newer = scene.append_orders(40).await;
        assert!(newer.iter().all(|event| event.id > id));
        scene.received(&newer).await;
        all.extend(newer);
    }
    eventually("the larger ids are settled", async || {
        (scene.db.count("_archive").await == 120).then_some(())
    })
    .await;
    assert!(scene.target.calls(&event_id).is_empty(), "it is not committed yet");
    slow.commit().await.unwrap();
    all.push(crate::scene::Committed { id, event_id });
    scene.received(&all).await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&all, 0).await;
}

/// At any moment of the start: the first request of all, and the question about the tables. What is
/// wrong for good still ends it.
async fn a_daemon_whose_session_is_cut_while_it_starts_tries_again(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&scene.db.url).await;
    for (cut, request) in ["", "postrider_schema"].into_iter().enumerate() {
        proxy.lose_answer_to(request.as_bytes());
        let daemon = scene.site.launch(&[], &[("POSTRIDER_STORE__URL", &url)]).await;
        daemon.ready().await;
        assert_eq!(proxy.answers_lost(), cut as u64 + 1, "the session was cut");
        assert!(daemon.log().contains("the start waits for the store"), "{}", daemon.log());
        daemon.stop().await;
    }
    let unknown = scene.db.url.replace("/postrider_", "/no_such_");
    assert_ne!(unknown, scene.db.url);
    let ran = scene.site.run(&["--store", &unknown, "run"]).await;
    let _ = ran.exits(1).says(&["[store]", "no_such_"]);
}

async fn a_daemon_survives_crashes_of_its_database(place: Place) {
    let Some(server) = PrivateServer::start(place.server, place.test).await else { return };
    let settings = Settings::new().outbox("batch", 20);
    let scene = Scene::with(TestDb::on(place.server, &server).await, &settings).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.target.answer(Answer::ok().after(Duration::from_millis(5)));
    let mut daemon = scene.site.start().await;
    let enough = Arc::new(AtomicBool::new(false));
    let traffic = tokio::spawn(traffic(scene.db.clone(), Arc::clone(&enough)));

    for _ in 0..2 {
        let before = scene.target.count();
        let more = async || (scene.target.count() > before + 60).then_some(());
        eventually("events are delivered", more).await;
        server.kill().await;
        let unready = eventually("the daemon is not ready", async || {
            let answer = daemon.get("/readyz").await.unwrap();
            (answer.status != 200).then_some(answer)
        });
        let unready = unready.await;
        assert_eq!(unready.status, 503, "{unready:?}");
        assert_eq!(unready.headers["content-type"], "application/problem+json");
        assert_eq!(unready.json()["detail"], "the database does not answer");
        assert_eq!(daemon.get("/healthz").await.unwrap().status, 200, "the daemon itself is well");
        server.restart().await;
        daemon.ready().await;
    }
    let before = scene.target.count();
    eventually("deliveries go on", async || (scene.target.count() > before + 60).then_some(()))
        .await;
    enough.store(true, Ordering::Relaxed);
    let events = traffic.await.unwrap();
    scene.drained().await;
    assert!(daemon.is_running());
    daemon.stop().await;
    assert_eq!(scene.db.count("_dlq").await, 0, "a crash of the database is not an event's fault");
    scene.settle_up(&events, 0).await;
}

/// An application that writes one event after the other and repeats what it is not sure of, with
/// the same request id. Returns what was committed.
async fn traffic(db: TestDb, enough: Arc<AtomicBool>) -> Vec<Committed> {
    let appender = Appender::connect(&db.url, 2).await.unwrap();
    let mut events = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let number = db.next_number();
        let event_id = uuid::Uuid::now_v7();
        let event: NewEvent = order(number).request_id(format!("r-{number}")).event_id(event_id);
        let asked = Instant::now();
        let id = loop {
            assert!(asked.elapsed() < PATIENCE, "event {number} is not taken");
            let append = appender.append_all(&db.outbox, std::slice::from_ref(&event));
            // A connection to a server that was killed may stay silent.
            match tokio::time::timeout(Duration::from_secs(5), append).await {
                Ok(Ok(answers)) => break answers[0].id(),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        events.push(Committed { id, event_id: event_id.to_string() });
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    events
}
