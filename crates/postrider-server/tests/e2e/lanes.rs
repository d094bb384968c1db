//! Claim mode `lanes` with real processes.

use std::collections::HashMap;
use std::time::Duration;

use postrider::NewEvent;
use postrider_store::ClaimMode;
use postrider_testkit::{Answer, eventually};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    relays_killed_under_traffic_lose_nothing_and_break_no_order,
    the_commands_show_and_change_what_relays_do,
});

fn in_turn(round: usize) -> Vec<NewEvent> {
    (0..60)
        .map(|n| {
            let payload = format!(r#"{{"n": {}}}"#, round * 60 + n);
            NewEvent::new("account", format!("key-{}", n % 12), "Moved", payload)
        })
        .collect()
}

/// Of all copies the first of each event counts; per key they come as they were appended.
fn assert_in_order(scene: &Scene, events: &[Committed]) {
    let ids: HashMap<&str, i64> =
        events.iter().map(|event| (event.event_id.as_str(), event.id)).collect();
    let (mut seen, mut newest) = (std::collections::HashSet::new(), HashMap::new());
    for request in scene.target.received() {
        let id = ids[request.header("postrider-event-id")];
        if seen.insert(id) {
            let key = request.header("postrider-aggregate-id").to_owned();
            let last = newest.entry(key.clone()).or_insert(0);
            assert!(id > *last, "key {key}: {id} after {last}");
            *last = id;
        }
    }
    assert_eq!(seen.len(), events.len());
}

async fn relays_killed_under_traffic_lose_nothing_and_break_no_order(place: Place) {
    let settings = Settings::new()
        .relay("lease", "1500ms")
        .relay("heartbeat_every", "300ms")
        .outbox("claim", "lanes")
        .outbox("batch", 20)
        .sink("timeout", "60s");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.db.store.set_mode(&scene.db.outbox, ClaimMode::Lanes, "test").await.unwrap();
    // Slow enough that a kill meets events in flight.
    scene.target.answer(Answer::ok().after(Duration::from_millis(5)));
    let mut survivor = scene.site.start().await;
    let mut events: Vec<Committed> = Vec::new();
    for round in 0..6 {
        let victim = scene.site.start().await;
        events.extend(scene.append(&in_turn(round)).await);
        let so_far = round * 60 + 20;
        eventually("some were received", async || (scene.target.count() > so_far).then_some(()))
            .await;
        // In turn the one that has been there longer and the one that just came.
        let dying = match round % 2 {
            0 => victim,
            _ => std::mem::replace(&mut survivor, victim),
        };
        dying.kill().await;
    }
    scene.target.answer(Answer::ok());
    scene.drained().await;
    assert_in_order(&scene, &events);
    assert_eq!(scene.db.count("_dlq").await, 0, "no innocent event is dead-lettered");
    survivor.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn the_commands_show_and_change_what_relays_do(place: Place) {
    let settings = Settings::new().outbox("failing_key", "park");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let outbox = scene.db.outbox.name().to_owned();
    let site = &scene.site;
    let _ = site.run(&["outbox", "set-claim", &outbox, "lanes"]).await.exits(0).shows(&["`lanes`"]);
    let _ =
        site.run(&["outbox", "set-claim", &outbox, "rowz"]).await.exits(2).says(&["rows, lanes"]);
    // Rejected, so its key is parked with one event behind.
    scene.target.answer(Answer::status(400));
    let daemon = site.start().await;
    let first = NewEvent::new("account", "42", "Moved", "{}");
    let head = scene.append_one(first.clone()).await;
    scene.has_dead_letters(1).await;
    scene.target.answer(Answer::ok());
    let behind = scene.append_one(first).await;
    let stats = eventually("the key is shown", async || {
        let stats = site.run(&["stats", "--json"]).await.exits(0).json();
        (stats[0]["blocked_keys"][0]["waiting"] == 1).then_some(stats)
    })
    .await;
    assert_eq!(stats[0]["claim"], "lanes");
    assert_eq!(stats[0]["blocked_keys"][0]["parked"], true);
    let _ = site.run(&["stats"]).await.exits(0).shows(&["account / 42", "parked"]);
    let key = ["--aggregate-type", "account", "--aggregate-id"];
    let release = |id: &'static str| [&["outbox", "release-key"][..], &key[..], &[id]].concat();
    let _ = site.run(&release("43")).await.exits(1).says(&["is not parked"]);
    let _ = site.run(&release("42")).await.exits(0).shows(&["goes on"]);
    scene.drained().await;
    let _ = site.run(&["doctor"]).await.exits(0).shows(&["claim mode `lanes`", "1 alive"]);
    daemon.stop().await;
    let _ = site.run(&["doctor"]).await.exits(0).shows(&["none is running"]);
    scene.configure(&Settings::new().outbox("claim", "rows"));
    let _ = site.run(&["doctor"]).await.exits(1).shows(&["set-claim", "rows"]);
    let _ = site.run(&["run"]).await.exits(1).says(&["claim mode `lanes`", "set-claim"]);
    assert!(head.id < behind.id);
}
