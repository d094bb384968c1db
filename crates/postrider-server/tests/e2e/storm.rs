//! `postrider chaos storm`, in small: relays are killed, and every promise is kept.

use postrider_store::StoreKind;
use postrider_testkit::{Installation, TestDb, TestServer, eventually};
use serde_json::Value;

use crate::on_stores;
use crate::scene::{BINARY, Place};

on_stores!(postgres, mariadb, sqlite: {
    a_storm_keeps_every_promise,
    a_storm_that_is_interrupted_drops_its_tables,
});
mod on_one_store {
    crate::scene::tests!(postgres { a_storm_in_rows_does_not_judge_the_order });
}

const STORM: [&str; 8] =
    ["chaos", "storm", "--kill-every", "300ms", "--rate", "200", "--drain-timeout", "2m"];

/// A database without tables, and the binary.
struct Staging {
    db: TestDb,
    site: Installation,
}

impl Staging {
    async fn open(place: Place) -> Option<Self> {
        let db = TestDb::open_empty(place.server, place.test).await?;
        Some(Self { db, site: Installation::new(BINARY, "") })
    }

    async fn run(&self, args: &[&str]) -> Value {
        let store = ["--store", &self.db.url, "--log", "warn"];
        let ran = self.site.run(&[&store[..], &STORM, args, &["--json"]].concat()).await;
        let found = ran.exits(0).json();
        for (figure, expected) in
            [("lost", 0), ("uncommitted", 0), ("dead_wrongly", 0), ("pending", 0), ("in_doubt", 0)]
        {
            assert_eq!(found[figure], expected, "{figure}: {found:#}");
        }
        let count = |figure: &str| found[figure].as_u64().unwrap_or_default();
        assert_eq!(found["passed"], true, "{found:#}");
        assert!(count("committed") > 50 && count("rolled_back") > 0, "{found:#}");
        assert!(count("delivered") + count("dead") >= count("committed"), "{found:#}");
        assert!(found["recovery_s"].as_f64() > Some(0.0), "{found:#}");
        self.nothing_is_left().await;
        found
    }

    async fn nothing_is_left(&self) {
        let left = "SELECT count(*) FROM postrider_outboxes WHERE name LIKE 'chaos%'";
        assert_eq!(self.db.integer(left).await, 0, "its tables are gone");
    }
}

async fn a_storm_keeps_every_promise(place: Place) {
    let Some(staging) = Staging::open(place).await else { return };
    let found = staging.run(&["--kills", "8", "--seed", "7", "--report", "storm.html"]).await;
    assert_eq!((&found["kills"], &found["seed"]), (&8.into(), &7.into()), "{found:#}");
    assert_eq!((&found["claim"], &found["out_of_order"]), (&"lanes".into(), &0.into()));
    assert!(found["faults"].is_object() && found["duplicates"].is_u64(), "{found:#}");
    let no_sessions = found["links_hindrance"].as_str().unwrap_or_default();
    assert_eq!(no_sessions.contains("SQLite"), place.kind == StoreKind::Sqlite, "{found:#}");
    let page = std::fs::read_to_string(staging.site.path("storm.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2, "backlog and rate");
    assert_eq!(page.matches("class=\"mark\"").count(), 16, "each kill, in both");
    for reach in ["src=", "href=", "url(", "@import"] {
        assert!(!page.contains(reach), "a report needs no network: {reach}");
    }
}

async fn a_storm_in_rows_does_not_judge_the_order(place: Place) {
    let Some(staging) = Staging::open(place).await else { return };
    let found = staging.run(&["--kills", "4", "--claim", "rows"]).await;
    let promises = found["promises"].as_array().unwrap();
    let order = promises.iter().find(|promise| promise["passed"].is_null()).unwrap();
    assert!(order["measured"].as_str().unwrap().contains("keeps no order"), "{order:#}");
    assert!(found["out_of_order"].is_u64(), "counted nevertheless: {found:#}");

    let store = ["--store", &staging.db.url];
    let pigeon = [&store[..], &STORM, &["--sink", "pigeon"]].concat();
    let _ = staging.site.run(&pigeon).await.exits(2).says(&["pigeon", "http, kafka"]);
    let nowhere = [&store[..], &STORM, &["--report", "no/such/folder.html"]].concat();
    let _ = staging.site.run(&nowhere).await.exits(2).says(&["--report no/such/folder.html"]);
}

async fn a_storm_that_is_interrupted_drops_its_tables(place: Place) {
    let Some(staging) = Staging::open(place).await else { return };
    staging.db.store.migrate(&[]).await.unwrap();
    let args = [&["--store", &staging.db.url][..], &STORM, &["--kills", "10000"]].concat();
    let storm = staging.site.begin(&args);
    eventually("relays are there", async || {
        let relays = staging.db.integer("SELECT count(*) FROM postrider_relays").await;
        (relays > 0).then_some(())
    })
    .await;
    let _ = storm.signalled("INT").await.exits(130).says(&["interrupted"]);
    staging.nothing_is_left().await;
}

#[tokio::test]
async fn kafka_gets_every_event_in_order_while_relays_are_killed() {
    let test = "storm::kafka_gets_every_event_in_order_while_relays_are_killed";
    let Ok(brokers) = std::env::var("KAFKA_BROKERS") else {
        return postrider_testkit::skip(test, "the variable KAFKA_BROKERS is not set");
    };
    let place = Place::new(TestServer::Postgres, test);
    let Some(staging) = Staging::open(place).await else { return };
    let kafka = ["--sink", "kafka", "--brokers", &brokers];
    let found = staging.run(&[&["--kills", "4"][..], &kafka].concat()).await;
    assert_eq!((&found["sink"], &found["out_of_order"]), (&"kafka".into(), &0.into()));
}
