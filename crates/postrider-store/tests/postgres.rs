//! What is true of PostgreSQL only: the sessions that a relay keeps, and timelines.
#![cfg(feature = "postgres")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_store::{
    ClaimLimit, ConnectOptions, Cursor, Dedupe, Delivery, LaneSet, OnSuccess, OutboxSpec, Share,
    StoreError, StoreKind,
    adopt::{Adoption, Field, StateWords},
    connect,
};
use postrider_testkit::{
    FaultProxy, PrivateServer, TestDb, conformance::steps::failure, eventually,
};

const SESSIONS: &str = "FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'postrider'";

fn limit(rows: u32) -> ClaimLimit {
    ClaimLimit { rows, bytes: 1 << 30, share: Share::WHOLE }
}

/// Kept sessions count as connections, too.
#[tokio::test]
async fn a_busy_store_has_no_more_sessions_than_it_may() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "no_more_sessions").await else { return };
    db.append_orders(400).await;
    let relay = db.relay("relay-a").await;
    let before: i64 = db.integer(&format!("SELECT count(*) {SESSIONS}")).await;
    let options = ConnectOptions { connections_max: 5, create: false };
    let store = connect(&db.url, &options).await.unwrap();
    let busy: Vec<_> = (0..20)
        .map(|_| {
            let (store, outbox, relay) = (Arc::clone(&store), db.outbox.clone(), relay.clone());
            tokio::spawn(async move {
                let mut claimed = Vec::new();
                for _ in 0..5 {
                    let claim = store.claim(&outbox, &relay, limit(4), &mut Cursor::new()).await;
                    let events = claim.unwrap().events;
                    let delivered: Vec<Delivery> = events.iter().map(Delivery::from).collect();
                    store
                        .settle_delivered(&outbox, &relay, &delivered, OnSuccess::Delete)
                        .await
                        .unwrap();
                    claimed.extend(events.iter().map(|event| event.id));
                }
                claimed
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for task in busy {
        claimed.extend(task.await.unwrap());
    }
    let different: BTreeSet<i64> = claimed.iter().copied().collect();
    assert_eq!(different.len(), claimed.len(), "each is claimed once");
    let sessions: i64 = db.integer(&format!("SELECT count(*) {SESSIONS}")).await;
    assert!((1..=5).contains(&(sessions - before)), "{sessions} sessions, {before} before");
    db.assert_balanced().await;
}

/// The database settled, and the relay never heard, on a session that it keeps: that one is not
/// used again, and the repeat finds nothing to do.
#[tokio::test]
async fn a_settle_by_places_whose_answer_is_lost_can_be_repeated() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "answer_is_lost").await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let options = ConnectOptions { connections_max: 2, create: false };
    let store = connect(&url, &options).await.unwrap();
    db.append_orders(450).await;
    let relay = db.relay("relay-under-test").await;
    let (outbox, mut cursor) = (&db.outbox, Cursor::new());
    let mut claim = async || {
        let claimed = store.claim(outbox, &relay, limit(150), &mut cursor).await.unwrap();
        claimed.events.iter().map(Delivery::from).collect::<Vec<_>>()
    };
    let settle = |rows| store.settle_delivered(outbox, &relay, rows, OnSuccess::Delete);
    let (first, second) = (claim().await, claim().await);
    assert_eq!(settle(&first).await.unwrap().rows, 150);

    proxy.lose_answer_to(b"COMMIT");
    let unheard = settle(&second).await;
    assert!(matches!(unheard, Err(StoreError::Unavailable(_))), "{unheard:?}");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(db.count("").await, 150, "the database did it");
    assert_eq!(settle(&second).await.unwrap().rows, 0, "once only");
    let third = claim().await;
    assert_eq!(settle(&third).await.unwrap().rows, 150);
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

/// A server that was restarted, or an operator, ended the sessions: no call fails for ever.
#[tokio::test]
async fn sessions_that_the_server_ended_are_replaced() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "sessions_ended").await else { return };
    db.append_orders(20).await;
    let relay = db.relay("relay-a").await;
    let mut cursor = Cursor::new();
    assert_eq!(db.claim_on(&relay, 10, &mut cursor).await.len(), 10);
    db.integer(&format!("SELECT count(pg_terminate_backend(pid)) {SESSIONS}")).await;
    let mut failures = 0;
    let claimed = loop {
        match db.store.claim(&db.outbox, &relay, limit(10), &mut cursor).await {
            Ok(claimed) => break claimed.events,
            Err(StoreError::Unavailable(_)) => failures += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(failures <= 1, "one session was kept");
    };
    assert_eq!(claimed.len(), 10);
}

/// A standby that was promoted may lack the last commits, and its ids may have passed the old ones
/// before a relay looks: the timeline tells. A restart alone is not an alarm.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_server_is_noticed_and_a_restarted_one_is_not() {
    let server = PrivateServer::start(StoreKind::Postgres, "promoted").await;
    let Some(server) = server else { return };
    let db = TestDb::on(StoreKind::Postgres, &server).await;
    let outbox = db.add_outbox(Dedupe::default()).await;
    let db = db.with_outbox(outbox);
    db.append_orders(2).await;
    let folder = db.text("SELECT current_setting('data_directory')").await.unwrap();
    let mut cursor = Cursor::new();
    let mut read = async || {
        eventually("the server answers", async || {
            cursor.observed_at = None;
            let (store, outbox) = (&db.store, &db.outbox);
            let lanes = LaneSet::ALL;
            let read = store.read_lanes(outbox, lanes, &[], &[], limit(10), &mut cursor).await;
            match read {
                Ok(read) => Some(Ok(read.rows.len())),
                Err(error) if error.is_transient() => None,
                Err(error) => Some(Err(error)),
            }
        })
        .await
    };
    assert_eq!(read().await.unwrap(), 2);
    server.stop().await;
    server.restart().await;
    assert!(read().await.is_ok(), "the same server");

    server.stop().await;
    std::fs::write(std::path::Path::new(&folder).join("standby.signal"), "").unwrap();
    server.restart().await;
    eventually("it is promoted", async || db.try_execute("SELECT pg_promote()").await.ok()).await;
    let noticed = read().await;
    let why = matches!(&noticed, Err(StoreError::HistoryChanged(why)) if why.contains("timeline"));
    assert!(why, "{noticed:?}");
    assert_eq!(read().await.unwrap(), 2, "from the beginning");
}

