//! Several relays on one outbox.

use std::time::Duration;

use postrider_testkit::{Answer, Daemon, eventually};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    four_relays_deliver_20_000_events_once_each,
    of_twenty_killed_relays_nothing_is_lost_and_nothing_is_blamed,
});

/// Kills of one relay, one after the other.
const KILLS: usize = 20;

async fn four_relays_deliver_20_000_events_once_each(place: Place) {
    const EVENTS: usize = 20_000;
    let settings = Settings::new()
        // A busy machine is not a dead relay; a take-over would deliver twice, as it should.
        .relay("lease", "60s")
        .relay("heartbeat_every", "1s")
        .outbox("batch", 250)
        .outbox("on_success", "delete")
        .sink("timeout", "60s");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let mut events = Vec::new();
    for _ in 0..EVENTS / 2_000 {
        events.extend(scene.append_orders(2_000).await);
    }
    let site = &scene.site;
    let relays: [Daemon; 4] =
        tokio::join!(site.start(), site.start(), site.start(), site.start()).into();
    eventually("everything was received", async || (scene.target.count() >= EVENTS).then_some(()))
        .await;
    scene.drained().await;

    assert_eq!(scene.target.count(), EVENTS, "each exactly once");
    // A relay counts when it has heard of the commit that the test may have seen before.
    let processed = eventually("the relays have counted everything", async || {
        let mut processed = Vec::new();
        for relay in &relays {
            let metrics = relay.metrics().await;
            processed.push(metrics.sum("postrider_outbox_processed_total", &[]));
        }
        (processed.iter().sum::<f64>() == EVENTS as f64).then_some(processed)
    });
    let processed = processed.await;
    assert!(processed.iter().filter(|count| **count > 0.0).count() > 1, "{processed:?}");
    for relay in relays {
        relay.stop().await;
    }
    scene.settle_up(&events, 0).await;
}

async fn of_twenty_killed_relays_nothing_is_lost_and_nothing_is_blamed(place: Place) {
    let settings = Settings::new()
        .relay("lease", "1500ms")
        .relay("heartbeat_every", "400ms")
        .outbox("batch", 20)
        .sink("host_concurrency_max", 4);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    // Slow enough that a kill meets a batch in flight.
    scene.target.answer(Answer::ok().after(Duration::from_millis(30)));
    let survivor = scene.site.start().await;
    let mut events: Vec<Committed> = Vec::new();
    for _ in 0..KILLS {
        events.extend(scene.append_orders(50).await);
        let victim = scene.site.start().await;
        // The name of a relay ends with its process id.
        let held = format!(
            "SELECT count(*) FROM {} WHERE status = 'PROCESSING' AND locked_by LIKE '%/{}'",
            scene.db.outbox.table(),
            victim.pid()
        );
        eventually("the relay holds a batch", async || {
            // A survivor that was faster must not leave the victim without work.
            if scene.db.count("").await == 0 {
                events.extend(scene.append_orders(50).await);
            }
            (scene.db.integer(&held).await > 0).then_some(())
        })
        .await;
        victim.kill().await;
    }
    scene.target.answer(Answer::ok());
    scene.drained().await;

    let recovered = survivor.metrics().await.sum("postrider_outbox_stalled_recovered_total", &[]);
    assert!(recovered > 0.0, "the dead relays' events come back through recovery");
    survivor.logs("stalled events recovered").await;
    eventually("the dead relays are off the list", async || {
        (scene.db.integer("SELECT count(*) FROM postrider_relays").await == 1).then_some(())
    })
    .await;
    assert_eq!(scene.db.count("_dlq").await, 0, "no innocent event is dead-lettered");
    survivor.stop().await;
    scene.settle_up(&events, 0).await;
}
