//! Settles that the database refuses, for one row or for a while.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_relay::{Batch, OutboxConfig, Outcome, Preset, Relay, Sink, SinkError};
use postrider_store::{Event, OnSuccess, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{Act, RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    a_row_that_cannot_be_settled_holds_up_no_other,
    a_table_that_is_missing_for_a_while_makes_no_dead_letters,
    a_dead_letter_that_cannot_be_marked_is_marked_later,
    a_sink_that_panics_when_asked_where_to_is_no_reason_to_deliver_twice,
);

/// Makes the database refuse what `condition` says about `OLD` or `NEW`, until [`relent`].
async fn refuse(db: &TestDb, action: &str, condition: &str) {
    let statements = match db.store.kind() {
        StoreKind::Postgres => format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
             CREATE TRIGGER refuse BEFORE {action} ON orders_outbox FOR EACH ROW \
             WHEN ({condition}) EXECUTE FUNCTION refuse()"
        ),
        StoreKind::Mysql => format!(
            "CREATE TRIGGER refuse BEFORE {action} ON orders_outbox FOR EACH ROW \
             BEGIN IF {condition} THEN \
             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF; END"
        ),
        StoreKind::Sqlite => format!(
            "CREATE TRIGGER refuse BEFORE {action} ON orders_outbox \
             WHEN {condition} BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ),
    };
    db.execute(&statements).await;
}

async fn relent(db: &TestDb) {
    let on_table = match db.store.kind() {
        StoreKind::Postgres => " ON orders_outbox",
        _ => "",
    };
    db.execute(&format!("DROP TRIGGER refuse{on_table}")).await;
}

async fn until_rows(db: &TestDb, rows: i64) {
    let what = format!("{rows} rows are left");
    eventually(&what, async || (db.count("").await == rows).then_some(())).await;
}

async fn a_row_that_cannot_be_settled_holds_up_no_other(db: TestDb) {
    refuse(&db, "DELETE", "OLD.aggregate_id = 'order-3'").await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.append(&[1, 2, 3, 4, 5, 6, 7, 8].map(order)).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    until_rows(&db, 1).await;
    relent(&db).await;
    until_rows(&db, 0).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered().len(), 8, "each once: only the settle was repeated");
    db.assert_balanced().await;
}

/// Delivered events wait for the archive, however often their settle fails: no event is the cause,
/// and none may become a dead letter that an operator would send again.
async fn a_table_that_is_missing_for_a_while_makes_no_dead_letters(db: TestDb) {
    db.execute("ALTER TABLE orders_outbox_archive RENAME TO hidden_archive").await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let (preset, pager) = (quick_preset(), RecordedAlerts::new(false));
    let preset = Preset { on_success: OnSuccess::Archive, ..preset };
    let outbox = OutboxConfig::new(db.outbox.clone(), preset, sink.clone());
    db.append(&[1, 2, 3].map(order)).await;
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(outbox)
        .alert_channel(pager.subscribed());
    let relay = RunningRelay::start(relay);
    sink.until_delivered(3).await;
    pager.until("its work fails repeatedly").await;
    db.execute("ALTER TABLE hidden_archive RENAME TO orders_outbox_archive").await;
    until_rows(&db, 0).await;
    relay.stop().await;
    assert_eq!((db.count("_archive").await, db.count("_dlq").await), (3, 0));
    assert_eq!(sink.log().delivered().len(), 3, "each once: only the settle was repeated");
    db.assert_balanced().await;
}

/// The relay is alive, so no other relay recovers its rows: it has to keep trying.
async fn a_dead_letter_that_cannot_be_marked_is_marked_later(db: TestDb) {
    db.execute("ALTER TABLE orders_outbox_dlq RENAME TO hidden_dlq").await;
    refuse(&db, "UPDATE", "NEW.status = 'DEAD_LETTER'").await;
    let (folder, pager) = (TempFolder::new(), RecordedAlerts::new(false));
    let sink = ScriptedSink::scripted(|_, _| Act::reject("HTTP 422")).shared();
    let id = db.append(&[order(1)]).await[0];
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(outbox)
        .alert_channel(pager.subscribed());
    let relay = RunningRelay::start(relay);
    pager.until("is in the backup file").await;
    assert_eq!(db.column(id, "status").await.as_deref(), Some("PROCESSING"));
    relent(&db).await;
    eventually("it is marked", async || {
        db.column(id, "status").await.filter(|status| status == "DEAD_LETTER")
    })
    .await;
    db.execute("ALTER TABLE hidden_dlq RENAME TO orders_outbox_dlq").await;
    until_rows(&db, 0).await;
    relay.stop().await;
    assert_eq!((sink.log().tries(id), db.count("_dlq").await), (1, 1));
    db.assert_balanced().await;
}

struct Lost(Arc<ScriptedSink>);

#[async_trait]
impl Sink for Lost {
    fn name(&self) -> &str {
        "lost"
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        panic!("where would {} go?", event.id);
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        self.0.deliver(batch).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}

async fn a_sink_that_panics_when_asked_where_to_is_no_reason_to_deliver_twice(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let lost = Arc::new(Lost(Arc::clone(&sink)));
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), lost);
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    db.append_orders(5).await;
    sink.until_delivered(5).await;
    until_rows(&db, 0).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered().len(), 5);
    db.assert_balanced().await;
}
