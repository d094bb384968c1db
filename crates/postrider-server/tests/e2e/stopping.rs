//! SIGTERM.

use std::time::{Duration, Instant};

use postrider_testkit::{Answer, eventually};

use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    a_stop_under_load_leaves_nothing_processing,
    a_stop_does_not_wait_for_a_receiver_that_hangs,
});

async fn nothing_is_held(scene: &Scene) {
    assert_eq!(scene.rows("PROCESSING").await, 0);
    assert_eq!(scene.db.integer("SELECT count(*) FROM postrider_relays").await, 0);
}

async fn a_stop_under_load_leaves_nothing_processing(place: Place) {
    let settings = Settings::new().outbox("batch", 50);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.target.answer(Answer::ok().after(Duration::from_millis(20)));
    let events = scene.append_orders(2_000).await;
    let daemon = scene.site.start().await;
    eventually("deliveries are under way", async || (scene.target.count() > 100).then_some(()))
        .await;
    let log = daemon.stop().await;
    assert!(log.contains("stopped"), "{log}");
    nothing_is_held(&scene).await;
    let left = scene.reconcile().await["pending"]["count"].as_i64().unwrap();
    assert!(left > 0, "it stopped in the middle");

    scene.target.answer(Answer::ok());
    let successor = scene.site.start().await;
    scene.drained().await;
    successor.stop().await;
    nothing_is_held(&scene).await;
    assert_eq!(scene.target.count(), events.len(), "a graceful stop delivers nothing twice");
    scene.settle_up(&events, 0).await;
}

async fn a_stop_does_not_wait_for_a_receiver_that_hangs(place: Place) {
    let stop_timeout = Duration::from_secs(1);
    let settings = Settings::new()
        .relay("stop_timeout", "1s")
        .outbox("deliver_timeout", "120s")
        .sink("timeout", "120s");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.target.answer(Answer::hang());
    let events = scene.append_orders(30).await;
    let mut daemon = scene.site.start().await;
    eventually("the receiver hangs", async || (scene.target.count() >= 10).then_some(())).await;
    let started = Instant::now();
    daemon.terminate().await;
    let code = daemon.exit_within(Duration::from_secs(60)).await;
    assert_eq!(code, Some(0), "{}", daemon.log());
    // A few seconds to give the rows back, on a machine that may be busy.
    let took = started.elapsed();
    assert!(took < stop_timeout + Duration::from_secs(15), "stopping took {took:?}");
    nothing_is_held(&scene).await;

    scene.target.answer(Answer::ok());
    let successor = scene.site.start().await;
    scene.drained().await;
    successor.stop().await;
    scene.settle_up(&events, 0).await;
}
