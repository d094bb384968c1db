//! `postrider doctor` finds what is really wrong, and `reconcile --watch` what stays wrong.

use postrider_store::StoreKind;
use postrider_testkit::{Ran, conformance::steps::order, eventually, skip};
use serde_json::Value;

use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres: {
    a_missing_index_and_a_missing_trigger_are_found_and_cured,
    what_surrounds_the_store_is_looked_at_too,
    reconcile_watches_until_a_difference_stays,
    a_transaction_that_stays_open_is_named,
    a_prepared_transaction_is_named,
    missing_rights_are_named,
    replication_slots_that_nobody_reads_are_named,
    a_pool_in_transaction_mode_is_found,
});
crate::on_stores!(mariadb, mysql: {
    a_missing_index_and_a_missing_trigger_are_found_and_cured,
    what_surrounds_the_store_is_looked_at_too,
    reconcile_watches_until_a_difference_stays,
    a_transaction_that_stays_open_is_named,
    a_prepared_transaction_is_named,
    missing_rights_are_named,
});
crate::on_stores!(sqlite: {
    a_missing_index_and_a_missing_trigger_are_found_and_cured,
    what_surrounds_the_store_is_looked_at_too,
    reconcile_watches_until_a_difference_stays,
});

/// The findings whose subject begins so.
fn about(ran: &Ran, subject: &str) -> Vec<Value> {
    let all = ran.json().as_array().unwrap().clone();
    all.into_iter().filter(|f| f["subject"].as_str().unwrap().starts_with(subject)).collect()
}

async fn doctor(scene: &Scene, more: &[&str]) -> Ran {
    scene.site.run(&[&["doctor", "--json"][..], more].concat()).await
}

async fn a_missing_index_and_a_missing_trigger_are_found_and_cured(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let well = doctor(&scene, &[]).await.exits(0);
    assert_eq!(about(&well, "schema")[0]["verdict"], "ok", "{well:?}");
    let (index, trigger, drops) = match place.kind {
        StoreKind::Postgres => (
            "orders_outbox_waiting",
            "orders_outbox_record",
            [
                "DROP INDEX orders_outbox_waiting",
                "DROP TRIGGER orders_outbox_record ON orders_outbox",
            ],
        ),
        StoreKind::Mysql => (
            "orders_outbox_waiting",
            "orders_outbox_appended",
            [
                "ALTER TABLE orders_outbox DROP INDEX orders_outbox_waiting",
                "DROP TRIGGER orders_outbox_appended",
            ],
        ),
        StoreKind::Sqlite => (
            "orders_outbox_waiting",
            "orders_outbox_record",
            ["DROP INDEX orders_outbox_waiting", "DROP TRIGGER orders_outbox_record"],
        ),
    };
    for statement in drops {
        scene.db.execute(statement).await;
    }
    let found = doctor(&scene, &[]).await.exits(1).says(&["2 of"]);
    let (index, trigger) =
        (about(&found, &format!("index {index}")), about(&found, &format!("trigger {trigger}")));
    assert_eq!((index.len(), trigger.len()), (1, 1), "{}", found.stdout);
    let plain = scene.site.run(&["doctor"]).await.exits(1);
    let _ = plain.shows(&["ERROR    index orders_outbox_waiting: is missing"]);
    // What it says helps.
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let fix = index[0]["fix"].as_str().unwrap();
    if fix.starts_with("ALTER TABLE") {
        scene.db.execute(fix).await;
    }
    let _ = doctor(&scene, &[]).await.exits(0);
    if place.kind == StoreKind::Postgres {
        scene.db.execute("ALTER TABLE orders_outbox DISABLE TRIGGER orders_outbox_record").await;
        let found = doctor(&scene, &[]).await.exits(1);
        assert_eq!(about(&found, "trigger orders_outbox_record").len(), 1, "{found:?}");
    }
}

