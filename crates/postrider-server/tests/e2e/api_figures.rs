//! What the API tells for the page: figures of all relays, history, limits; and the way back.

use postrider_testkit::{Answer, eventually};
use serde_json::json;

use crate::api::assert_problem;
use crate::caller::Caller;
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    two_relays_tell_what_they_have_in_flight_and_how_long_it_took,
    a_resolution_is_taken_back_over_http_and_by_command,
});

/// The figures are the same whichever of the two servers is asked.
async fn two_relays_tell_what_they_have_in_flight_and_how_long_it_took(place: Place) {
    let rate = toml::from_str::<toml::Table>("events_per_s = 500").unwrap();
    // What hangs is in flight for as long as the test looks.
    let settings = Settings::new().sink("rate", rate).sink("timeout", "50s");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let (first, second) = (scene.site.start().await, scene.site.start().await);
    let delivered = scene.append_orders(20).await;
    scene.received(&delivered).await;
    scene.target.answer(Answer::status(404).body("not yet"));
    let failing = scene.append_orders(1).await;
    scene.has_dead_letters(1).await;
    scene.target.answer(Answer::hang());
    scene.append_orders(2).await;
    for daemon in [&first, &second] {
        let caller = Caller::anonymous(daemon);
        eventually("the figures of both relays", async || {
            let outbox = caller.get("/api/v1/outboxes/orders").await;
            let traffic = &outbox["traffic"];
            let told = traffic["delivered_in_minute"] == 20
                && traffic["in_flight"] == 2
                && traffic["failed_per_s"] == 0.05
                && traffic["latency_p50_ms"].as_f64()? <= traffic["latency_p99_ms"].as_f64()?;
            told.then_some(())
        })
        .await;
        let relays = caller.get("/api/v1/relays").await;
        let relays = relays.as_array().unwrap();
        let in_flight =
            |relay: &serde_json::Value| relay["serving"][0]["traffic"]["in_flight"].as_u64();
        assert_eq!(relays.iter().filter_map(in_flight).sum::<u64>(), 2, "{relays:#?}");
        let history = caller.get("/api/v1/outboxes/orders/history?span=month").await;
        assert!(history[0]["in_flight"].is_u64() && history[0]["failed_per_s"].is_number());
        let sinks = caller.get("/api/v1/sinks").await;
        assert_eq!(sinks[0]["rate"]["events_per_s"], 500.0, "{sinks:#}");
    }
    assert_eq!(failing.len(), 1);
    scene.target.answer(Answer::ok());
    first.kill().await;
    second.kill().await;
}

async fn a_resolution_is_taken_back_over_http_and_by_command(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    scene.append_orders(2).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;
    scene.target.answer(Answer::ok());
    let caller = Caller::anonymous(&daemon);
    let path = |id: i64, verb: &str| format!("/api/v1/outboxes/orders/dead-letters/{id}/{verb}");
    let note = json!({ "note": "why not" });
    caller.post(&path(1, "resolve"), &note).await;
    assert_eq!(caller.post(&path(1, "reopen"), &note).await["id"], 1);
    // The answer was never heard, and the request is repeated.
    let again = caller.call("POST", &path(1, "reopen"), "{}").await;
    assert_problem(&again, 409, "is not resolved", "a repeat");
    caller.post(&path(1, "retry"), &note).await;
    let sent = caller.call("POST", &path(1, "reopen"), "{}").await;
    assert_problem(&sent, 409, "was sent again", "what was sent");
    let unknown = caller.call("POST", &path(4_711, "reopen"), "{}").await;
    assert_problem(&unknown, 404, "no dead letter 4711", "nothing");

    let _ = scene.site.run(&["dlq", "resolve", "2", "--note", "x"]).await.exits(0);
    let _ =
        scene.site.run(&["dlq", "reopen", "2", "--note", "y"]).await.exits(0).shows(&["1 open"]);
    let refused = scene.site.run(&["dlq", "reopen", "2", "1"]).await.exits(1);
    let _ = refused.says(&["is not resolved", "was sent again"]);
    let trail = caller.get("/api/v1/audit?action=dlq.reopen").await;
    assert_eq!(trail["rows"].as_array().unwrap().len(), 2, "{trail:#}");
    daemon.stop().await;
}
