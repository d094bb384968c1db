//! An operator's night in a real browser: an outage, an alert, the recovery, events that are
//! rejected, and what the operator does about them.

use postrider::NewEvent;
use postrider_testkit::{Answer, Browser, Daemon, eventually};
use serde_json::Value;

use crate::caller::Caller;
use crate::page::{assert_quiet, at};
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    an_outage_an_alert_the_recovery_poison_a_group_a_retry_and_all_is_well,
});
mod on_one_store {
    crate::scene::tests!(sqlite {
        a_dead_letter_is_resolved_reopened_edited_and_sent,
        a_job_is_stopped_and_resumed_and_a_parked_key_released,
        outboxes_and_sinks_are_held_and_let_go,
    });
}

/// A short monitor interval, so that the test is fast.
fn settings() -> Settings {
    Settings::new()
        .relay("monitor_every", "300ms")
        .thresholds("unresolved_at = 2\navailability_min = 0.01")
}

async fn an_outage_an_alert_the_recovery_poison_a_group_a_retry_and_all_is_well(place: Place) {
    let Some(scene) = Scene::open(place, &settings()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    let mut delivered = scene.append_orders(30).await;
    browser.go(&at(&daemon, "/")).await;
    browser.says(".verdict", "Healthy").await;
    scene.received(&delivered).await;

    // The destination goes down: the breaker opens, an alert begins, and events wait.
    scene.target.answer(Answer::status(503).body("closed for the night"));
    delivered.extend(scene.append_orders(40).await);
    browser.says(".verdict", "1 destination down").await;
    browser.says("article.line", "Destination down").await;
    browser.says("section[aria-label=Breakers]", "Down").await;
    browser.says("section[aria-label='Active alerts']", "Critical").await;
    browser.click("header a[href='/alerts']").await;
    browser.says("section[aria-label='Active']", "orders").await;
    browser.press("header", "Events").await;
    browser.says("main", "40 shown").await;

    // The destination recovers, and the backlog drains by itself.
    scene.target.answer(Answer::ok());
    scene.received(&delivered).await;
    browser.press("header", "Overview").await;
    browser.says(".verdict", "Healthy").await;
    browser.says("section[aria-label=Breakers]", "Up").await;

    // Three events that the destination rejects.
    scene.target.answer(Answer::status(422).body("unknown product"));
    let poison = scene.append_orders(3).await;
    scene.has_dead_letters(3).await;
    browser.says(".verdict", "3 unresolved dead letters").await;
    browser.press(".verdict", "3 unresolved dead letters").await;
    browser.says("article.group", "3").await;
    browser.says("article.group", "HTTP 422").await;

    // The product is added; three clicks and a note.
    scene.target.answer(Answer::ok());
    browser.press("article.group", "Retry all…").await;
    browser.says("dialog", "3 unresolved dead letters match now (dry run").await;
    browser.fill("dialog textarea[name=note]", "the product is back").await;
    browser.fill("dialog input[name=canary]", "1").await;
    browser.press("dialog", "Retry them").await;
    browser.says("section[aria-label='Bulk jobs']", "Done").await;
    browser.says("section[aria-label='Bulk jobs']", "3 done").await;
    scene.received(&poison).await;
    browser.says("main", "No dead letters").await;
    browser.press("header", "Audit").await;
    browser.says("main", "the product is back").await;
    browser.press("header", "Overview").await;
    browser.says(".verdict", "Healthy").await;
    browser.press("section[aria-label='Ledger']", "Verify ledger").await;
    browser.says("section[aria-label='Ledger']", "Balanced").await;
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
    scene.drained().await;
    let ledger = scene.reconcile().await;
    assert_eq!(ledger["dead"]["count"], 3, "they were dead, and appended again: {ledger:#}");
    assert_eq!(ledger["delivered"]["count"], 73, "{ledger:#}");
}

async fn letter(daemon: &Daemon, id: i64) -> Value {
    let path = format!("/api/v1/outboxes/orders/dead-letters/{id}");
    Caller::anonymous(daemon).get(&path).await["dead_letter"].clone()
}

async fn a_dead_letter_is_resolved_reopened_edited_and_sent(place: Place) {
    let Some(scene) = Scene::open(place, &settings()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    scene.target.answer(Answer::status(422).body("no such street"));
    let digits = "[12345678901234567890.10,1e400]";
    scene.append_one(NewEvent::new("order", "order-x", "OrderPlaced", digits)).await;
    scene.append_orders(1).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;

    browser.go(&at(&daemon, "/dead-letters/orders/1")).await;
    browser.says("main", "Moved to the dead letters: rejected").await;
    browser.says("main", "no such street").await;
    browser.says("main", "Hash verified").await;
    browser.press("main", "Resolve…").await;
    browser.press("dialog", "Resolve").await;
    assert!(!browser.words_of("dialog").await.is_empty(), "without a note nothing is resolved");
    browser.fill("dialog textarea[name=note]", "refunded by hand").await;
    browser.press("dialog", "Resolve").await;
    browser.says("main", "Resolved by local").await;
    // A mistake, undone at once.
    browser.press("#notices", "Undo").await;
    browser.says("main", "Awaiting action").await;
    assert_eq!(letter(&daemon, 1).await["resolved"], false);

    scene.target.answer(Answer::ok());
    browser.press("main", "Edit and resend…").await;
    // Numbers that JavaScript cannot hold are shown with all of their digits.
    browser.says("dialog", "Edit and resend dead letter 1").await;
    let shown = "return document.querySelector('dialog textarea[name=payload]').value";
    let shown = browser.script(shown, Vec::new()).await;
    assert_eq!(shown.as_str().unwrap().split_whitespace().collect::<String>(), digits);
    browser.fill("dialog textarea[name=payload]", "{\"street\": \"Main\"").await;
    browser.says("dialog", "Not valid JSON").await;
    browser.fill("dialog textarea[name=payload]", "{\"street\": \"Main Street\"}").await;
    browser.press("dialog", "Send").await;
    browser.says("main", "Sent again by local").await;
    let fresh = letter(&daemon, 1).await["retried_as"].as_i64().unwrap();
    browser.go(&at(&daemon, &format!("/events/orders/{fresh}"))).await;
    browser.says("main", "Delivered").await;
    browser.says("pre.payload", "\"street\": \"Main Street\"").await;
    browser.says("main", "Hash verified").await;

    // Someone else resolves the second one first: the dashboard says who.
    browser.go(&at(&daemon, "/dead-letters/orders/2")).await;
    browser.says("main", "Awaiting action").await;
    let path = "/api/v1/outboxes/orders/dead-letters/2/resolve";
    Caller::anonymous(&daemon).post(path, &serde_json::json!({ "note": "mine" })).await;
    browser.press("main", "Retry…").await;
    browser.press("dialog", "Retry").await;
    browser.says("dialog", "is resolved already, by local").await;
    browser.press("dialog", "Cancel").await;
    // The browser logs the 409, and nothing else.
    let console = browser.console().await;
    assert!(console.len() == 1 && console[0].contains("409"), "{console:?}");
    browser.close().await;
    daemon.stop().await;
}

async fn a_job_is_stopped_and_resumed_and_a_parked_key_released(place: Place) {
    let settings = settings().outbox("claim", "lanes").outbox("failing_key", "park");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let _ = scene.site.run(&["outbox", "set-claim", "orders", "lanes"]).await.exits(0);
    scene.target.answer(Answer::status(422).body("no"));
    scene.append_orders(20).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(20).await;
    scene.target.answer(Answer::ok());

    browser.go(&at(&daemon, "/dead-letters")).await;
    browser.says("section[aria-label='Parked and blocked keys']", "Parked").await;
    browser.press("article.group", "Resolve all…").await;
    browser.fill("dialog textarea[name=note]", "a test").await;
    browser.fill("dialog input[name=rate]", "1").await;
    browser.press("dialog", "Resolve them").await;
    browser.press("section[aria-label='Bulk jobs']", "Stop").await;
    browser.says("section[aria-label='Bulk jobs']", "Stopped").await;
    browser.press("#notices", "Undo").await;
    eventually("it resumes", async || {
        let words = browser.words_of("section[aria-label='Bulk jobs']").await;
        (!words.contains("Stopped")).then_some(())
    })
    .await;
    browser.press("section[aria-label='Parked and blocked keys']", "Release").await;
    browser.says("#notices", "released.").await;
    browser.go(&at(&daemon, "/outboxes")).await;
    browser.says("main", "64 lanes").await;
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
}

async fn outboxes_and_sinks_are_held_and_let_go(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    browser.go(&at(&daemon, "/outboxes")).await;
    browser.press("#orders", "Pause…").await;
    browser.fill("dialog textarea[name=note]", "stocktaking").await;
    browser.press("dialog", "Pause").await;
    browser.says("#orders", "Paused for").await;
    browser.says("#orders", "stocktaking").await;
    browser.press("#notices", "Undo").await;
    browser.says("#orders", "Idle").await;
    browser.press("article.sink", "Pause…").await;
    browser.fill("dialog textarea[name=note]", "they asked for it").await;
    browser.press("dialog", "Pause").await;
    browser.says("article.sink", "they asked for it").await;
    browser.press("article.sink", "Resume…").await;
    browser.press("dialog", "Resume").await;
    browser.says("article.sink", "Up").await;
    browser.press("header", "Audit").await;
    for action in ["outbox.pause", "outbox.resume", "sink.pause", "sink.resume"] {
        browser.says("main", action).await;
    }
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    let events = scene.append_orders(2).await;
    scene.received(&events).await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}