async fn what_surrounds_the_store_is_looked_at_too(place: Place) {
    let settings =
        Settings::new().sink("url", "http://127.0.0.1:1/").relay("backup_folder", "file/folder");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    std::fs::write(scene.site.path("file"), "in the way").unwrap();
    let found = doctor(&scene, &[]).await.exits(1);
    assert_eq!(about(&found, "sink api")[0]["verdict"], "error", "{}", found.stdout);
    assert_eq!(about(&found, "backup folder")[0]["verdict"], "error", "{}", found.stdout);
    assert_eq!(about(&found, "clocks")[0]["verdict"], "ok", "{}", found.stdout);
    assert_eq!(about(&found, "connection")[0]["verdict"], "ok", "{}", found.stdout);
    assert_eq!(about(&found, "relays")[0]["verdict"], "warning", "{}", found.stdout);
    scene.configure(&Settings::new());
    let daemon = scene.site.start().await;
    let found = doctor(&scene, &[]).await.exits(0);
    assert_eq!(about(&found, "backup folder")[0]["verdict"], "ok", "{}", found.stdout);
    assert_eq!(about(&found, "relays")[0]["verdict"], "ok", "{}", found.stdout);
    assert!(!scene.site.path("backup").exists(), "nothing is left behind");
    daemon.stop().await;
    // Without a store, the rest is looked at all the same.
    scene.configure(&Settings::new());
    let away = scene.site.run(&["--store", "postgres://127.0.0.1:1/x", "doctor", "--json"]).await;
    let away = away.exits(1);
    assert_eq!(about(&away, "store")[0]["verdict"], "error");
    assert_eq!(about(&away, "sink api")[0]["verdict"], "ok", "{}", away.stdout);
}

async fn a_transaction_that_stays_open_is_named(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let mut open = scene.db.begin().await;
    let _ = open.append(&scene.db.outbox, &order(1)).await.unwrap();
    let named = async || {
        let found = doctor(&scene, &["--long-transaction", "1ms"]).await.exits(0);
        let sessions = about(&found, "session ");
        sessions.iter().any(|finding| finding["verdict"] == "warning").then_some(sessions)
    };
    let sessions = eventually("the session is named", named).await;
    assert!(sessions[0]["fix"].as_str().unwrap().contains("end it there"), "{sessions:?}");
    open.rollback().await.unwrap();
}

async fn a_prepared_transaction_is_named(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let gid = format!("doctor-{}", std::process::id());
    let insert = "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload) \
                  VALUES ('order', '1', 'OrderPlaced', '{}')";
    let (script, end) = match place.kind {
        StoreKind::Postgres => (
            format!("BEGIN; {insert}; PREPARE TRANSACTION '{gid}'"),
            format!("ROLLBACK PREPARED '{gid}'"),
        ),
        _ => (
            format!("XA START '{gid}'; {insert}; XA END '{gid}'; XA PREPARE '{gid}'"),
            format!("XA ROLLBACK '{gid}'"),
        ),
    };
    // One connection for all of it.
    if let Err(error) = scene.db.try_execute(&script).await {
        return skip(place.test, &format!("no prepared transactions here: {error}"));
    }
    let found = doctor(&scene, &["--long-transaction", "1ms"]).await.exits(0);
    let named = about(&found, &format!("prepared transaction {gid}"));
    scene.db.execute(&end).await;
    assert_eq!(named.len(), 1, "{}", found.stdout);
    assert!(named[0]["fix"].as_str().unwrap().contains(&end), "{named:?}");
}

