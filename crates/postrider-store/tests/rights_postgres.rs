//! The rights that `migrate --print` names are enough, and not more than each role needs.
#![cfg(feature = "postgres")]
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use postrider::{NewEvent, Outbox, postgres};
use postrider_store::{
    ClaimMode, ConnectOptions, Cursor, Database, Dedupe, Key, LaneSet, Lease, OnSuccess,
    OutboxSpec, Page, Recovery, Retention, SchemaState, StoreKind, connect,
};
use postrider_testkit::{
    TestDb,
    conformance::steps::{death, deferral, failure, originals, rows},
};

const ROLES: [&str; 3] = ["app", "relay", "viewer"];

/// Roles belong to the server, not to the test's database: they have names of their own.
struct Roles {
    suffix: String,
}

impl Roles {
    async fn create(db: &TestDb) -> Self {
        let roles = Self { suffix: uuid::Uuid::new_v4().simple().to_string() };
        for role in ROLES {
            let name = roles.name(role);
            db.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'")).await;
        }
        roles
    }

    fn name(&self, role: &str) -> String {
        format!("postrider_test_{role}_{}", self.suffix)
    }

    fn url(&self, db: &TestDb, role: &str) -> String {
        let name = self.name(role);
        let at = db.url.find('@').expect("a URL with a user") + 1;
        format!("postgres://{name}:{name}@{}", &db.url[at..])
    }

    async fn drop(self, db: &TestDb) {
        for role in ROLES {
            let name = self.name(role);
            db.execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await;
        }
    }
}

