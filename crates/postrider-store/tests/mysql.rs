//! What is true of MariaDB and MySQL only: traps that the conformance suite cannot know.
#![cfg(feature = "mysql")]
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider::NewEvent;
use postrider_store::{
    BatchTarget, ClaimLimit, ConnectOptions, Cursor, DeadReason, Dedupe, LaneSet, OnSuccess,
    OutboxSpec, Page, Share, StoreError, TableTarget, connect,
};
use postrider_testkit::{
    FaultProxy, PrivateServer, TestDb, TestServer, conformance::steps::death, eventually,
};
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
    a_relay_that_hangs_in_a_transaction_is_fenced,
    a_reader_that_knows_thousands_of_events_reads_past_them_at_once,
    applications_at_repeatable_read_do_not_deadlock_with_relays,
);

mod mariadb_alone {
    postrider_testkit::on_store!(mariadb: a_session_without_checks_cannot_append);
}

mod mysql_alone {
    postrider_testkit::on_store!(
        mysql: every_table_has_a_primary_key,
        a_password_that_needs_tls_says_so,
    );
}

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

/// Its transaction holds the lock on its own row, so no other relay could declare it dead: the
/// server ends the transaction, or the session.
async fn a_relay_that_hangs_in_a_transaction_is_fenced(db: TestDb) {
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let options = ConnectOptions { connections_max: 1, create: false };
    let store = connect(&url, &options).await.unwrap();
    let (hanging, other) = (db.relay("relay-a").await, db.relay("relay-b").await);
    let outbox = db.outbox.clone();
    db.append_orders(2).await;
    let claimed = db.claim(&hanging, 2).await;
    // The first settle prepares the statements, so that each step is one request.
    let first = [(&claimed[0]).into()];
    store.settle_delivered(&outbox, &hanging, &first, OnSuccess::Delete).await.unwrap();
    // The answers to a ping and to BEGIN (11 bytes each), and not all of the one to the lock.
    proxy.hold_answers_after(60);
    let (lease, second) = (hanging.clone(), [(&claimed[1]).into()]);
    let settle = tokio::spawn(async move {
        store.settle_delivered(&outbox, &lease, &second, OnSuccess::Delete).await
    });
    let relays = db.store.heartbeat(&other, &[]).await.unwrap();
    let pulse = relays.into_iter().find(|pulse| pulse.relay_id == "relay-a").unwrap();
    eventually("the lock is held", async || {
        matches!(db.store.fence(&pulse).await, Err(StoreError::Busy(_))).then_some(())
    })
    .await;
    eventually("it is fenced", async || {
        matches!(db.store.fence(&pulse).await, Ok(true)).then_some(())
    })
    .await;
    proxy.pass();
    settle.await.unwrap().expect_err("its transaction is over");
    assert_eq!(db.count("").await, 1, "the row is still there");
    db.assert_balanced().await;
}

