//! What operators do for consumers: their tables, their ledgers, what they could not handle.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::{DeadMessage, INBOX_RETENTION, Inbox, Incoming};
use postrider_testkit::{Installation, TestDb, eventually};

use crate::scene::{BINARY, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    a_consumers_database_is_made_watched_and_cleaned_without_an_outbox,
    messages_that_could_not_be_handled_are_listed_retried_and_resolved,
    reconcile_shows_consumers_beside_outboxes,
    a_retry_of_an_event_older_than_inboxes_remember_warns,
});

async fn receive(db: &TestDb, ids: &[&str]) {
    let events: Vec<Incoming> = ids.iter().copied().map(Incoming::new).collect();
    let mut tx = db.begin().await;
    let answers = tx.receive_all(&Inbox::new("fraud").unwrap(), &events).await.unwrap();
    assert_eq!(answers.len(), ids.len());
    tx.commit().await.unwrap();
}

async fn receive_dead(db: &TestDb, event_id: &str) {
    let (event, headers) = (Incoming::new(event_id), BTreeMap::new());
    let message = DeadMessage {
        event: &event,
        source: "transfers/0@7",
        key: None,
        headers: &headers,
        payload: b"{\"amount\":\"many\"}",
        error: "amount is not a number",
    };
    let mut tx = db.begin().await;
    let answer = tx.receive_dead(&Inbox::new("fraud").unwrap(), &message).await.unwrap();
    assert!(answer.is_new());
    tx.commit().await.unwrap();
}

/// A database without an outbox, and a binary that is told where it is.
async fn consumers_place(place: Place) -> Option<(TestDb, Installation)> {
    let db = TestDb::open_empty(place.server, place.test).await?;
    Some((db, Installation::new(BINARY, "")))
}

async fn a_consumers_database_is_made_watched_and_cleaned_without_an_outbox(place: Place) {
    let Some((db, site)) = consumers_place(place).await else { return };
    let store = ["--store", db.url.as_str()];
    let run = async |args: &[&str]| site.run(&[&store[..], args].concat()).await;
    let _ = run(&["reconcile", "--consumers"]).await.exits(1).says(&["postrider migrate"]);
    let _ = run(&["migrate", "--consumer"]).await.exits(0).shows(&["shared tables"]);
    let printed = run(&["migrate", "--consumer", "--print"]).await.exits(0);
    let _ = printed.shows(&["postrider_inbox"]);
    let _ = run(&["reconcile", "--consumers"]).await.exits(0).shows(&["no consumer"]);

    receive(&db, &["e-1", "e-2", "e-1"]).await;
    let shown = run(&["reconcile", "--consumers"]).await.exits(0);
    let _ = shown.shows(&["fraud", "balanced"]);
    let ledger = run(&["reconcile", "--consumers", "--json"]).await.exits(0).json();
    let counts = ["received", "applied", "ignored", "dead"].map(|key| ledger[0][key].as_i64());
    assert_eq!(counts, [Some(3), Some(2), Some(1), Some(0)]);

    let long = INBOX_RETENTION + Duration::from_secs(3600);
    db.age("postrider_inbox", "received_at", long, "event_id = 'e-1'").await;
    let others = run(&["inbox", "clean-up", "--consumer", "mail"]).await.exits(0);
    let _ = others.shows(&["0 events forgotten"]);
    let _ = run(&["inbox", "clean-up"]).await.exits(0).shows(&["1 events forgotten"]);
    let _ = run(&["inbox", "clean-up", "--retention", "0s"]).await.exits(0).shows(&["1 events"]);
    let _ = run(&["reconcile", "--consumers"]).await.exits(0).shows(&["balanced"]);
    receive(&db, &["e-3"]).await;
    db.execute("DELETE FROM postrider_inbox WHERE event_id = 'e-3'").await;
    let wrong = run(&["reconcile", "--consumers"]).await.exits(3);
    let _ = wrong.shows(&["DIFFER by 1 messages"]).says(&["consumer fraud"]);
}

