//! Responses of destinations, kept with their events.

use std::sync::Arc;

use postrider::limits::RESPONSE_BYTES_MAX;
use postrider_relay::{
    OutboxConfig, Preset, Relay,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::OnSuccess;
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    http::{Receiver, Reply},
    on_each_store,
    relay::{RunningRelay, quick_config, quick_preset},
};

use crate::http_sink::settings;

on_each_store!(
    an_archived_event_has_the_answer_of_its_destination_as_a_whole_or_not_at_all,
    nobody_keeps_answers_unless_asked,
);

/// Delivers an event for each of the replies, one after the other, and returns what is kept.
async fn kept(db: &TestDb, replies: Vec<Reply>, keep_response: bool) -> Vec<Option<String>> {
    let count = replies.len();
    let receiver = Receiver::start(move |request| {
        let number: usize = request.target.trim_start_matches('/').parse().unwrap();
        replies[number - 1].clone()
    })
    .await;
    let events: Vec<_> = (1..=count)
        .map(|number| postrider::NewEvent::new("call", number.to_string(), "Called", "{}"))
        .collect();
    let ids = db.append(&events).await;
    let url = receiver.url("/{aggregate_id}");
    let sink = HttpSink::new(HttpSettings { keep_response, ..settings(url) }).unwrap();
    let preset = Preset { on_success: OnSuccess::Archive, ..quick_preset() };
    let folder = TempFolder::new();
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder)).outbox(OutboxConfig::new(
        db.outbox.clone(),
        preset,
        Arc::new(sink),
    ));
    let relay = RunningRelay::start(relay);
    eventually("all are archived", async || {
        (db.count("_archive").await == count as i64).then_some(())
    })
    .await;
    relay.stop().await;
    let mut kept = Vec::new();
    for id in ids {
        kept.push(db.event(id).await.unwrap().response);
    }
    kept
}

fn says(body: &str) -> Reply {
    Reply::Full(200, Vec::new(), body.to_owned())
}

async fn an_archived_event_has_the_answer_of_its_destination_as_a_whole_or_not_at_all(db: TestDb) {
    let longest = "x".repeat(RESPONSE_BYTES_MAX);
    let replies = vec![
        says(r#"{"name":"모험가"}"#),
        says(&longest),
        says(&format!("{longest}x")),
        says("a\0b"),
        Reply::SlowBody,
        Reply::Status(204),
    ];
    let kept = kept(&db, replies, true).await;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(kept[0], text(r#"{"name":"모험가"}"#));
    assert!(kept[1] == text(&longest), "the longest");
    assert_eq!(kept[2..], [None, None, None, text("")], "too long, no text, cut off, empty");
    db.assert_balanced().await;
}

async fn nobody_keeps_answers_unless_asked(db: TestDb) {
    assert_eq!(kept(&db, vec![says("hello")], false).await, [None]);
}
