//! Dead-letter table → backup file → critical alert; and the way back.

use std::sync::Arc;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Relay, delivery::backup::read};
use postrider_store::{Event, Page, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{Act, RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    without_the_table_the_file_takes_the_event_and_upkeep_brings_it_back,
    one_bad_dead_letter_keeps_no_other_from_its_place,
    with_neither_table_nor_file_the_alert_carries_the_event,
    every_dead_letter_alerts_with_what_an_operator_needs,
    dead_letters_that_pile_up_alert_once_and_it_is_told_when_that_is_over,
);

fn rejecting() -> Arc<ScriptedSink> {
    let script = |event: &Event, _| match event.event_type.as_str() {
        "OrderPlaced" => Act::DELIVER,
        _ => Act::reject("HTTP 422"),
    };
    ScriptedSink::scripted(script).shared()
}

fn bad(number: u64) -> NewEvent {
    NewEvent::new("order", format!("order-{number}"), "Bad", format!("secret {number}"))
}

struct Net {
    folder: TempFolder,
    sink: Arc<ScriptedSink>,
    /// A channel that may carry payloads.
    vault: RecordedAlerts,
    /// A channel that may not.
    pager: RecordedAlerts,
    relay: RunningRelay,
}

fn start(db: &TestDb) -> Net {
    start_in(db, TempFolder::new())
}

fn start_in(db: &TestDb, folder: TempFolder) -> Net {
    let (vault, pager) = (RecordedAlerts::new(true), RecordedAlerts::new(false));
    let sink = rejecting();
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(outbox)
        .alert_channel(vault.subscribed())
        .alert_channel(pager.subscribed());
    Net { relay: RunningRelay::start(relay), folder, sink, vault, pager }
}

/// Hides the dead-letter table without losing it.
async fn hide_table(db: &TestDb) {
    db.execute("ALTER TABLE orders_outbox_dlq RENAME TO hidden_dlq").await;
}

async fn show_table(db: &TestDb) {
    db.execute("ALTER TABLE hidden_dlq RENAME TO orders_outbox_dlq").await;
}

async fn until_marked(db: &TestDb, rows: i64) {
    let marked = "SELECT count(*) FROM orders_outbox WHERE status = 'DEAD_LETTER'";
    eventually("the rows are marked", async || (db.integer(marked).await == rows).then_some(()))
        .await;
}

async fn without_the_table_the_file_takes_the_event_and_upkeep_brings_it_back(db: TestDb) {
    hide_table(&db).await;
    let net = start(&db);
    let ids = db.append(&[order(1), bad(2), order(3), bad(4)]).await;
    until_marked(&db, 2).await;
    net.sink.until_delivered(2).await;
    let file = quick_config(&net.folder).backup_folder.join("dead-letters.jsonl");
    let contents = read(&file).unwrap();
    let saved: Vec<_> = contents.open.iter().map(|(_, event)| event.original_id).collect();
    assert_eq!(saved, [ids[1], ids[3]]);
    let event = &contents.open[0].1;
    assert_eq!((event.payload.as_str(), event.error_message.as_str()), ("secret 2", "HTTP 422"));
    assert_eq!((event.retry_count, event.event_type.as_str()), (1, "Bad"));
    let alert = net.pager.until("is in the backup file").await;
    assert!(alert.fields.iter().any(|(name, value)| *name == "file" && value.contains("jsonl")));

    show_table(&db).await;
    eventually("maintenance moves them", async || (db.count("_dlq").await == 2).then_some(()))
        .await;
    eventually("the file says so", async || (read(&file).unwrap().closed == 2).then_some(())).await;
    assert!(read(&file).unwrap().open.is_empty());
    net.relay.stop().await;
    assert_eq!(db.count("").await, 0);
    let attempts = "SELECT sum(retry_count) FROM orders_outbox_dlq WHERE reason = 'rejected'";
    assert_eq!(db.integer(attempts).await, 2);
    db.assert_balanced().await;
}

/// A trigger refuses one of them.
async fn one_bad_dead_letter_keeps_no_other_from_its_place(db: TestDb) {
    let raise = match db.store.kind() {
        StoreKind::Postgres => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON orders_outbox_dlq FOR EACH ROW \
             WHEN (NEW.aggregate_id = 'order-3') EXECUTE FUNCTION refuse()"
        }
        StoreKind::Mysql => {
            "CREATE TRIGGER refuse BEFORE INSERT ON orders_outbox_dlq FOR EACH ROW \
             BEGIN IF NEW.aggregate_id = 'order-3' THEN \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF; END"
        }
        StoreKind::Sqlite => {
            "CREATE TRIGGER refuse BEFORE INSERT ON orders_outbox_dlq \
             WHEN NEW.aggregate_id = 'order-3' BEGIN SELECT RAISE(ABORT, 'refused'); END"
        }
    };
    db.execute(raise).await;
    let events = [order(1), bad(2), bad(3), bad(4), order(5)];
    let ids = db.append(&events).await;
    let net = start(&db);
    until_marked(&db, 1).await;
    eventually("the others are dead", async || (db.count("_dlq").await == 2).then_some(())).await;
    net.sink.until_delivered(2).await;
    net.relay.stop().await;
    assert_eq!(db.column(ids[2], "status").await.as_deref(), Some("DEAD_LETTER"));
    assert_eq!(db.count("").await, 1);
    db.assert_balanced().await;
}

