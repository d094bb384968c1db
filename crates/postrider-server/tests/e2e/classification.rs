//! What the receiver's answers lead to, through the whole chain.

use std::time::Duration;

use postrider::NewEvent;
use postrider_testkit::{Answer, conformance::steps::order, eventually};

use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    an_answer_of_422_is_the_end_and_404_is_tried_as_often_as_allowed,
    an_outage_spends_no_attempts_and_everything_comes_back,
    refused_credentials_alert_and_spend_no_attempt,
    a_receiver_is_left_alone_for_as_long_as_it_asks,
    an_answer_that_was_never_heard_is_repeated_with_the_same_key,
    an_event_that_always_times_out_dies_alone,
});

fn typed(number: u64, event_type: &str) -> NewEvent {
    NewEvent::new("order", format!("order-{number}"), event_type, "{}")
}

async fn an_answer_of_422_is_the_end_and_404_is_tried_as_often_as_allowed(place: Place) {
    // Long enough to be seen waiting.
    let settings = Settings::new().outbox("backoff_first", "1s").outbox("backoff_max", "1s");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.target.answer_by(|request| match request.header("postrider-event-type") {
        "Refused" => Answer::status(422).body(r#"{"reason":"no such product"}"#),
        "Missing" => Answer::status(404),
        _ => Answer::ok(),
    });
    let refused = scene.append_one(typed(1, "Refused")).await;
    let missing = scene.append_one(typed(2, "Missing")).await;
    let good = scene.append_orders(5).await;
    let daemon = scene.site.start().await;
    eventually("the missing one is tried again later", async || {
        let event = scene.db.event(missing.id).await?;
        (event.status == postrider_store::Status::Failed && event.retry_count > 0).then_some(())
    })
    .await;
    scene.has_dead_letters(2).await;
    scene.drained().await;

    assert_eq!(scene.target.calls(&refused.event_id).len(), 1);
    assert_eq!(scene.target.calls(&missing.event_id).len(), 3, "max_retries");
    for (event, reason, error, retries) in
        [(&refused, "rejected", "422", 1), (&missing, "exhausted", "404", 3)]
    {
        let dead = scene.dead_letters().await;
        let dead = dead.iter().find(|dead| dead["original_id"] == event.id).unwrap();
        assert_eq!(
            (dead["reason"].as_str(), &dead["retry_count"]),
            (Some(reason), &retries.into())
        );
        assert!(dead["error_message"].as_str().unwrap().contains(error), "{dead:#}");
        let shown = scene.json(&["dlq", "show", &dead["id"].to_string()]).await;
        let attempts = shown["attempts"].as_array().unwrap().len();
        assert_eq!(
            attempts,
            if reason == "rejected" { 0 } else { 2 },
            "failures before: {shown:#}"
        );
    }
    // One attempt that was refused, and three that failed: the last ones count.
    daemon.shows("postrider_outbox_failed_total", &[], 4.0).await;
    daemon.shows("postrider_outbox_dlq_total", &[("event_type", "Refused")], 1.0).await;
    daemon.stop().await;
    scene.settle_up(&good, 2).await;
}

async fn an_outage_spends_no_attempts_and_everything_comes_back(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(503));
    let events = scene.append_orders(40).await;
    let daemon = scene.site.start().await;
    // With counted attempts, three tries of each of the first ones would be the end of them.
    eventually("the receiver is asked many times", async || {
        (scene.target.count() >= 25).then_some(())
    })
    .await;
    let table = scene.db.outbox.table();
    let spent = scene.db.integer(&format!("SELECT sum(retry_count) FROM {table}")).await;
    assert_eq!(spent, 0, "no attempt is spent");
    daemon.reaches("postrider_outbox_deferred_total", 20.0).await;
    assert_eq!(daemon.metrics().await.sum("postrider_outbox_failed_total", &[]), 0.0);

    scene.target.answer(Answer::ok());
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn refused_credentials_alert_and_spend_no_attempt(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new().alerts(false)).await else { return };
    scene.target.answer(Answer::status(401));
    let events = scene.append_orders(1).await;
    let daemon = scene.site.start().await;
    eventually("it is tried more often than there are attempts", async || {
        (scene.target.count() > 4).then_some(())
    })
    .await;
    let told = eventually("somebody is told", async || {
        let alerts = scene.people.received();
        alerts.into_iter().find(|alert| alert.body.contains("refuses our credentials"))
    });
    assert!(told.await.body.contains("401"));
    daemon.logs("refuses our credentials").await;
    assert_eq!(scene.db.event(events[0].id).await.unwrap().retry_count, 0);
    scene.target.answer(Answer::ok());
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn a_receiver_is_left_alone_for_as_long_as_it_asks(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let mut asked = false;
    scene.target.answer_by(move |_| match std::mem::replace(&mut asked, true) {
        false => Answer::status(503).header("retry-after", "2"),
        true => Answer::ok(),
    });
    let events = scene.append_orders(1).await;
    let daemon = scene.site.start().await;
    scene.drained().await;
    let calls = scene.target.received();
    assert_eq!(calls.len(), 2);
    let left_alone = calls[1].at - calls[0].at;
    assert!(left_alone >= Duration::from_millis(1_950), "asked again after {left_alone:?}");
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn an_answer_that_was_never_heard_is_repeated_with_the_same_key(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let mut known = std::collections::HashSet::new();
    scene.target.answer_by(move |request| match known.insert(request.key().to_owned()) {
        true => Answer::hang_up(),
        false => Answer::ok(),
    });
    let events = scene.append_orders(3).await;
    let daemon = scene.site.start().await;
    scene.drained().await;
    for event in &events {
        let calls = scene.target.calls(&event.event_id);
        assert_eq!(calls.len(), 2, "a duplicate, and the receiver can tell");
        assert_eq!(calls[0].body, calls[1].body);
    }
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn an_event_that_always_times_out_dies_alone(place: Place) {
    let settings = Settings::new().sink("timeout", "300ms");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.target.answer_by(|request| match request.header("postrider-event-type") {
        "Poison" => Answer::hang(),
        _ => Answer::ok(),
    });
    let poison = scene.append_one(typed(0, "Poison")).await;
    let daemon = scene.site.start().await;
    let mut good = Vec::new();
    // While others get through, the timeouts are the event's own fault.
    eventually("the poison is a dead letter", async || {
        good.push(scene.append_one(order(scene.db.next_number())).await);
        scene.received(&good).await;
        (scene.db.count("_dlq").await == 1).then_some(())
    })
    .await;
    let dead = scene.dead_letters().await;
    assert_eq!(dead[0]["original_id"], poison.id);
    assert_eq!((&dead[0]["reason"], &dead[0]["retry_count"]), (&"exhausted".into(), &3.into()));
    assert!(dead[0]["error_message"].as_str().unwrap().contains("timeout"), "{:#}", dead[0]);
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&good, 1).await;
}