/// A restore, or a `TRUNCATE` that restarts the ids, with more rows since than there were before:
/// the last id does not tell it, and a reader that goes on from there passes the first rows over.
#[tokio::test]
async fn ids_that_began_anew_are_noticed_beyond_the_old_ones() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "ids_began_anew").await else { return };
    let relay = db.relay("relay-a").await;
    db.append_orders(3).await;
    let (mut reader, mut claimer) = (Cursor::new(), Cursor::new());
    let read = async |cursor: &mut Cursor| {
        cursor.observed_at = None;
        let found = db.store.read_lanes(&db.outbox, LaneSet::ALL, &[], &[], limit(100), cursor);
        let ids = |row: &postrider_store::LaneRow| row.event.id;
        found.await.map(|found| found.rows.iter().map(ids).collect::<Vec<_>>())
    };
    assert_eq!(read(&mut reader).await.unwrap(), [1, 2, 3]);
    let claimed = db.store.claim(&db.outbox, &relay, limit(100), &mut claimer).await.unwrap();
    assert_eq!(claimed.events.len(), 3);
    db.execute("SELECT setval('orders_outbox_id_seq', 10)").await;
    assert!(read(&mut reader).await.is_ok(), "a counter that goes on is the same");

    db.execute("TRUNCATE orders_outbox RESTART IDENTITY").await;
    let again = db.append_orders(20).await;
    let noticed = read(&mut reader).await;
    assert!(matches!(noticed, Err(StoreError::HistoryChanged(_))), "{noticed:?}");
    assert_eq!(read(&mut reader).await.unwrap(), again);
    claimer.observed_at = None;
    let noticed = db.store.claim(&db.outbox, &relay, limit(100), &mut claimer).await;
    assert!(matches!(noticed, Err(StoreError::HistoryChanged(_))), "{:?}", noticed.err());
    let claimed = db.store.claim(&db.outbox, &relay, limit(100), &mut claimer).await.unwrap();
    assert_eq!(claimed.events.len(), 20);
}