async fn messages_that_could_not_be_handled_are_listed_retried_and_resolved(place: Place) {
    let Some((db, site)) = consumers_place(place).await else { return };
    db.store.migrate(&[]).await.unwrap();
    let store = ["--store", db.url.as_str()];
    let run = async |args: &[&str]| site.run(&[&store[..], args].concat()).await;
    let _ = run(&["inbox", "list"]).await.exits(0).shows(&["no messages"]);
    receive_dead(&db, "e-1").await;
    receive_dead(&db, "e-2").await;
    let list = run(&["inbox", "list"]).await.exits(0);
    let _ = list.shows(&["fraud", "e-1", "transfers/0@7", "amount is not a number"]);
    let listed = run(&["inbox", "list", "--consumer", "fraud", "--json"]).await.exits(0).json();
    assert_eq!(listed[0]["payload"], "{\"amount\":\"many\"}");
    let ids: Vec<String> =
        (0..2).map(|row| listed[row]["id"].as_i64().unwrap().to_string()).collect();
    let _ = run(&["inbox", "retry", &ids[0], "--note", "mended"]).await.exits(0);
    let _ = run(&["inbox", "list"]).await.exits(0).shows(&["asked for"]);
    let _ = run(&["inbox", "resolve", &ids[1]]).await.exits(0);
    let _ = run(&["inbox", "resolve", &ids[1]]).await.exits(1).says(&["resolved already"]);
    let _ = run(&["inbox", "retry", "999"]).await.exits(1).says(&["999", "inbox list"]);
    let audit = "SELECT count(*) FROM postrider_audit WHERE action LIKE 'inbox.%'";
    assert_eq!(db.integer(audit).await, 2);
}

async fn reconcile_shows_consumers_beside_outboxes(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let events = scene.append_orders(3).await;
    for number in 0..20 {
        receive(&scene.db, &[&format!("e-{number}")]).await;
    }
    let daemon = scene.site.start().await;
    scene.drained().await;
    let entries = "SELECT count(*) FROM postrider_inbox_ledger";
    let folded = async || (scene.db.integer(entries).await == 1).then_some(());
    eventually("the relay sums up the consumers' ledger", folded).await;
    daemon.stop().await;
    let shown = scene.site.run(&["reconcile"]).await.exits(0);
    let _ = shown.shows(&["orders", "DELIVERED", "fraud", "IGNORED"]);
    let ledger = scene.site.run(&["reconcile", "--json"]).await.exits(0).json();
    assert_eq!((&ledger[0]["outbox"], &ledger[1]["consumer"]), (&"orders".into(), &"fraud".into()));
    scene.settle_up(&events, 0).await;
    scene.db.execute("DELETE FROM postrider_inbox WHERE event_id = 'e-1'").await;
    let _ = scene.site.run(&["reconcile"]).await.exits(3).says(&["consumer fraud"]);
    let _ = scene.site.run(&["reconcile", "-o", "orders"]).await.exits(0);
}

async fn a_retry_of_an_event_older_than_inboxes_remember_warns(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.append_orders(2).await;
    let relay = scene.db.relay("before").await;
    for event in scene.db.claim(&relay, 2).await {
        scene.db.move_to_dlq(&relay, &event, "no").await;
    }
    let dlq = format!("{}_dlq", scene.db.outbox.table());
    let ids: Vec<String> = {
        let first = scene.db.integer(&format!("SELECT min(id) FROM {dlq}")).await;
        [first, first + 1].map(|id| id.to_string()).into()
    };
    let long = INBOX_RETENTION + Duration::from_secs(24 * 3600);
    scene.db.age(&dlq, "event_created_at", long, &format!("id = {}", ids[0])).await;
    let old = scene.site.run(&["dlq", "retry", &ids[0]]).await.exits(0);
    let _ = old.says(&["31 days old", "handles it again"]);
    let young = scene.site.run(&["dlq", "retry", &ids[1]]).await.exits(0);
    assert!(!young.stderr.contains("days old"), "{}", young.stderr);
}