/// The commented GRANTs, as an administrator would run them.
fn grants(script: &str, roles: &Roles) -> String {
    let mut grants = String::new();
    for line in script.lines().filter_map(|line| line.strip_prefix("--   ")) {
        grants.push_str(line.split("--").next().unwrap_or_default());
        grants.push('\n');
    }
    for role in ROLES {
        grants = grants.replace(&format!("TO {role};"), &format!("TO {};", roles.name(role)));
    }
    assert!(grants.matches("GRANT").count() >= 3, "{grants}");
    grants
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_rights_are_enough_for_each_role() {
    let name = concat!(module_path!(), "::the_printed_rights_are_enough_for_each_role");
    let Some(db) = TestDb::open(StoreKind::Postgres, name).await else { return };
    let roles = Roles::create(&db).await;
    let script = db.store.migration_sql(&[OutboxSpec::new(db.outbox.clone())]);
    db.execute(&grants(&script, &roles)).await;

    // In tasks of their own, so that the roles are dropped even when one of them fails.
    let checks = [
        tokio::spawn(the_application_appends(db.clone(), roles.url(&db, "app"))).await,
        tokio::spawn(the_relay_does_its_work(db.clone(), roles.url(&db, "relay"))).await,
        tokio::spawn(a_viewer_reads_and_changes_nothing(db.clone(), roles.url(&db, "viewer")))
            .await,
    ];
    roles.drop(&db).await;
    for check in checks {
        check.unwrap();
    }
}

async fn the_application_appends(db: TestDb, url: String) {
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let event = NewEvent::new("order", "1", "OrderPlaced", "{}")
        .request_id("r")
        .header("source", "shop")
        .max_retries(7)
        .expires_after(Duration::from_secs(3600));
    let mut tx = pool.begin().await.unwrap();
    let first = postgres::append(&mut tx, &db.outbox, &event).await.unwrap();
    let again = postgres::append(&mut tx, &db.outbox, &event).await.unwrap();
    assert_eq!((again.is_duplicate(), again.id()), (true, first.id()));
    let batch: Vec<_> =
        (0..5).map(|n| NewEvent::new("order", n.to_string(), "OrderPlaced", "{}")).collect();
    assert_eq!(postgres::append_all(&mut tx, &db.outbox, &batch).await.unwrap().len(), 5);
    tx.commit().await.unwrap();
    let relays = [
        "status",
        "retry_count",
        "redrive_count",
        "crash_count",
        "version",
        "locked_by",
        "locked_at",
        "last_error",
        "dead_reason",
        "response",
        "created_at",
        "updated_at",
    ];
    let forged = relays.map(|column| {
        format!(
            "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, \
             {column}) VALUES ('order', '1', 'OrderPlaced', '{{}}', NULL)"
        )
    });
    let others = [
        "SELECT payload FROM orders_outbox",
        "DELETE FROM orders_outbox",
        "UPDATE orders_outbox SET payload = ''",
        "DELETE FROM orders_outbox_keys",
        "SELECT 1 FROM orders_outbox_dlq",
    ];
    for forbidden in forged.iter().map(String::as_str).chain(others) {
        let sql = sqlx::AssertSqlSafe(forbidden.to_owned());
        let error = sqlx::raw_sql(sql).execute(&pool).await.expect_err(forbidden);
        let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default();
        assert_eq!(code, "42501", "{forbidden}: {error}");
    }
    pool.close().await;
}

/// A role that got INSERT on the whole table, as older versions printed it, forges nothing either.
async fn what_an_application_forges_is_set_back(db: TestDb, url: String) {
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let forged = "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, \
                  request_id, redrive_count, retry_count, status, dead_reason) \
                  VALUES ('order', '1', 'OrderPlaced', '{}', 'twice', 1, 7, 'DEAD_LETTER', \
                  'crash')";
    assert_eq!(sqlx::raw_sql(forged).execute(&pool).await.unwrap().rows_affected(), 1);
    let repeat = sqlx::raw_sql(forged).execute(&pool).await.unwrap();
    assert_eq!(repeat.rows_affected(), 0, "redrive_count does not get past the request id");
    let as_new = "SELECT count(*) FROM orders_outbox WHERE request_id = 'twice' \
                  AND status = 'PENDING' AND redrive_count = 0 AND retry_count = 0";
    assert_eq!(db.integer(as_new).await, 1);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_on_the_whole_table_lets_nobody_forge() {
    let name = concat!(module_path!(), "::a_right_on_the_whole_table_lets_nobody_forge");
    let Some(db) = TestDb::open(StoreKind::Postgres, name).await else { return };
    let roles = Roles::create(&db).await;
    db.execute(&format!("GRANT INSERT ON orders_outbox TO {}", roles.name("app"))).await;
    let url = roles.url(&db, "app");
    let check = tokio::spawn(what_an_application_forges_is_set_back(db.clone(), url)).await;
    roles.drop(&db).await;
    check.unwrap();
}

async fn the_relay_does_its_work(db: TestDb, url: String) {
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    let outbox = db.outbox.clone();
    let ready = store.schema_state(std::slice::from_ref(&outbox)).await.unwrap();
    assert_eq!(ready, SchemaState::Ready);
    let lease = db.relay("relay-a").await;
    store.heartbeat(&lease, &[]).await.unwrap();
    let claimed = store.claim(&outbox, &lease, rows(10), &mut Cursor::new()).await.unwrap().events;
    assert_eq!(claimed.len(), 6);
    let delivered = [(&claimed[0]).into()];
    store.settle_delivered(&outbox, &lease, &delivered, OnSuccess::Archive).await.unwrap();
    let failed = [failure(&claimed[1], Duration::ZERO, "no")];
    store.settle_failed(&outbox, &lease, &failed).await.unwrap();
    let dead = [death(&claimed[2], postrider_store::DeadReason::Rejected, "no")];
    store.settle_dead(&outbox, &lease, &dead).await.unwrap();
    let marked = [death(&claimed[3], postrider_store::DeadReason::Rejected, "no")];
    store.mark_dead(&outbox, &lease, &marked).await.unwrap();
    store.release(&outbox, &lease, &[deferral(&claimed[4], Duration::ZERO)]).await.unwrap();
    store.release_lost(&outbox, &lease, &[]).await.unwrap();
    store.has_suspect(&outbox).await.unwrap();
    store.claim_suspect(&outbox, &lease).await.unwrap();
    assert_eq!(originals(&store.move_marked(&outbox, 10).await.unwrap()), [claimed[3].id]);
    let recovery = Recovery { dead: &[], live: &[], stalled_after: Duration::from_secs(300) };
    store.recover(&outbox, &recovery).await.unwrap();
    store.fold_ledger(&outbox, 100).await.unwrap();
    let day = Duration::from_secs(24 * 3600);
    let retention =
        Retention { archive: day, resolved: day, dedupe: Dedupe::Window(day), chunk: 100 };
    let cleaned = store.clean_up(&outbox, &retention).await;
    cleaned.expect("without owning the tables, it deletes instead of dropping");
    let page = Page::first(10);
    let letters = store.dead_letters(&outbox, &Default::default(), page).await.unwrap().rows;
    store.retry(&outbox, letters[0].id, "ann", "").await.unwrap();
    store.resolve(&outbox, letters[1].id, "ann", "").await.unwrap();
    the_relay_works_in_lanes(&*store, &outbox, &lease).await;
    store.failed_rows(&outbox, 10).await.unwrap();
    store.composition(&outbox, 10).await.unwrap();
    let specs = [OutboxSpec::new(outbox.clone())];
    let findings = store.diagnose(&specs, Duration::from_secs(300)).await.unwrap();
    let rights = findings.iter().find(|finding| finding.subject == "rights").unwrap();
    assert_eq!(rights.fix, None, "the printed rights are all that a relay needs: {rights:?}");
    store.retire(&lease).await.unwrap();
    db.assert_balanced().await;
}

async fn the_relay_works_in_lanes(store: &dyn Database, outbox: &Outbox, lease: &Lease) {
    store.set_mode(outbox, ClaimMode::Lanes, "ann").await.unwrap();
    let lanes = store.take_lanes(outbox, lease, 64).await.unwrap();
    assert_eq!(lanes.len(), 64);
    let mut cursor = Cursor::new();
    store.read_lanes(outbox, LaneSet::ALL, &[], &[], rows(10), &mut cursor).await.unwrap();
    store.note_flight(outbox, lease, LaneSet::ALL, 1).await.unwrap();
    store.note_suspect(outbox, lease, 0, Some(1)).await.unwrap();
    store.clear_crashes(outbox, lease, LaneSet::ALL).await.unwrap();
    let key = Key { aggregate_type: "order".to_owned(), aggregate_id: "1".to_owned() };
    store.park_keys(outbox, lease, std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(store.parked_keys(outbox).await.unwrap().len(), 1);
    store.release_key(outbox, &key, "ann").await.unwrap();
    store.release_lanes(outbox, lease, &lanes).await.unwrap();
}

async fn a_viewer_reads_and_changes_nothing(db: TestDb, url: String) {
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    let page = Page::first(10);
    assert!(store.ledger(&db.outbox).await.unwrap().iter().all(|window| window.balanced()));
    assert_eq!(store.statistics(&db.outbox).await.unwrap().delivered, 1);
    assert!(!store.events(&db.outbox, &Default::default(), page).await.unwrap().rows.is_empty());
    let letters = store.dead_letters(&db.outbox, &Default::default(), page).await.unwrap().rows;
    store.attempts(&db.outbox, &letters[0].event_id).await.unwrap();
    assert_eq!(store.audit(&Default::default(), page).await.unwrap().rows.len(), 4);
    store.blocked_keys(&db.outbox, 10, 200_000).await.unwrap();
    store.modes().await.unwrap();
    store.retry(&db.outbox, letters[0].id, "eve", "").await.expect_err("a viewer only looks");
    store.failed_rows(&db.outbox, 10).await.unwrap();
    store.composition(&db.outbox, 10).await.unwrap();
    store.lane_owners(&db.outbox).await.unwrap();
    let specs = [OutboxSpec::new(db.outbox.clone())];
    let findings = store.diagnose(&specs, Duration::from_secs(300)).await.unwrap();
    let rights = findings.iter().find(|finding| finding.subject == "rights").unwrap();
    assert!(rights.finding.contains("INSERT on orders_outbox"), "{rights:?}");
}
