//! What only SQLite has: a file, and programs in other languages that write text into it unchecked.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider::{NewEvent, Outbox};
use postrider_store::{
    Appender, ClaimLimit, ConnectOptions, Cursor, Lease, OutboxSpec, RelayIdentity, Schema, Share,
    Store, StoreError, sqlite::SqliteStore,
};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

/// A folder of the test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("postrider-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn open(file: &Path, create: bool) -> Result<SqliteStore, StoreError> {
    let options = ConnectOptions { create, ..ConnectOptions::default() };
    SqliteStore::connect(&format!("sqlite:{}", file.display()), &options).await
}

async fn store_with_relay(file: &Path) -> (SqliteStore, Outbox, Lease) {
    let store = open(file, true).await.unwrap();
    let outbox = Outbox::new("orders").unwrap();
    store.migrate(&[OutboxSpec::new(outbox.clone())]).await.unwrap();
    let relay = RelayIdentity {
        id: "r".into(),
        host: "h".into(),
        version: "1".into(),
        serving: Vec::new(),
    };
    let lease = store.register(&relay).await.unwrap();
    (store, outbox, lease)
}

async fn application(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap()
}

const LIMIT: ClaimLimit = ClaimLimit { rows: 100, bytes: 1 << 20, share: Share::WHOLE };

#[tokio::test]
async fn a_missing_file_is_made_only_where_that_is_asked_for() {
    let folder = Folder::new("missing");
    let file = folder.file("deep/er/outbox.db");
    let error = open(&file, false).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains(file.to_str().unwrap()), "names the file: {message}");
    assert!(message.contains("postrider migrate"), "names the fix: {message}");
    assert!(!error.is_transient());
    assert!(!file.parent().unwrap().exists(), "nothing was made");
    open(&file, true).await.unwrap();
    open(&file, false).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_database_is_named() {
    let folder = Folder::new("notes");
    let file = folder.file("notes.txt");
    std::fs::write(&file, "some notes, long enough for a header\n".repeat(200)).unwrap();
    let error = open(&file, true).await.unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert!(error.to_string().contains("not an SQLite database"), "{error}");
    let error = open(&folder.0, true).await.unwrap_err();
    assert!(error.to_string().contains("folder"), "{error}");
}

#[tokio::test]
async fn urls_that_cannot_hold_an_outbox_are_refused() {
    for url in ["sqlite::memory:", "sqlite:", "sqlite:x.db?mode=ro", "sqlite:x.db?mode=memory"] {
        let error = SqliteStore::connect(url, &ConnectOptions::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::Url(_)), "{url}: {error}");
        assert!(error.to_string().contains(url), "{error}");
    }
}

#[tokio::test]
async fn text_that_is_not_utf8_does_not_stop_the_claim() {
    let folder = Folder::new("utf8");
    let file = folder.file("outbox.db");
    let (store, outbox, lease) = store_with_relay(&file).await;
    sqlx::raw_sql(
        "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload)
         VALUES ('order', '1', 'Placed', CAST(x'61ff62' AS TEXT)), ('order', '2', 'Placed', 'c')",
    )
    .execute(&mut application(&file).await)
    .await
    .unwrap();
    let claimed = store.claim(&outbox, &lease, LIMIT, &mut Cursor::new()).await.unwrap();
    let payloads: Vec<_> = claimed.events.iter().map(|event| event.payload.as_str()).collect();
    assert_eq!(payloads, ["a\u{fffd}b", "c"]);
}

#[tokio::test]
async fn a_plain_insert_of_what_other_stores_refuse_by_type_is_refused() {
    let folder = Folder::new("types");
    let file = folder.file("outbox.db");
    store_with_relay(&file).await;
    let mut application = application(&file).await;
    for (column, value) in [
        ("next_retry_at", "'2026-01-31 10:00:00'"),
        ("next_retry_at", "'2026-13-31T10:00:00.000Z'"),
        ("expires_at", "1767225600"),
        ("created_at", "datetime('now')"),
        ("event_id", "'not a uuid'"),
        ("headers", "'[1]'"),
        ("headers", "x'7b7d'"),
        ("max_retries", "'many'"),
    ] {
        let insert = format!(
            "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, {column})
             VALUES ('order', '1', 'Placed', '{{}}', {value})"
        );
        let refused = sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut application).await;
        assert!(refused.is_err(), "{column} = {value} was taken");
    }
}

