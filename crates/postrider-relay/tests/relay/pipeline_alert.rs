//! Work on an outbox that makes no progress raises an alert, until it does.

use std::time::Duration;

use postrider_relay::{OutboxConfig, Relay};
use postrider_store::{ClaimMode, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    reads_that_fail_again_and_again_are_an_alert_until_one_succeeds,
    settles_that_fail_again_and_again_are_an_alert_until_one_succeeds,
    too_many_keys_that_wait_are_an_alert_until_there_is_room,
);

const BEGUN: &str = "Outbox orders is not delivered by this relay";
const ENDED: &str = "Outbox orders is delivered again";

/// A relay whose alerts are watched.
struct Watched {
    relay: RunningRelay,
    sink: std::sync::Arc<ScriptedSink>,
    alerts: RecordedAlerts,
    registry: std::sync::Arc<postrider_relay::alerts::AlertRegistry>,
    _folder: TempFolder,
}

async fn watched(db: &TestDb, claim: ClaimMode, change: impl Fn(&mut OutboxConfig)) -> Watched {
    db.store.set_mode(&db.outbox, claim, "olga").await.unwrap();
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let alerts = RecordedAlerts::new(false);
    let mut outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    change(&mut outbox);
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).outbox(outbox);
    let registry = relay.alert_registry();
    let relay = RunningRelay::start(relay.alert_channel(alerts.subscribed()));
    Watched { relay, sink, alerts, registry, _folder: folder }
}

async fn reads_that_fail_again_and_again_are_an_alert_until_one_succeeds(db: TestDb) {
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        let watched = watched(&db, claim, |_| {}).await;
        db.append_orders(1).await;
        watched.sink.until_delivered(1).await;
        eventually("it is settled", async || (db.count("").await == 0).then_some(())).await;
        // An error that no repetition fixes.
        db.execute("ALTER TABLE orders_outbox RENAME TO orders_mislaid").await;
        watched.alerts.until(BEGUN).await;
        let mut active = watched.registry.lists().active.into_iter();
        let kind = format!("{}orders", postrider_relay::TROUBLE_KIND);
        assert!(active.any(|alert| alert.kind == kind));
        let reported = async || {
            let relays = db.store.relays().await.unwrap();
            let mut serving = relays.into_iter().flat_map(|relay| relay.serving);
            serving.any(|serving| serving.trouble.is_some()).then_some(())
        };
        eventually("the heartbeat reports it", reported).await;
        db.execute("ALTER TABLE orders_mislaid RENAME TO orders_outbox").await;
        watched.alerts.until_resolved(ENDED).await;
        db.append_orders(1).await;
        watched.sink.until_delivered(2).await;
        watched.relay.stop().await;
    }
}

async fn settles_that_fail_again_and_again_are_an_alert_until_one_succeeds(db: TestDb) {
    // As if every settle were the victim of a deadlock: reads and claims continue, and no row may
    // be given up because of it.
    let (refuse, allow): (&[&str], _) = match db.store.kind() {
        StoreKind::Postgres => (
            &[
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '40P01'; END $$",
                "CREATE TRIGGER refuse BEFORE DELETE ON orders_outbox \
                 FOR EACH ROW EXECUTE FUNCTION refuse()",
            ],
            "DROP FUNCTION refuse CASCADE",
        ),
        StoreKind::Mysql => (
            &["CREATE TRIGGER refuse BEFORE DELETE ON orders_outbox FOR EACH ROW \
               SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'not now'"],
            "DROP TRIGGER refuse",
        ),
        // SQLite has one writer at a time: none of its triggers can report a temporary error.
        StoreKind::Sqlite => return,
    };
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        for statement in refuse {
            db.execute(statement).await;
        }
        db.append_orders(3).await;
        let watched = watched(&db, claim, |_| {}).await;
        watched.alerts.until(BEGUN).await;
        db.execute(allow).await;
        watched.alerts.until_resolved(ENDED).await;
        eventually("all are settled", async || (db.count("").await == 0).then_some(())).await;
        assert_eq!(db.count("_dlq").await, 0);
        watched.relay.stop().await;
    }
}

/// Rows that an application may write: each waits for an hour, and lanes keep its key in memory.
async fn too_many_keys_that_wait_are_an_alert_until_there_is_room(db: TestDb) {
    let hour = Duration::from_secs(3_600);
    let waiting: Vec<_> = (1..=8).map(|n| order(n).deliver_after(hour)).collect();
    db.append(&waiting).await;
    db.append(&[order(100), order(101)]).await;
    let watched = watched(&db, ClaimMode::Lanes, |outbox| {
        outbox.preset.batch = 1;
        outbox.lane_limits.read_rows_min = 1;
        outbox.lane_limits.waiting_rows_max = 5;
    })
    .await;
    let alert = watched.alerts.until(BEGUN).await;
    assert!(format!("{alert:?}").contains("keys wait for their time"), "{alert:?}");
    db.store.set_mode(&db.outbox, ClaimMode::Rows, "olga").await.unwrap();
    watched.alerts.until_resolved(ENDED).await;
    watched.sink.until_delivered(2).await;
    watched.relay.stop().await;
}
