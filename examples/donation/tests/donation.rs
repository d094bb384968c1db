//! Tests the service like its users run it: its own process, a real database, a recording webhook.
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

mod donors;

use std::collections::HashSet;

use postrider_store::StoreKind;
use postrider_testkit::{
    Answer, Daemon, HttpTarget, Installation, Received, TestDb, TestServer, eventually,
    http_client::{Response, send},
};
use serde_json::{Value, json};

use donors::{Donors, Tally};

/// A database, the folder of the service, and the recording webhook.
struct Site {
    db: TestDb,
    installation: Installation,
    webhook: HttpTarget,
}

impl Site {
    async fn open(server: TestServer, test: &str) -> Option<Self> {
        let db = TestDb::open_empty(server, test).await?;
        let installation = Installation::new(env!("CARGO_BIN_EXE_donation-example"), "");
        Some(Self { db, installation, webhook: HttpTarget::start().await })
    }

    async fn start(&self) -> Daemon {
        let variables = [
            ("DATABASE_URL", self.db.url.as_str()),
            ("LISTEN", "127.0.0.1:0"),
            ("DISCORD_WEBHOOK_URL", &self.webhook.url()),
        ];
        self.installation.serve(&[], &variables).await
    }

    async fn count(&self, table: &str) -> i64 {
        self.db.integer(&format!("SELECT count(*) FROM {table}")).await
    }
}

/// Runs each case on every store.
macro_rules! on_stores {
    ($($case:ident),* $(,)?) => {
        on_stores!(@store postgres, Postgres: $($case),*);
        on_stores!(@store mariadb, Mariadb: $($case),*);
        on_stores!(@store mysql, Mysql: $($case),*);
        on_stores!(@store sqlite, Sqlite: $($case),*);
    };
    (@store $module:ident, $kind:ident: $($case:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    let server = postrider_testkit::TestServer::$kind;
                    if let Some(site) = super::Site::open(server, name).await {
                        super::$case(site).await;
                    }
                }
            )*
        }
    };
}

on_stores!(
    what_no_donation_can_be_is_refused_and_changes_nothing,
    a_repeated_request_is_answered_with_the_first_result,
    five_kills_under_load_lose_and_double_nothing,
    a_relay_that_cannot_work_ends_the_service,
);

/// Cases for stores with concurrent writers.
mod on_servers {
    on_stores!(@store postgres, Postgres: points_spent_behind_the_lock_refuse_the_donation);
    on_stores!(@store mariadb, Mariadb: points_spent_behind_the_lock_refuse_the_donation);
    on_stores!(@store mysql, Mysql: points_spent_behind_the_lock_refuse_the_donation);
    use super::{Site, points_spent_behind_the_lock_refuse_the_donation};
}

fn donation(request_id: &str, amount: impl Into<Value>) -> Value {
    json!({
        "request_id": request_id,
        "guest_id": "guest-1",
        "admin_fingerprint": "fp-1",
        "amount": amount.into(),
    })
}

async fn donate(service: &Daemon, body: &Value) -> Response {
    service.post("/donations", &body.to_string()).await
}

/// Starts the service with a guest that has 100 points, and an admin.
async fn with_members(site: &Site) -> Daemon {
    let service = site.start().await;
    for member in [
        json!({ "id": "guest-1", "points": 100 }),
        json!({ "id": "admin-1", "points": 0, "fingerprint": "fp-1" }),
        json!({ "id": "rich", "points": i64::MAX - 5, "fingerprint": "fp-rich" }),
    ] {
        assert_eq!(service.post("/members", &member.to_string()).await.status, 201);
    }
    service
}

async fn points(service: &Daemon, id: &str) -> i64 {
    service.get(&format!("/members/{id}")).await.unwrap().json()["points"].as_i64().unwrap()
}

async fn what_no_donation_can_be_is_refused_and_changes_nothing(site: Site) {
    let service = with_members(&site).await;
    let with = |field: &str, value: Value| {
        let mut body = donation("r-1", 10);
        body[field] = value;
        body
    };
    let long = "x".repeat(51);
    for (body, status, words) in [
        (with("admin_fingerprint", json!("fp-2")), 403, "no admin"),
        (with("guest_id", json!("guest-2")), 404, "guest-2"),
        (with("guest_id", json!("admin-1")), 404, "admin-1"),
        (donation("r-1", 101), 422, "100 points"),
        (with("admin_fingerprint", json!("fp-rich")), 422, "full"),
        (donation("r-1", 0), 400, "at least 1"),
        (donation("r-1", -5), 400, "at least 1"),
        (donation("r-1", 1.5), 400, "1.5"),
        (donation("r-1", "10"), 400, "whole number"),
        (donation("r-1", 1e30), 400, "whole number"),
        (donation("r-1", u64::MAX), 400, "whole number"),
        (with("request_id", json!("")), 400, "request_id"),
        (with("request_id", json!("a b'; DROP TABLE members")), 400, "request_id"),
        (with("request_id", json!(long)), 400, "request_id"),
        (json!({ "amount": 5 }), 400, "missing field"),
        (json!([1]), 400, "body"),
    ] {
        let answer = donate(&service, &body).await;
        assert_eq!(answer.status, status, "{body} {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{detail}");
    }
    let negative = json!({ "id": "guest-3", "points": -1 }).to_string();
    assert_eq!(service.post("/members", &negative).await.status, 400);
    let again = json!({ "id": "guest-1", "points": 5 }).to_string();
    assert_eq!(service.post("/members", &again).await.status, 409);
    assert_eq!((points(&service, "guest-1").await, points(&service, "admin-1").await), (100, 0));
    assert_eq!((site.count("donations").await, site.count("donations_outbox").await), (0, 0));
    service.stop().await;
}