async fn with_neither_table_nor_file_the_alert_carries_the_event(db: TestDb) {
    hide_table(&db).await;
    let folder = TempFolder::new();
    // A file where the folder should be.
    std::fs::write(quick_config(&folder).backup_folder, "in the way").unwrap();
    let net = start_in(&db, folder);
    let ids = db.append(&[bad(1), bad(2)]).await;
    until_marked(&db, 2).await;
    for id in &ids {
        let of_event = |sent: Vec<postrider_relay::alerts::Message>| {
            let about = ("id", id.to_string());
            sent.into_iter().find(|alert| {
                alert.title.contains("could be saved nowhere else") && alert.fields.contains(&about)
            })
        };
        let in_vault = eventually("the alert comes", async || of_event(net.vault.sent())).await;
        let event = in_vault.event.expect("it may carry the event");
        assert_eq!((event.id, event.payload.starts_with("secret")), (*id, true));
        let on_pager = eventually("the alert comes", async || of_event(net.pager.sent())).await;
        assert!(on_pager.event.is_none(), "this channel may not");
        let whereabouts = on_pager.fields.iter().find(|(name, _)| *name == "whereabouts");
        assert!(whereabouts.is_some_and(|(_, text)| text.contains("orders_outbox")));
        assert!(!format!("{on_pager:?}").contains("secret"));
    }
    show_table(&db).await;
    eventually("maintenance moves them", async || (db.count("_dlq").await == 2).then_some(()))
        .await;
    net.relay.stop().await;
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

async fn every_dead_letter_alerts_with_what_an_operator_needs(db: TestDb) {
    let net = start(&db);
    let id = db.append(&[bad(1)]).await[0];
    let alert = net.pager.until("Dead letter in outbox orders (rejected)").await;
    net.relay.stop().await;
    let field = |name: &str| {
        let found = alert.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    assert_eq!(field("id"), id.to_string());
    assert_eq!((field("type"), field("aggregate")), ("Bad", "order/order-1"));
    assert_eq!((field("retry_count"), field("error")), ("1", "HTTP 422"));
    assert!(!field("failed_at").is_empty() && !field("event_id").is_empty());
    assert!(!format!("{:?}", net.vault.sent()).contains("secret"), "no payload without need");
}

async fn dead_letters_that_pile_up_alert_once_and_it_is_told_when_that_is_over(db: TestDb) {
    let net = start(&db);
    for number in 1..=9 {
        db.append(&[bad(number)]).await;
    }
    net.relay.waker.wake();
    let dead = "SELECT count(*) FROM orders_outbox_dlq";
    eventually("nine are dead", async || (db.integer(dead).await == 9).then_some(())).await;
    let piled = |alerts: &RecordedAlerts| {
        let titles = alerts.sent().into_iter().map(|alert| alert.title);
        titles.filter(|title| title.contains("unresolved")).collect::<Vec<_>>()
    };
    assert_eq!(piled(&net.pager), Vec::<String>::new(), "nine are below the limit of ten");

    for number in 10..=12 {
        db.append(&[bad(number)]).await;
    }
    net.relay.waker.wake();
    eventually("twelve are dead", async || (db.integer(dead).await == 12).then_some(())).await;
    eventually("told", async || (!piled(&net.pager).is_empty()).then_some(())).await;
    let page = Page::first(3);
    let letters = db.store.dead_letters(&db.outbox, &Default::default(), page).await.unwrap();
    for letter in letters.rows {
        db.store.resolve(&db.outbox, letter.id, "operator", "done").await.unwrap();
    }
    eventually("over", async || (piled(&net.pager).len() > 1).then_some(())).await;
    net.relay.stop().await;
    let titles = piled(&net.pager);
    assert_eq!(titles.len(), 2, "{titles:?}");
    assert!(titles[0].starts_with("Outbox orders has 1"), "{titles:?}");
    assert_eq!(titles[1], "Outbox orders has 9 unresolved dead letters");
}