#[tokio::test]
async fn a_lock_that_is_not_given_back_is_reported_as_busy() {
    let folder = Folder::new("busy");
    let file = folder.file("outbox.db");
    let (store, outbox, lease) = store_with_relay(&file).await;
    let mut application = application(&file).await;
    let tx = application.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let start = Instant::now();
    let error = store.claim(&outbox, &lease, LIMIT, &mut Cursor::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    assert!(start.elapsed() >= Duration::from_secs(4), "it waits for its turn first");
    tx.rollback().await.unwrap();
    store.claim(&outbox, &lease, LIMIT, &mut Cursor::new()).await.unwrap();
}

/// As it does on a full disk, SQLite rolls back without being asked to; the driver's own rollback
/// then fails. (`full_disk.rs` of the binary's tests has the full disk.)
#[tokio::test]
async fn appends_go_on_after_sqlite_rolled_back_by_itself() {
    let folder = Folder::new("rolled-back");
    let file = folder.file("outbox.db");
    let (_store, outbox, _) = store_with_relay(&file).await;
    let appender = Appender::connect(&format!("sqlite:{}", file.display()), 1).await.unwrap();
    let Appender::Sqlite(pool) = &appender else { unreachable!("the URL is one of SQLite") };
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
    drop(tx);
    let event = NewEvent::new("order", "1", "Placed", "{}");
    let _ = appender.append_all(&outbox, &[event]).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_deleted_is_noticed_and_used_again_once_it_is_back() {
    let folder = Folder::new("deleted");
    let (file, aside) = (folder.file("outbox.db"), folder.file("aside"));
    let (store, outbox, lease) = store_with_relay(&file).await;
    let appender = Appender::connect(&format!("sqlite:{}", file.display()), 1).await.unwrap();
    let events = [NewEvent::new("order", "1", "Placed", "{}")];
    let _ = appender.append_all(&outbox, &events).await.unwrap();
    store.heartbeat(&lease, &[]).await.unwrap();
    std::fs::create_dir(&aside).unwrap();
    let move_all = |from: &Path, to: &Path| {
        for name in ["outbox.db", "outbox.db-wal", "outbox.db-shm"] {
            // The last connection takes the two others with it.
            drop(std::fs::rename(from.join(name), to.join(name)));
        }
    };

    move_all(&folder.0, &aside);
    let error = store.heartbeat(&lease, &[]).await.unwrap_err();
    assert!(error.to_string().contains("outbox.db"), "{error}");
    assert!(error.to_string().contains("deleted or moved"), "{error}");
    assert!(error.is_transient(), "it may come back");
    let refused = appender.append_all(&outbox, &events).await.unwrap_err();
    assert!(refused.to_string().contains("unable to open"), "{refused}");
    assert!(!file.exists(), "no empty file is made in its place");

    move_all(&aside, &folder.0);
    store.heartbeat(&lease, &[]).await.unwrap();
    let _ = appender.append_all(&outbox, &events).await.unwrap();
    let rows = "SELECT count(*) FROM orders_outbox";
    let rows: i64 =
        sqlx::query_scalar(rows).fetch_one(&mut application(&file).await).await.unwrap();
    assert_eq!(rows, 2);
}

#[tokio::test]
async fn the_wal_shrinks_after_a_long_reader() {
    let folder = Folder::new("wal");
    let file = folder.file("outbox.db");
    let (store, _, lease) = store_with_relay(&file).await;
    let wal = || std::fs::metadata(folder.file("outbox.db-wal")).unwrap().len();
    let mut reader = application(&file).await;
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("SELECT * FROM orders_outbox").fetch_all(&mut *reading).await.unwrap();
    let mut writer = application(&file).await;
    for _ in 0..24 {
        sqlx::raw_sql(
            "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('order', '1', 'Placed', hex(zeroblob(524288)))",
        )
        .execute(&mut writer)
        .await
        .unwrap();
    }
    assert!(wal() > 20 << 20, "nothing could be copied into the file: {}", wal());
    reading.rollback().await.unwrap();
    // The first commit copies everything, the next one starts the WAL over.
    for _ in 0..3 {
        store.heartbeat(&lease, &[]).await.unwrap();
    }
    assert!(wal() <= 16 << 20, "{}", wal());
}

/// It would be read as another identity than the stored one, and its row never be found again.
#[tokio::test]
async fn an_identity_that_is_not_ascii_is_refused() {
    let folder = Folder::new("identity");
    let file = folder.file("outbox.db");
    let (_store, _outbox, _lease) = store_with_relay(&file).await;
    let mut application = application(&file).await;
    let odd = "CAST(x'ff' || 'a4c2b3d4-8857-447e-a84e-3adb42c22d1' AS TEXT)";
    let insert = "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload";
    let refused = format!("{insert}, event_id) VALUES ('a', 'b', 'c', '{{}}', {odd})");
    let error = sqlx::query(AssertSqlSafe(refused)).execute(&mut application).await.unwrap_err();
    assert!(error.to_string().contains("event_id must be ASCII"), "{error}");
    let accepted = format!("{insert}) VALUES ('a', 'b', 'c', '{{}}')");
    sqlx::query(AssertSqlSafe(accepted)).execute(&mut application).await.unwrap();
    for change in [format!("event_id = {odd}"), format!("id = {}", i64::MAX)] {
        let update = format!("UPDATE orders_outbox SET {change}");
        sqlx::query(AssertSqlSafe(update)).execute(&mut application).await.unwrap_err();
    }
}
