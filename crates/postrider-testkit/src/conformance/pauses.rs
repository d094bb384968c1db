//! Pauses, and edits of dead letters.

use postrider::NewEvent;
use postrider_store::{Edit, ORIGINAL_HEADER, PauseKind, StoreError};

use super::steps::order;
use crate::TestDb;

/// A pause is one row, however often operators set it, and every change is audited.
pub async fn a_pause_holds_until_it_is_resumed(db: TestDb) {
    let store = &db.store;
    assert!(store.pauses().await.unwrap().is_empty());
    assert!(store.pause(PauseKind::Sink, "kafka", "ann", "upgrade").await.unwrap());
    assert!(store.pause(PauseKind::Outbox, "orders", "bob", "").await.unwrap());
    assert!(!store.pause(PauseKind::Sink, "kafka", "bob", "again").await.unwrap());
    let pauses = store.pauses().await.unwrap();
    let found: Vec<_> = pauses
        .iter()
        .map(|pause| {
            (pause.kind, pause.name.as_str(), pause.operator.as_str(), pause.note.as_str())
        })
        .collect();
    let expected =
        [(PauseKind::Outbox, "orders", "bob", ""), (PauseKind::Sink, "kafka", "ann", "upgrade")];
    assert_eq!(found, expected, "the first one stays");
    assert!(store.resume(PauseKind::Sink, "kafka", "bob", "done").await.unwrap());
    assert!(!store.resume(PauseKind::Sink, "kafka", "bob", "done").await.unwrap());
    assert_eq!(store.pauses().await.unwrap().len(), 1);
    let actions: Vec<_> = db.trail().await.into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["sink.resume", "outbox.pause", "sink.pause"]);
    store.drop_outbox(&db.outbox).await.unwrap();
    assert!(store.pauses().await.unwrap().is_empty(), "gone with its outbox");
}

/// An edited dead letter is a new event with a link to the original, which is resolved with it.
pub async fn an_edited_dead_letter_is_sent_as_a_new_event(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let original = NewEvent::new("order", "1", "Placed", r#"{"n":1}"#).request_id("r-1");
    db.append(&[original.header("tenant", "a").header("old", "x").max_retries(4)]).await;
    let claimed = db.claim(&relay, 1).await;
    let letter = db.move_to_dlq(&relay, &claimed[0], "no").await;
    let edit = Edit {
        payload: Some(r#"{"n":2}"#.to_owned()),
        event_type: Some("Placed2".to_owned()),
        headers: [("old".to_owned(), None), ("why".to_owned(), Some("typo".to_owned()))].into(),
        ..Edit::default()
    };
    let resent = db.store.resend(&db.outbox, letter, &edit, "ann", "typo").await.unwrap();
    let event = db.claim(&relay, 10).await.pop().unwrap();
    assert_eq!((event.id, &event.event_id), (resent.id, &resent.event_id));
    assert_ne!(event.event_id, claimed[0].event_id, "a new identity");
    assert_eq!(event.hash_matches(), Some(true), "a new hash");
    assert_ne!(event.content_hash, claimed[0].content_hash);
    assert_eq!(event.request_id.as_deref(), Some(event.event_id.as_str()));
    assert_eq!((event.event_type.as_str(), event.payload.as_str()), ("Placed2", r#"{"n":2}"#));
    assert_eq!((event.aggregate_id.as_str(), event.max_retries), ("1", Some(4)));
    assert_eq!((event.retry_count, event.redrive_count), (0, 0));
    let headers = event.headers().unwrap();
    assert_eq!(headers[ORIGINAL_HEADER], claimed[0].event_id);
    assert_eq!((headers["tenant"].as_str(), headers["why"].as_str()), ("a", "typo"));
    assert!(!headers.contains_key("old"));
    let dead = db.store.dead_letter(&db.outbox, letter).await.unwrap().unwrap();
    assert_eq!((dead.resolved, dead.retried_as), (true, Some(resent.id)));
    assert_eq!(dead.payload.as_deref(), Some(r#"{"n":1}"#), "the original stays as it was");
    assert_eq!(db.trail().await[0].action, "dlq.resend");
    db.assert_balanced().await;
}

/// An edit that cannot be sent is refused, and changes nothing.
pub async fn an_edit_that_cannot_be_sent_is_refused(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append(&[order(1), order(2)]).await;
    let claimed = db.claim(&relay, 2).await;
    let letter = db.move_to_dlq(&relay, &claimed[0], "no").await;
    let done = db.move_to_dlq(&relay, &claimed[1], "no").await;
    db.store.resolve(&db.outbox, done, "ann", "").await.unwrap();
    let edit = |payload: &str| Edit { payload: Some(payload.to_owned()), ..Edit::default() };
    for (id, edit, word) in [
        (letter, Edit::default(), "changes nothing"),
        (letter, edit("nul \0"), "NUL"),
        (
            letter,
            Edit { event_type: Some(String::new()), ..Edit::default() },
            "event_type is empty",
        ),
        (done, edit("{}"), "resolved already"),
        (9_999, edit("{}"), "no dead letter"),
    ] {
        let error = db.store.resend(&db.outbox, id, &edit, "ann", "").await.unwrap_err();
        assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(db.count("").await, 0);
    assert_eq!(db.letters().await, [letter]);
    assert_eq!(db.trail().await.len(), 1, "refusals are not actions");
}
