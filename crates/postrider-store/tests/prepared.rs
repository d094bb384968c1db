//! Transactions that are prepared (two-phase commit): their events are open until somebody ends
//! them, however often their session or the server goes away meanwhile.
#![cfg(all(feature = "postgres", feature = "mysql"))]

use std::time::{Duration, Instant};

use postrider::NewEvent;
use postrider_store::{Cursor, Dedupe, LaneSet, StoreKind};
use postrider_testkit::{PrivateServer, TestDb, TestServer, conformance::steps::rows, eventually};
use sqlx::{AssertSqlSafe, Connection};

/// Longer than any store takes to believe that a transaction has ended.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

fn of(aggregate_id: &str) -> NewEvent {
    NewEvent::new("order", aggregate_id, "T", "{}")
}

/// Ids of the rows that are read, once the server answers.
async fn read(db: &TestDb, known: &[i64], cursor: &mut Cursor) -> Vec<i64> {
    eventually("the server answers", async || {
        cursor.observed_at = None;
        let (store, outbox) = (&db.store, &db.outbox);
        match store.read_lanes(outbox, LaneSet::ALL, known, &[], rows(100), cursor).await {
            Ok(found) => Some(found.rows.iter().map(|row| row.event.id).collect()),
            Err(error) if error.is_transient() => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

/// Reads for as long as a mistake would take; a reader that has passed `open` is one.
async fn stays_behind(db: &TestDb, open: i64, known: &[i64], cursor: &mut Cursor, when: &str) {
    let started = Instant::now();
    while started.elapsed() < LONG_ENOUGH {
        assert!(read(db, known, cursor).await.is_empty(), "{when}");
        assert!(cursor.low < open, "{when}: the reader passed {open}, which may still commit");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The statements with which an application prepares one event under a name.
fn prepare(kind: StoreKind, table: &str, name: &str) -> String {
    let insert = format!(
        "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload) \
         VALUES ('order', 'K', 'T', '{{}}')"
    );
    match kind {
        StoreKind::Mysql => {
            format!("XA START '{name}'; {insert}; XA END '{name}'; XA PREPARE '{name}'")
        }
        StoreKind::Postgres | StoreKind::Sqlite => {
            format!("BEGIN; {insert}; PREPARE TRANSACTION '{name}'")
        }
    }
}

/// In a session of its own, which ends.
async fn run_in_a_session(db: &TestDb, script: &str) {
    let script = AssertSqlSafe(script.to_owned());
    match db.store.kind() {
        StoreKind::Mysql => {
            let mut session = sqlx::MySqlConnection::connect(&db.url).await.expect("a session");
            sqlx::raw_sql(script).execute(&mut session).await.expect("it works");
            session.close().await.expect("it ends");
        }
        StoreKind::Postgres | StoreKind::Sqlite => {
            let mut session = sqlx::PgConnection::connect(&db.url).await.expect("a session");
            sqlx::raw_sql(script).execute(&mut session).await.expect("it works");
            session.close().await.expect("it ends");
        }
    }
}

/// A reader never passes an event that is prepared: not when its session ends, not when the server
/// stops or crashes and starts again. When it is committed, it is read before what came after it.
async fn a_prepared_event_stays_open_through_restarts(on: TestServer, test: &str) {
    let Some(server) = PrivateServer::start(on, test).await else { return };
    let (db, kind) = (TestDb::on(on, &server).await, on.kind());
    if kind == StoreKind::Postgres {
        db.execute("ALTER SYSTEM SET max_prepared_transactions = 5").await;
        server.stop().await;
        server.restart().await;
    }
    eventually("the server answers", async || db.try_execute("SELECT 1").await.ok()).await;
    let outbox = db.add_outbox(Dedupe::default()).await;
    let db = db.with_outbox(outbox);
    let before = db.append(&[of("K")]).await;
    let mut cursor = Cursor::new();
    assert_eq!(read(&db, &[], &mut cursor).await, before);

    run_in_a_session(&db, &prepare(kind, db.outbox.table(), "one")).await;
    let open = before[0] + 1;
    let after = db.append(&[of("other")]).await;
    assert_eq!(after, [open + 1]);
    assert_eq!(read(&db, &before, &mut cursor).await, after);
    let known = [before[0], after[0]];
    stays_behind(&db, open, &known, &mut cursor, "its session has ended").await;
    server.stop().await;
    server.restart().await;
    stays_behind(&db, open, &known, &mut cursor, "the server was stopped").await;
    server.kill().await;
    server.restart().await;
    stays_behind(&db, open, &known, &mut cursor, "the server has crashed").await;

    let commit = if kind == StoreKind::Mysql { "XA COMMIT 'one'" } else { "COMMIT PREPARED 'one'" };
    run_in_a_session(&db, commit).await;
    let last = db.append(&[of("K")]).await;
    assert_eq!(read(&db, &known, &mut cursor).await, [open, last[0]]);
    eventually("the reader goes on", async || {
        read(&db, &[known[0], open, known[1], last[0]], &mut cursor).await;
        (cursor.low >= last[0]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_event_stays_open_through_restarts_of_postgres() {
    a_prepared_event_stays_open_through_restarts(TestServer::Postgres, "prepared_postgres").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_event_stays_open_through_restarts_of_mariadb() {
    a_prepared_event_stays_open_through_restarts(TestServer::Mariadb, "prepared_mariadb").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_event_stays_open_through_restarts_of_mysql() {
    a_prepared_event_stays_open_through_restarts(TestServer::Mysql, "prepared_mysql").await;
}