async fn a_repeated_request_is_answered_with_the_first_result(site: Site) {
    let service = with_members(&site).await;
    // A failed notification never affects the donation.
    site.webhook.answer(Answer::status(400));
    let first = donate(&service, &donation("r-1", 60)).await;
    assert_eq!((first.status, first.headers["idempotency-replayed"].as_str()), (200, "false"));
    assert_eq!(first.json()["guest_points"], 40);
    assert_eq!(donate(&service, &donation("r-2", 40)).await.status, 200);
    let repeated = donate(&service, &donation("r-1", 60)).await;
    assert_eq!((repeated.status, &repeated.body), (200, &first.body), "though the points are gone");
    assert_eq!(repeated.headers["idempotency-replayed"], "true");
    let other = donate(&service, &donation("r-1", 59)).await;
    assert_eq!(other.status, 409, "{other:?}");
    assert_eq!((points(&service, "guest-1").await, points(&service, "admin-1").await), (0, 100));
    let history = service.get("/donations?guest=guest-1").await.unwrap().json();
    assert_eq!(history.as_array().unwrap().len(), 2, "{history}");
    assert_eq!(history[0]["request_id"], "r-2", "newest first");

    let dead = async || (site.count("donations_outbox_dlq").await == 2).then_some(());
    eventually("what Discord refuses is a dead letter", dead).await;
    assert_eq!(site.webhook.count(), 2, "one request each, and not for the repeats");
    service.stop().await;
}

/// A program that takes no lock spends the points between the read and the debit.
async fn points_spent_behind_the_lock_refuse_the_donation(site: Site) {
    let service = with_members(&site).await;
    let mut other = site.db.begin().await;
    let held = "SELECT points FROM members WHERE id = 'guest-1' FOR UPDATE";
    assert_eq!(other.integer(held).await.unwrap(), 100);
    let address = service.address();
    let donating = tokio::spawn(async move {
        let headers = [("content-type", "application/json")];
        let body = donation("r-1", 60).to_string();
        send(address, "POST", "/donations", &headers, body).await.unwrap()
    });
    let waiting = match site.db.store.kind() {
        StoreKind::Mysql => {
            "SELECT count(*) FROM information_schema.PROCESSLIST
             WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE '%points - %'"
        }
        _ => {
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
        }
    };
    let debit = async || (site.db.integer(waiting).await > 0).then_some(());
    eventually("the debit waits for the row", debit).await;
    other.execute("UPDATE members SET points = 30 WHERE id = 'guest-1'").await.unwrap();
    other.commit().await.unwrap();
    let answer = donating.await.unwrap();
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.body.contains("30 points"), "{answer:?}");
    assert_eq!((points(&service, "guest-1").await, points(&service, "admin-1").await), (30, 0));
    assert_eq!((site.count("donations").await, site.count("donations_outbox").await), (0, 0));
    service.stop().await;
}

/// A service whose relay cannot work must end: it would accept donations and send no notifications.
async fn a_relay_that_cannot_work_ends_the_service(site: Site) {
    site.db.store.migrate(&[]).await.unwrap();
    site.db.refuse_relays().await;
    let variables = [("DATABASE_URL", site.db.url.as_str()), ("LISTEN", "127.0.0.1:0")];
    let ended = site.installation.run_with(&[], &variables, "").await;
    ended.exits(1).says(&["no_relays_here"]);
}

/// 64 clients, 30 % repeated request ids, and five kills of the service at points of progress.
/// `DONATION_REQUESTS=20000` is the full run.
async fn five_kills_under_load_lose_and_double_nothing(site: Site) {
    let requests = std::env::var("DONATION_REQUESTS").ok().and_then(|n| n.parse().ok());
    let donors = Donors::new(requests.unwrap_or(2_000));
    let mut service = site.start().await;
    donors.join(&service).await;
    let total = site.db.integer("SELECT sum(points) FROM members").await;

    let giving = donors.give(service.address());
    for kill in 1..=5 {
        donors.progress(kill, 6).await;
        service.kill().await;
        service = site.start().await;
        donors.turn_to(service.address());
    }
    let Tally { successful, refused, replayed } = giving.await.unwrap();
    assert!(refused > 0 && replayed > 0, "both happened: {refused} refused, {replayed} repeated");

    let empty = async || (site.count("donations_outbox").await == 0).then_some(());
    donors::patiently("every event is delivered", empty).await;
    service.stop().await;
    // Counted last: an event that leaves the outbox between two counts would be in neither.
    let delivered = site.count("donations_outbox_archive").await;

    let distinct = i64::try_from(successful.len()).unwrap();
    assert_eq!(site.db.integer("SELECT sum(points) FROM members").await, total, "to the unit");
    assert_eq!(site.db.integer("SELECT count(*) FROM members WHERE points < 0").await, 0);
    assert_eq!(site.count("donations").await, distinct, "history = distinct successful requests");
    let ledger = site.db.store.statistics(&postrider::Outbox::new("donations").unwrap()).await;
    let ledger = ledger.unwrap();
    assert_eq!((ledger.appended, delivered, ledger.dead), (distinct, distinct, 0));
    let named = |message: Received| {
        let (_, rest) = message.body.split_once('(')?;
        Some(rest.split_once(')')?.0.to_owned())
    };
    let told: HashSet<String> = site.webhook.received().into_iter().filter_map(named).collect();
    for request_id in &successful {
        assert!(told.contains(request_id), "{request_id} was not told");
    }
}
