//! What is true of MariaDB and MySQL only: traps that the conformance suite cannot know.
#![cfg(feature = "mysql")]

use std::time::{Duration, Instant};

use postrider_store::{
    BatchTarget, ClaimLimit, Cursor, Dedupe, OutboxSpec, Share, StoreError, TableTarget,
};
use postrider_testkit::TestDb;
use sqlx::{Connection, Executor, MySqlConnection, Row};

const TEN: ClaimLimit = ClaimLimit { rows: 10, bytes: 1 << 20, share: Share::WHOLE };
const INSERT: &str = "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload)
    VALUES ('order', '1', 'T', '{}')";

postrider_testkit::on_mysql_and_mariadb!(
    a_frozen_list_of_transactions_does_not_move_the_cursor,
    times_are_utc_whatever_the_session,
    migrating_again_does_not_wait_for_open_transactions,
    a_plain_repeat_is_told_by_the_name_of_its_key,
    dedupe_can_be_switched,
    a_key_that_is_unique_by_its_beginning_only_is_no_target,
);

async fn connection(db: &TestDb) -> MySqlConnection {
    MySqlConnection::connect(&db.url).await.expect("a connection of its own")
}

/// INNODB_TRX is not filled anew while somebody reads it all the time. A horizon that believed the
/// old list would pass the id of a transaction that began later.
async fn a_frozen_list_of_transactions_does_not_move_the_cursor(db: TestDb) {
    let mut writer = connection(&db).await;
    let url = db.url.clone();
    let busy_reader = tokio::spawn(async move {
        let mut reader = MySqlConnection::connect(&url).await.unwrap();
        loop {
            reader.execute("SELECT COUNT(*) FROM information_schema.INNODB_TRX").await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    writer.execute("BEGIN").await.unwrap();
    let early = writer.execute(INSERT).await.unwrap().last_insert_id() as i64;
    db.append_orders(3).await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(4) {
        cursor.observed_at = None;
        db.store.claim(&db.outbox, &relay, TEN, &mut cursor).await.unwrap();
        assert!(cursor.low < early, "passed an open transaction");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    writer.execute("COMMIT").await.unwrap();
    let found = db.store.claim(&db.outbox, &relay, TEN, &mut cursor).await.unwrap().events;
    assert_eq!(found.iter().map(|e| e.id).collect::<Vec<_>>(), [early]);
    busy_reader.abort();
}

/// A plain writer in Tokyo writes the same times as one in Greenwich.
async fn times_are_utc_whatever_the_session(db: TestDb) {
    let mut writer = connection(&db).await;
    writer.execute("SET time_zone = '+09:00'").await.unwrap();
    writer.execute(INSERT).await.unwrap();
    let row = writer
        .fetch_one(
            "SELECT ABS(TIMESTAMPDIFF(SECOND, o.created_at, UTC_TIMESTAMP(6))),
                ABS(TIMESTAMPDIFF(SECOND, b.minute, UTC_TIMESTAMP(6)))
             FROM orders_outbox o, orders_outbox_ledger_entries b",
        )
        .await
        .unwrap();
    assert!(row.get::<i64, _>(0) < 30);
    assert!(row.get::<i64, _>(1) < 90);
    drop(db);
}

/// Every process migrates at its start; that must not wait for the application's transactions,
/// and with it all writers behind it.
async fn migrating_again_does_not_wait_for_open_transactions(db: TestDb) {
    let mut writer = connection(&db).await;
    writer.execute("BEGIN").await.unwrap();
    writer.execute(INSERT).await.unwrap();
    let again = [OutboxSpec::new(db.outbox.clone())];
    let migrated = tokio::time::timeout(Duration::from_secs(5), db.store.migrate(&again)).await;
    migrated.expect("waits for a transaction").unwrap();
    writer.execute("ROLLBACK").await.unwrap();
}

/// Other languages tell a repeat by the name of the key, and go on with their transaction.
async fn a_plain_repeat_is_told_by_the_name_of_its_key(db: TestDb) {
    let mut writer = connection(&db).await;
    let insert = "INSERT INTO orders_outbox
            (request_id, aggregate_type, aggregate_id, event_type, payload)
        VALUES ('r', 'order', '1', 'T', '{}')";
    writer.execute("BEGIN").await.unwrap();
    writer.execute(insert).await.unwrap();
    let refused = writer.execute(insert).await.unwrap_err().to_string();
    assert!(refused.contains("1062") && refused.contains("orders_outbox_keys'"), "{refused}");
    writer.execute("COMMIT").await.unwrap();
    assert_eq!(db.count("").await, 1);
    db.assert_balanced().await;
}

/// Switching `dedupe` makes and removes the trigger.
async fn dedupe_can_be_switched(db: TestDb) {
    let mut writer = connection(&db).await;
    let triggers = "SELECT COUNT(*) FROM information_schema.TRIGGERS
        WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = 'orders_outbox'
            AND TRIGGER_NAME = 'orders_outbox_forget'";
    for (dedupe, expected) in [(Dedupe::Open, 1), (Dedupe::default(), 0)] {
        let spec = OutboxSpec { dedupe, ..OutboxSpec::new(db.outbox.clone()) };
        db.store.migrate(&[spec]).await.unwrap();
        assert_eq!(writer.fetch_one(triggers).await.unwrap().get::<i64, _>(0), expected);
    }
}

/// To such an index `post-1` and `post-2` are the same key: the counts of both would be in one row.
async fn a_key_that_is_unique_by_its_beginning_only_is_no_target(db: TestDb) {
    db.execute("CREATE TABLE likes (post varchar(40) NOT NULL, total bigint, UNIQUE (post(5)))")
        .await;
    let target = BatchTarget::Table(TableTarget::new("likes", "post", "total").unwrap());
    let refused = db.store.check_target(&target).await.unwrap_err();
    assert!(matches!(refused, StoreError::Schema(_)), "{refused}");
    assert!(refused.to_string().contains("unique"), "{refused}");
    db.execute("ALTER TABLE likes ADD UNIQUE whole (post)").await;
    db.store.check_target(&target).await.expect_err("the other index still makes two keys one");
    db.execute("ALTER TABLE likes DROP INDEX post").await;
    db.store.check_target(&target).await.unwrap();
}