/// A writer has its own table and is about to reach the outbox through the trigger, while a
/// migration ends the adoption, or begins it: the migration waits for the writer, and neither
/// fails.
#[tokio::test]
async fn a_migration_of_an_adopted_table_fails_no_writer() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "migration_and_writer").await else { return };
    db.execute(
        "CREATE TABLE letters (id bigserial PRIMARY KEY, kind text NOT NULL, about text NOT NULL,
         what text NOT NULL, body text NOT NULL)",
    )
    .await;
    let columns = [
        (Field::Id, "id"),
        (Field::AggregateType, "kind"),
        (Field::AggregateId, "about"),
        (Field::EventType, "what"),
        (Field::Payload, "body"),
    ];
    let adoption = Adoption {
        table: "letters".to_owned(),
        time_zone: "UTC".to_owned(),
        columns: columns.map(|(field, column)| (field, column.to_owned())).into(),
        constants: Default::default(),
        states: StateWords::default(),
        dead_letters: None,
        keep_delivered: false,
    };
    let spec = |adoption: Option<&Adoption>| OutboxSpec {
        adoption: adoption.cloned(),
        ..OutboxSpec::new(db.outbox.clone())
    };
    db.store.migrate(&[spec(Some(&adoption))]).await.unwrap();
    let pool = sqlx::PgPool::connect(&db.url).await.unwrap();
    for next in [None, Some(&adoption), None] {
        let mut writer = pool.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE letters IN ROW EXCLUSIVE MODE")
            .execute(&mut *writer)
            .await
            .unwrap();
        let (store, next) = (Arc::clone(&db.store), spec(next));
        let migration = tokio::spawn(async move { store.migrate(&[next]).await });
        let waiting = format!("SELECT count(*) {SESSIONS} AND wait_event_type = 'Lock'");
        eventually("the migration waits for the writer", async || {
            (db.integer(&waiting).await > 0).then_some(())
        })
        .await;
        let insert = "INSERT INTO letters (kind, about, what, body) VALUES ('a', '1', 'T', '{}')";
        sqlx::raw_sql(insert).execute(&mut *writer).await.unwrap();
        writer.commit().await.unwrap();
        migration.await.unwrap().unwrap();
    }
    assert_eq!(db.count("").await, 2, "the first and the last insert were adopted ones");
}

/// Somebody wrote it with the triggers off, as programs do that restore data.
#[tokio::test]
async fn what_was_written_without_triggers_stops_no_claim_and_no_settle() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "without_triggers").await else { return };
    let ids = db.append_orders(4).await;
    db.execute("ALTER TABLE orders_outbox DISABLE TRIGGER USER").await;
    let odd = [format!("version = {}", i64::MAX), format!("version = {}", i64::MIN)];
    for (id, odd) in ids.iter().zip(odd.into_iter().chain(["dead_reason = 'expired'".to_owned()])) {
        db.execute(&format!("UPDATE orders_outbox SET {odd} WHERE id = {id}")).await;
    }
    db.execute("ALTER TABLE orders_outbox ENABLE TRIGGER USER").await;
    let relay = db.relay("relay-a").await;
    let claim = async || {
        let claimed = db.store.claim(&db.outbox, &relay, limit(10), &mut Cursor::new()).await;
        claimed.unwrap().events
    };
    let claimed = claim().await;
    let versions: Vec<i64> = claimed.iter().map(|event| event.version).collect();
    assert_eq!(versions, [0, 1, 1, 1]);
    let failed: Vec<_> =
        claimed.iter().map(|event| failure(event, Duration::ZERO, "500")).collect();
    let settled = db.store.settle_failed(&db.outbox, &relay, &failed).await.unwrap();
    assert_eq!(settled.rows, 4);
    let delivered: Vec<Delivery> = claim().await.iter().map(Delivery::from).collect();
    db.store.settle_delivered(&db.outbox, &relay, &delivered, OnSuccess::Delete).await.unwrap();
    assert_eq!(db.count("").await, 0);
}

