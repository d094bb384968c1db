//! `postrider dlq`: list, show, retry, resolve.

use postrider::NewEvent;
use postrider_testkit::{Answer, installation::OPERATOR};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    a_retried_dead_letter_is_delivered_with_its_identity,
    acting_on_resolved_or_unknown_dead_letters_is_refused,
    a_filter_acts_on_what_fits_and_a_dry_run_on_nothing,
});

/// A scene with dead letters of these types, newest last, and no daemon.
async fn with_dead_letters(place: Place, types: &[&str]) -> Option<(Scene, Vec<Committed>)> {
    let scene = Scene::open(place, &Settings::new()).await?;
    scene.target.answer(Answer::status(422).body("no such product"));
    let event = |(number, name): (usize, &&str)| {
        NewEvent::new("order", format!("order-{number}"), *name, format!(r#"{{"n":{number}}}"#))
    };
    let events: Vec<NewEvent> = types.iter().enumerate().map(event).collect();
    let events = scene.append(&events).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(i64::try_from(types.len()).unwrap()).await;
    daemon.stop().await;
    scene.target.answer(Answer::ok());
    Some((scene, events))
}

impl Scene {
    /// The id of the dead letter of an event.
    async fn dead_letter_of(&self, event: &Committed) -> String {
        let table = self.db.outbox.table();
        let query = format!("SELECT id FROM {table}_dlq WHERE original_id = {}", event.id);
        self.db.integer(&query).await.to_string()
    }
}

async fn a_retried_dead_letter_is_delivered_with_its_identity(place: Place) {
    let Some((scene, events)) = with_dead_letters(place, &["A", "B"]).await else { return };
    let id = scene.dead_letter_of(&events[0]).await;
    let shown = scene.json(&["dlq", "show", &id]).await;
    let dead = &shown["dead_letter"];
    assert_eq!(dead["event_id"], events[0].event_id);
    assert_eq!((&dead["reason"], &dead["resolved"]), (&"rejected".into(), &false.into()));
    assert_eq!(dead["error_detail"], "no such product");
    let plain = scene.site.run(&["dlq", "show", "-o", "orders", &id]).await.exits(0);
    assert!(plain.stdout.contains("rejected") && plain.stdout.contains(r#"{"n":0}"#), "{plain:?}");
    let plain = scene.site.run(&["dlq", "list", "-o", "orders"]).await.exits(0);
    assert!(plain.stdout.contains("2 of 2 shown"), "{plain:?}");

    let retried = scene.json(&["dlq", "retry", &id, "--note", "the product is back"]).await;
    assert_eq!((&retried["done"], &retried["dry_run"]), (&1.into(), &false.into()));
    let fresh = retried["retried_as"][0].as_i64().unwrap();
    let event = scene.json(&["events", "show", &fresh.to_string()]).await;
    assert_eq!(event["event"]["event_id"], events[0].event_id, "the identity stays");
    assert_eq!(
        (&event["event"]["retry_count"], &event["event"]["redrive_count"]),
        (&0.into(), &1.into())
    );
    let shown = scene.json(&["dlq", "show", &id]).await;
    let dead = &shown["dead_letter"];
    assert_eq!((&dead["resolved_by"], &dead["retried_as"]), (&OPERATOR.into(), &fresh.into()));
    assert_eq!(dead["resolution_note"], "the product is back");

    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events[..1], 2).await;
    let audit = "SELECT count(*) FROM postrider_audit WHERE action = 'dlq.retry'";
    assert_eq!(scene.db.integer(audit).await, 1);
}

async fn acting_on_resolved_or_unknown_dead_letters_is_refused(place: Place) {
    let Some((scene, events)) = with_dead_letters(place, &["A", "B"]).await else { return };
    let (site, table) = (&scene.site, scene.db.outbox.table());
    let (first, second) =
        (scene.dead_letter_of(&events[0]).await, scene.dead_letter_of(&events[1]).await);
    let resolve = ["dlq", "resolve", &first, "--note", "refunded", "--operator", "olga"];
    assert_eq!(scene.json(&resolve).await["done"], 1);
    let resolved = scene.json(&["dlq", "list", "--resolved", "true"]).await;
    assert_eq!(
        (&resolved[0]["resolved_by"], &resolved[0]["resolution_note"]),
        (&"olga".into(), &"refunded".into())
    );

    for verb in ["retry", "resolve"] {
        let refused = site.run(&["dlq", verb, "-o", "orders", &first, "999"]).await.exits(1);
        let _ = refused.says(&["resolved already, by olga", "no dead letter 999", "dlq list"]);
        let dry = site.run(&["dlq", verb, "-o", "orders", &first, "--dry-run"]).await.exits(1);
        let _ = dry.says(&["resolved already"]);
        let _ = site.run(&["dlq", verb, "-o", "orders"]).await.exits(2).says(&["--all"]);
        let _ = site
            .run(&["dlq", verb, "-o", "nowhere", "1"])
            .await
            .exits(2)
            .says(&["nowhere", "orders"]);
    }
    // Whatever is asked for: the command line is in order, and there is no such thing.
    for unknown in [
        &["dlq", "show", "-o", "orders", "999"][..],
        &["dlq", "retry", "-o", "orders", "999"],
        &["dlq", "resolve", "-o", "orders", "999"],
        &["dlq", "reopen", "-o", "orders", "999"],
        &["dlq", "edit", "-o", "orders", "999"],
        &["events", "show", "-o", "orders", "999"],
        &["events", "find", "-o", "orders", "00000000-0000-4000-8000-000000000999"],
        &["jobs", "show", "999"],
        &["jobs", "stop", "999"],
        &["inbox", "retry", "999"],
    ] {
        let _ = site.run(unknown).await.exits(1).says(&["999"]);
    }
    assert_eq!(scene.db.count("").await, 0, "no refused retry has made an event");

    // One that works beside one that does not: the first is done, the second is told.
    let mixed = site.run(&["dlq", "retry", "-o", "orders", "--json", &second, &first]).await;
    let mixed = mixed.exits(1).says(&["resolved already"]).json();
    assert_eq!((&mixed["done"], mixed["refused"].as_array().unwrap().len()), (&1.into(), 1));
    let open = format!("SELECT count(*) FROM {table}_dlq WHERE retried_as IS NULL");
    assert_eq!(scene.db.integer(&open).await, 1);
    scene.reconcile().await;
}

async fn a_filter_acts_on_what_fits_and_a_dry_run_on_nothing(place: Place) {
    let types = ["A", "B", "A", "B", "A"];
    let Some((scene, events)) = with_dead_letters(place, &types).await else { return };
    let newest = scene.dead_letters().await;
    assert_eq!(newest.len(), 5);
    let page = scene.json(&["dlq", "list", "--limit", "2"]).await;
    assert_eq!(page[0]["id"], newest[0]["id"]);
    let next =
        scene.json(&["dlq", "list", "--limit", "2", "--before", &page[1]["id"].to_string()]).await;
    assert_eq!(next[0]["id"], newest[2]["id"]);
    for (filter, count) in [
        (vec!["--event-type", "A"], 3),
        (vec!["--event-type", "A", "--aggregate-id", "order-2"], 1),
        (vec!["--error", "422"], 5),
        (vec!["--error", "100%_'\";--"], 0),
        (vec!["--reason", "rejected"], 5),
        (vec!["--reason", "expired"], 0),
        (vec!["--until", "2020-01-01T00:00:00Z"], 0),
        (vec!["--since", "2020-01-01T00:00:00Z", "--resolved", "false"], 5),
    ] {
        let found = scene.json(&[&["dlq", "list"][..], &filter].concat()).await;
        assert_eq!(found.as_array().unwrap().len(), count, "{filter:?}");
    }
    let _ = scene
        .site
        .run(&["dlq", "list", "--reason", "bad-luck"])
        .await
        .exits(2)
        .says(&["exhausted"]);

    let dry = scene.json(&["dlq", "retry", "--all", "--event-type", "A", "--dry-run"]).await;
    assert_eq!((&dry["done"], &dry["dry_run"]), (&3.into(), &true.into()));
    assert_eq!(scene.db.count("").await, 0, "a dry run changes nothing");
    let retried = scene.json(&["dlq", "retry", "--all", "--event-type", "A"]).await;
    assert_eq!(retried["done"], 3);
    let resolved = scene.json(&["dlq", "resolve", "--all", "--note", "given up"]).await;
    assert_eq!(resolved["done"], 2, "what is resolved already is not in the way");
    assert_eq!(scene.json(&["stats"]).await[0]["unresolved"], 0);

    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    let retried: Vec<Committed> = events.iter().step_by(2).cloned().collect();
    scene.settle_up(&retried, 5).await;
}