async fn missing_rights_are_named(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let user = format!("doctor_{}", std::process::id());
    let make = match place.kind {
        StoreKind::Postgres => format!(
            "CREATE ROLE {user} LOGIN PASSWORD 'patient'; \
             GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}"
        ),
        _ => format!(
            "CREATE USER {user} IDENTIFIED BY 'patient'; \
             GRANT SELECT ON `{}`.* TO {user}",
            scene.db.url.rsplit('/').next().unwrap()
        ),
    };
    scene.db.execute(&make).await;
    let (_, server) = scene.db.url.split_once('@').unwrap();
    let scheme = scene.db.url.split("://").next().unwrap();
    let url = format!("{scheme}://{user}:patient@{server}");
    let found = scene.site.run(&["--store", &url, "doctor", "--json"]).await;
    let drop = match place.kind {
        StoreKind::Postgres => format!("DROP OWNED BY {user}; DROP ROLE {user}"),
        _ => format!("DROP USER {user}"),
    };
    scene.db.execute(&drop).await;
    let found = found.exits(1);
    let rights = about(&found, "rights");
    let finding = rights[0]["finding"].as_str().unwrap();
    assert!(finding.contains("DELETE on orders_outbox,"), "{}", found.stdout);
    assert!(finding.contains("INSERT on orders_outbox_dlq"), "{}", found.stdout);
    assert!(!finding.contains("SELECT on"), "{finding}");
}

async fn replication_slots_that_nobody_reads_are_named(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (logical, physical) =
        (format!("doctor_l_{}", std::process::id()), format!("doctor_p_{}", std::process::id()));
    let logical_slot = format!("pg_create_logical_replication_slot('{logical}', 'pgoutput')");
    let physical_slot = format!("pg_create_physical_replication_slot('{physical}', true)");
    for slot in [&logical_slot, &physical_slot] {
        scene.db.execute(&format!("SELECT {slot}")).await;
    }
    let found = doctor(&scene, &[]).await;
    for slot in [&logical, &physical] {
        scene.db.execute(&format!("SELECT pg_drop_replication_slot('{slot}')")).await;
    }
    let found = found.exits(0);
    let slots =
        [&logical, &physical].map(|slot| about(&found, &format!("replication slot {slot}")));
    assert!(slots[0][0]["finding"].as_str().unwrap().contains("holds back vacuum"), "{slots:?}");
    let fix = slots[1][0]["fix"].as_str().unwrap();
    assert!(fix.contains("pg_drop_replication_slot"), "{slots:?}");
}

async fn a_pool_in_transaction_mode_is_found(place: Place) {
    let Ok(pool) = std::env::var("PGBOUNCER_URL") else {
        return skip(place.test, "the variable PGBOUNCER_URL is not set");
    };
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let database = scene.db.url.rsplit('/').next().unwrap();
    let (server, _) = pool.rsplit_once('/').unwrap();
    let url = format!("{server}/{database}");
    let found = scene.site.run(&["--store", &url, "doctor", "--json"]).await.exits(1);
    let connection = about(&found, "connection");
    assert_eq!(connection[0]["verdict"], "error", "{}\n{}", found.stdout, found.stderr);
    assert!(connection[0]["finding"].as_str().unwrap().contains("transaction mode"));
    assert!(connection[0]["fix"].as_str().unwrap().contains("session mode"));
}

async fn reconcile_watches_until_a_difference_stays(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let committed = scene.append_orders(3).await;
    let watch = ["reconcile", "--watch", "--every", "200ms"];
    let watching = scene.site.run(&watch);
    let meddling = async {
        // Well for a while, as far as it can see; then a row is gone that no relay settled.
        let first = committed[0].id;
        scene.db.execute(&format!("DELETE FROM orders_outbox WHERE id = {first}")).await;
    };
    let (ran, ()) = tokio::join!(watching, meddling);
    let ran = ran.exits(3).says(&["the ledger does not balance: outbox orders"]);
    let rounds = ran.stdout.lines().filter(|line| line.contains("orders DIFFER")).count();
    assert_eq!(rounds, 2, "once may be chance: {}", ran.stdout);
    assert!(ran.stdout.contains("DIFFER by 1 events"), "{}", ran.stdout);
    let json =
        scene.site.run(&["reconcile", "--watch", "--every", "10ms", "--json"]).await.exits(3);
    for line in json.stdout.lines() {
        let round: Value = serde_json::from_str(line).unwrap();
        assert_eq!(round["outboxes"][0]["balanced"], false);
    }
}