/// What a claim sets is checked as well, and only a little less: an update by hand may look like
/// one.
#[tokio::test]
async fn an_update_that_looks_like_a_claim_is_refused() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "like_a_claim").await else { return };
    db.append_orders(1).await;
    for odd in [
        "version = 9223372036854775807",
        "version = -1",
        "status = 'GARBAGE'",
        "status = 'FAILED'",
        "status = 'DEAD_LETTER'",
        "status = 'PENDING', locked_by = 'x'",
        "status = 'PROCESSING', dead_reason = 'nonsense'",
        "dead_reason = 'expired'",
        "created_at = 'infinity'",
        "next_retry_at = '-infinity'",
        "retry_count = 2147483647",
        "crash_count = -1",
        "max_retries = 0",
    ] {
        let update = format!("UPDATE orders_outbox SET {odd}, locked_at = now()");
        let error = db.try_execute(&update).await.expect_err(odd).to_string();
        assert!(error.contains("no relay can handle"), "{odd}: {error}");
    }
    let error = db.try_execute("UPDATE orders_outbox SET locked_at = 'infinity'").await;
    error.expect_err("a time that cannot be read back");
}

/// The guard of inserted rows does not use operators that the application made.
#[tokio::test]
async fn operators_of_an_application_do_not_reach_the_guard() {
    let Some(db) = TestDb::open(StoreKind::Postgres, "operators").await else { return };
    db.execute("CREATE SCHEMA evil").await;
    for (operator, of) in [
        ("=", "bigint, integer"),
        (">=", "bigint, integer"),
        ("<=", "bigint, bigint"),
        (">=", "integer, integer"),
        ("=", "text, text"),
        ("=", "integer, integer"),
        (">=", "timestamptz, timestamptz"),
        ("<=", "timestamptz, timestamptz"),
    ] {
        let (left, right) = of.split_once(", ").unwrap();
        db.execute(&format!(
            "CREATE OR REPLACE FUNCTION evil.yes({left}, {right}) RETURNS boolean LANGUAGE sql
             AS 'SELECT true'"
        ))
        .await;
        db.execute(&format!(
            "CREATE OPERATOR evil.{operator} (FUNCTION = evil.yes, LEFTARG = {left},
             RIGHTARG = {right})"
        ))
        .await;
    }
    let insert = async |column: &str, value: &str| {
        let mut tx = db.begin().await;
        tx.execute("SET LOCAL search_path = evil, pg_catalog, public").await.unwrap();
        let inserted = tx
            .execute(&format!(
                "INSERT INTO orders_outbox
                     (aggregate_type, aggregate_id, event_type, payload, {column})
                 VALUES ('order', '1', 'T', '{{}}', {value})"
            ))
            .await;
        let path =
            tx.execute("SELECT 1 / (current_setting('search_path') LIKE 'evil%')::int").await;
        assert!(inserted.is_err() || path.is_ok(), "the path of the application is kept");
        if inserted.is_ok() { tx.commit().await } else { tx.rollback().await }.unwrap();
        inserted
    };
    for (column, value) in [
        ("next_retry_at", "'infinity'"),
        ("expires_at", "'-infinity'"),
        ("max_retries", "-5"),
        ("id", "9223372036854775807"),
    ] {
        insert(column, value).await.expect_err(column);
    }
    insert("version", "9223372036854775807").await.unwrap();
    let version = "SELECT version FROM orders_outbox";
    assert_eq!(db.integer(version).await, 0, "the relay's columns are reset");
}
