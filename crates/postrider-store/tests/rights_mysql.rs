//! The rights that `migrate --print` names are enough, and not more than each user needs.
#![cfg(feature = "mysql")]
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{
    ClaimMode, ConnectOptions, Cursor, Database, LaneSet, OnSuccess, OutboxSpec, Page, Recovery,
    SchemaState, connect,
};
use postrider_testkit::{
    TestDb,
    conformance::steps::{death, deferral, failure, rows},
};
use sqlx::MySqlPool;

const USERS: [&str; 3] = ["app", "relay", "viewer"];

/// Users belong to the server, not to the test's database: they have names of their own.
struct Users {
    suffix: String,
}

impl Users {
    async fn create(db: &TestDb) -> Self {
        let suffix = uuid::Uuid::new_v4().simple().to_string()[..12].to_owned();
        let users = Self { suffix };
        for user in USERS {
            let name = users.name(user);
            db.execute(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY '{name}'")).await;
        }
        users
    }

    fn name(&self, user: &str) -> String {
        format!("pr_{user}_{}", self.suffix)
    }

    fn url(&self, db: &TestDb, user: &str) -> String {
        let name = self.name(user);
        let at = db.url.find('@').expect("a URL with a user") + 1;
        format!("mysql://{name}:{name}@{}", &db.url[at..])
    }

    async fn drop(self, db: &TestDb) {
        for user in USERS {
            db.execute(&format!("DROP USER '{}'@'%'", self.name(user))).await;
        }
    }
}

/// The commented GRANTs, as an administrator would run them: "and the same on each of" written out.
fn grants(script: &str, users: &Users) -> Vec<String> {
    let lines = script.lines().filter_map(|line| line.strip_prefix("--   "));
    let mut grants: Vec<String> = Vec::new();
    for line in lines {
        let line = line.split("--").next().unwrap_or_default().trim();
        let first = line.starts_with("GRANT");
        match grants.last_mut() {
            Some(last) if !first => *last = format!("{last} {line}"),
            _ => grants.push(line.to_owned()),
        }
    }
    let mut all = Vec::new();
    for grant in grants {
        let (grant, more) = grant.split_once(';').unwrap_or((&grant, ""));
        let (grant, to) = grant.rsplit_once(" TO ").expect("a GRANT names users");
        let (rights, first) = grant.split_once(" ON ").expect("a GRANT names a table");
        for user in to.split(',').map(str::trim) {
            let tables = [first].into_iter().chain(more.split(',')).map(str::trim);
            let tables = tables.filter(|table| !table.is_empty());
            let to = users.name(user);
            all.extend(tables.map(|table| format!("{rights} ON {table} TO '{to}'@'%'")));
        }
    }
    all
}

postrider_testkit::on_mysql_and_mariadb!(the_printed_rights_are_enough_for_each_user);

async fn the_printed_rights_are_enough_for_each_user(db: TestDb) {
    let users = Users::create(&db).await;
    let script = db.store.migration_sql(&[OutboxSpec::new(db.outbox.clone())]);
    for grant in grants(&script, &users) {
        db.execute(&grant).await;
    }
    db.execute(&format!("GRANT SELECT ON postrider_outboxes TO '{}'@'%'", users.name("relay")))
        .await;

    // In tasks of their own, so that the users are dropped even when one of them fails.
    let checks = [
        tokio::spawn(the_application_appends(db.clone(), users.url(&db, "app"))).await,
        tokio::spawn(the_relay_does_its_work(db.clone(), users.url(&db, "relay"))).await,
        tokio::spawn(a_viewer_reads_and_changes_nothing(db.clone(), users.url(&db, "viewer")))
            .await,
    ];
    users.drop(&db).await;
    for check in checks {
        check.unwrap();
    }
}

async fn the_application_appends(db: TestDb, url: String) {
    let pool = MySqlPool::connect(&url).await.unwrap();
    let event = NewEvent::new("order", "1", "OrderPlaced", "{}")
        .request_id("r")
        .header("source", "shop")
        .max_retries(7)
        .expires_after(Duration::from_secs(3600));
    let mut tx = pool.begin().await.unwrap();
    let first = postrider::mysql::append(&mut tx, &db.outbox, &event).await.unwrap();
    let again = postrider::mysql::append(&mut tx, &db.outbox, &event).await.unwrap();
    assert_eq!((again.is_duplicate(), again.id()), (true, first.id()));
    let batch: Vec<_> =
        (0..5).map(|n| NewEvent::new("order", n.to_string(), "OrderPlaced", "{}")).collect();
    assert_eq!(postrider::mysql::append_all(&mut tx, &db.outbox, &batch).await.unwrap().len(), 5);
    tx.commit().await.unwrap();
    let relays = [
        "id",
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
        let error = error.into_database_error().unwrap();
        let number = error.downcast_ref::<sqlx::mysql::MySqlDatabaseError>().number();
        assert!(matches!(number, 1142 | 1143), "{forbidden}: {error}");
    }
    pool.close().await;
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
    let moved = store.move_marked(&outbox, 10).await.unwrap();
    assert_eq!(moved.iter().map(|letter| letter.original_id).collect::<Vec<_>>(), [claimed[3].id]);
    let recovery = Recovery { dead: &[], live: &[], stalled_after: Duration::from_secs(300) };
    store.recover(&outbox, &recovery).await.unwrap();
    store.fold_ledger(&outbox, 100).await.unwrap();
    let page = Page::first(10);
    let letters = store.dead_letters(&outbox, &Default::default(), page).await.unwrap().rows;
    store.retry(&outbox, letters[0].id, "ann", "").await.unwrap();
    let redriven = "SELECT count(*) FROM orders_outbox WHERE redrive_count = 1";
    assert_eq!(db.integer(redriven).await, 1, "the trigger leaves it to the relay");
    store.resolve(&outbox, letters[1].id, "ann", "").await.unwrap();
    store.set_mode(&outbox, ClaimMode::Lanes, "ann").await.unwrap();
    let lanes = store.take_lanes(&outbox, &lease, 64).await.unwrap();
    let mut cursor = Cursor::new();
    store.read_lanes(&outbox, LaneSet::ALL, &[], &[], rows(10), &mut cursor).await.unwrap();
    store.release_lanes(&outbox, &lease, &lanes).await.unwrap();
    the_rights_are_complete(&*store, &outbox).await;
    store.retire(&lease).await.unwrap();
    db.assert_balanced().await;
}

async fn the_rights_are_complete(store: &dyn Database, outbox: &postrider::Outbox) {
    let specs = [OutboxSpec::new(outbox.clone())];
    let findings = store.diagnose(&specs, Duration::from_secs(300)).await.unwrap();
    let rights = findings.iter().find(|finding| finding.subject == "rights").unwrap();
    assert_eq!(rights.fix, None, "the printed rights are all that a relay needs: {rights:?}");
}

async fn a_viewer_reads_and_changes_nothing(db: TestDb, url: String) {
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    let page = Page::first(10);
    assert!(store.ledger(&db.outbox).await.unwrap().iter().all(|window| window.balanced()));
    assert!(!store.events(&db.outbox, &Default::default(), page).await.unwrap().rows.is_empty());
    let letters = store.dead_letters(&db.outbox, &Default::default(), page).await.unwrap().rows;
    store.retry(&db.outbox, letters[0].id, "eve", "").await.expect_err("a viewer only looks");
}