/// Without an index on the list, MySQL compared each row with each id: 20 s for these.
async fn a_reader_that_knows_thousands_of_events_reads_past_them_at_once(db: TestDb) {
    let known = db.append_orders(4_000).await;
    let more = db.append_orders(3).await;
    let started = Instant::now();
    let mut cursor = Cursor::new();
    let read = db.store.read_lanes(&db.outbox, LaneSet::ALL, &known, &[], TEN, &mut cursor).await;
    let took = started.elapsed();
    let ids: Vec<i64> = read.unwrap().rows.iter().map(|row| row.event.id).collect();
    assert_eq!(ids, more);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// REPEATABLE READ is the default of the server, so of most applications. Their reads and inserts
/// lock gaps; relays that waited for those in another order would end in a deadlock, and the server
/// might choose the application's transaction.
async fn applications_at_repeatable_read_do_not_deadlock_with_relays(db: TestDb) {
    const TRANSACTIONS: usize = 60;
    let done = Arc::new(AtomicBool::new(false));
    let mut relays = Vec::new();
    for name in ["relay-a", "relay-b"] {
        let (db, done, lease) = (db.clone(), Arc::clone(&done), db.relay(name).await);
        relays.push(tokio::spawn(async move {
            let mut cursor = Cursor::new();
            while !done.load(Ordering::Relaxed) {
                let claimed = db.store.claim(&db.outbox, &lease, TEN, &mut cursor).await;
                let Ok(claimed) = claimed else { continue };
                let settled: Vec<_> = claimed.events.iter().map(Into::into).collect();
                let archive = OnSuccess::Archive;
                drop(db.store.settle_delivered(&db.outbox, &lease, &settled, archive).await);
                drop(db.store.fold_ledger(&db.outbox, 100).await);
            }
        }));
    }
    let mut applications = Vec::new();
    for application in 0..4 {
        let db = db.clone();
        applications.push(tokio::spawn(async move {
            for number in 0..TRANSACTIONS {
                let mut tx = db.begin_repeatable_read().await;
                let of = |half| {
                    let id = format!("{application}-{number}-{half}");
                    NewEvent::new("order", &*id, "T", "{}").request_id(&*id)
                };
                for half in 0..2 {
                    let appended = tx.append(&db.outbox, &of(half)).await.unwrap();
                    assert!(!appended.is_duplicate());
                }
                // A repeat reads the key with a lock. The last step: on MySQL it locks the end of
                // the outbox, as the contract says.
                assert!(tx.append(&db.outbox, &of(0)).await.unwrap().is_duplicate());
                tx.commit().await.unwrap();
            }
        }));
    }
    for application in applications {
        application.await.expect("no deadlock");
    }
    done.store(true, Ordering::Relaxed);
    for relay in relays {
        relay.await.unwrap();
    }
    db.assert_balanced().await;
}

/// `sql_require_primary_key` and Group Replication refuse others.
async fn every_table_has_a_primary_key(db: TestDb) {
    let without = "SELECT GROUP_CONCAT(t.TABLE_NAME) FROM information_schema.TABLES AS t
        WHERE t.TABLE_SCHEMA = DATABASE() AND NOT EXISTS (
            SELECT 1 FROM information_schema.TABLE_CONSTRAINTS AS c
            WHERE c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
              AND c.CONSTRAINT_TYPE = 'PRIMARY KEY')";
    assert_eq!(db.text(without).await, None);
}

/// `caching_sha2_password`: the server knows the password of a user only after a login by TLS.
async fn a_password_that_needs_tls_says_so(db: TestDb) {
    let name = format!("pr_tls_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    db.execute(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{name}'")).await;
    db.execute(&format!("GRANT ALL ON *.* TO '{name}'@'%'")).await;
    let at = db.url.find('@').unwrap() + 1;
    let by_tls = format!("mysql://{name}:{name}@{}", &db.url[at..]);
    let plain = format!("{by_tls}?ssl-mode=DISABLED");
    let options = ConnectOptions::default();
    let refused = connect(&plain, &options).await.map(drop).unwrap_err().to_string();
    let known = connect(&by_tls, &options).await.map(drop);
    let now = connect(&plain, &options).await.map(drop);
    db.execute(&format!("DROP USER '{name}'@'%'")).await;
    assert!(refused.contains("caching_sha2_password") && refused.contains("TLS"), "{refused}");
    known.unwrap();
    now.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_log_of_statements_is_reported() {
    let test = "a_binary_log_of_statements";
    let Some(server) = PrivateServer::start(TestServer::Mysql, test).await else { return };
    let db = TestDb::on(TestServer::Mysql, &server).await;
    let found = async || {
        let findings = db.store.diagnose(&[], Duration::from_secs(300)).await.unwrap();
        findings.iter().any(|finding| finding.subject == "binary log")
    };
    assert!(!found().await, "rows are the default");
    db.execute("SET GLOBAL binlog_format = 'STATEMENT'").await;
    assert!(found().await);
}

/// A row that breaks a check could not be changed by any relay: each claim would fail because of
/// it.
async fn a_session_without_checks_cannot_append(db: TestDb) {
    let mut application = connection(&db).await;
    let off = "SET SESSION check_constraint_checks = 0, SESSION sql_mode = ''";
    application.execute(off).await.unwrap();
    let error = application.execute(INSERT).await.unwrap_err().to_string();
    assert!(error.contains("check_constraint_checks"), "{error}");
    application.execute("SET SESSION check_constraint_checks = 1").await.unwrap();
    application.execute(INSERT).await.unwrap();
}

/// Settings of the server that an administrator may change for other programs.
#[tokio::test]
async fn limits_on_the_sessions_of_a_server_do_not_reach_relays() {
    for on in [TestServer::Mysql, TestServer::Mariadb] {
        let Some(server) = PrivateServer::start(on, "session_limits").await else { return };
        let db = TestDb::on(on, &server).await;
        let outbox = db.add_outbox(Dedupe::default()).await;
        let db = db.with_outbox(outbox);
        db.append_orders(30).await;
        for setting in ["sql_select_limit = 5", "sql_safe_updates = 1", "max_join_size = 10"] {
            db.execute(&format!("SET GLOBAL {setting}")).await;
        }
        if on == TestServer::Mariadb {
            db.execute("SET GLOBAL optimizer_switch = 'materialization=off'").await;
            db.execute("SET GLOBAL check_constraint_checks = 0").await;
        }
        let store = connect(&db.url, &ConnectOptions::default()).await.unwrap();
        let relay = db.relay("relay-a").await;
        let owned = store.take_lanes(&db.outbox, &relay, 64).await.unwrap();
        assert_eq!(owned.len(), 64, "{on:?}");
        let claimed = store.claim(&db.outbox, &relay, TEN, &mut Cursor::new()).await.unwrap();
        assert_eq!(claimed.events.len(), 10, "{on:?}");
        let delivered: Vec<_> = claimed.events.iter().map(Into::into).collect();
        let settled =
            store.settle_delivered(&db.outbox, &relay, &delivered, OnSuccess::Archive).await;
        assert_eq!(settled.unwrap().rows, 10, "{on:?}");
        // The relay inserts rows as well.
        let claimed = store.claim(&db.outbox, &relay, TEN, &mut Cursor::new()).await.unwrap();
        let dead = death(&claimed.events[0], DeadReason::Rejected, "422");
        store.settle_dead(&db.outbox, &relay, &[dead]).await.unwrap();
        let letters = store.dead_letters(&db.outbox, &Default::default(), Page::first(1)).await;
        let letter = letters.unwrap().rows[0].id;
        store.retry(&db.outbox, letter, "olga", "again").await.unwrap();
    }
}
