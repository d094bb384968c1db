//! `postrider chaos n19`: the incident that the product is for, in small.

use postrider_testkit::{Installation, TestDb};

use crate::on_stores;
use crate::scene::{BINARY, Place};

on_stores!(postgres, sqlite: {
    after_an_outage_fifty_thousand_calls_come_back_and_only_poison_is_dead,
});

/// How fast, is not asked here: the machine that runs the tests is busy with others.
const SPEED: &str = "1,000 events/s or more";

async fn after_an_outage_fifty_thousand_calls_come_back_and_only_poison_is_dead(place: Place) {
    let Some(db) = TestDb::open(place.server, place.test).await else { return };
    let site = Installation::new(BINARY, "");
    let events = match place.kind {
        postrider_store::StoreKind::Sqlite => "5000",
        _ => "50000",
    };
    let command = ["--store", &db.url, "chaos", "n19", "--events", events, "--outage", "30m"];
    let report = ["--poison", "7", "--json", "--report", "n19.html"];
    let ran = site.run(&[&command[..], &report[..]].concat()).await;
    let found = ran.json();
    assert_eq!(found["events"].to_string(), events);
    for (figure, expected) in
        [("lost", 0), ("pending", 0), ("dead", 7), ("attempts_spent_by_outage", 0)]
    {
        assert_eq!(found[figure], expected, "{figure}: {found:#}");
    }
    assert_eq!(found["recovered_percent"], 100.0, "{found:#}");
    assert!(
        found["requests_during_outage"].as_u64().unwrap() < 500,
        "it was left alone: {found:#}"
    );
    for target in found["targets"].as_array().unwrap() {
        assert!(target["passed"] == true || target["target"] == SPEED, "{target:#}");
    }
    let page = std::fs::read_to_string(site.path("n19.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3, "backlog, rate and breaker");
    assert!(!page.contains("http://") && !page.contains("https://"), "it needs no network");
    let nowhere = ["--store", &db.url, "chaos", "n19", "--report", "no/such/folder.html"];
    let _ = site.run(&nowhere).await.exits(2).says(&["--report no/such/folder.html"]);
    let left = "SELECT count(*) FROM postrider_outboxes WHERE name LIKE 'chaos%'";
    assert_eq!(db.integer(left).await, 0, "its tables are gone");
}
