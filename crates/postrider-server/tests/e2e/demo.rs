//! `postrider demo`.

use postrider_testkit::Installation;

use crate::scene::BINARY;

#[tokio::test]
async fn the_demo_ends_by_itself_with_a_balanced_ledger() {
    let site = Installation::new(BINARY, "");
    let ran = site.run(&["demo", "--seconds", "15"]).await.exits(0);
    for word in ["OUTAGE", "The API is back", "dead letters", "balanced"] {
        assert!(ran.stdout.contains(word), "`{word}` is not in:\n{}", ran.stdout);
    }
    assert!(!ran.stdout.contains("DIFFER"), "{}", ran.stdout);
    let ledger = ["--config", "postrider-data/demo/postrider.toml", "reconcile", "--json"];
    let ledger = site.run(&ledger).await.exits(0).json();
    assert!(ledger[0]["delivered"]["count"].as_i64().unwrap() > 50, "{ledger:#}");
    assert!(ledger[0]["dead"]["count"].as_i64().unwrap() > 0, "{ledger:#}");
    let _ = site.run(&["demo", "--seconds", "3"]).await.exits(2).says(&["at least 15"]);
}
