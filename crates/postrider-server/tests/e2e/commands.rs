//! The commands that set up, append and look.

use postrider_testkit::{
    Answer, Installation, Ran, conformance::steps::order, installation::OPERATOR,
};

use crate::scene::{BINARY, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    a_fresh_database_is_migrated_and_the_commands_show_what_is_in_it,
    the_printed_migration_works_in_the_databases_own_client,
    a_live_row_deleted_by_hand_makes_reconcile_fail,
});

async fn a_fresh_database_is_migrated_and_the_commands_show_what_is_in_it(place: Place) {
    let Some(scene) = Scene::open_empty(place, &Settings::new()).await else { return };
    let site = &scene.site;
    let migrated = site.run(&["migrate"]).await.exits(0);
    assert!(migrated.stdout.contains("outbox orders"), "{migrated:?}");
    let _ = site.run(&["migrate"]).await.exits(0);

    let fields =
        ["--aggregate-type", "order", "--aggregate-id", "7", "--event-type", "OrderPlaced"];
    let append = async |more: &[&str], input: &str| -> Ran {
        let args = [&["append", "--outbox", "orders", "--json"][..], &fields[..], more].concat();
        site.run_with(&args, &[], input).await
    };
    let first =
        append(&["--request-id", "r1", "--payload", r#"{"n":1}"#], "").await.exits(0).json();
    let again =
        append(&["--request-id", "r1", "--payload", r#"{"n":1}"#], "").await.exits(0).json();
    assert_eq!((&first["duplicate"], &again["duplicate"]), (&false.into(), &true.into()));
    assert_eq!(first["id"], again["id"]);
    let piped =
        append(&["--payload", "-", "--header", "x=y", "--deliver-after", "1h"], "piped").await;
    let piped = piped.exits(0).json();
    let _ = append(&["--header", "no-value"], "").await.exits(2).says(&["NAME=VALUE"]);

    let listed = scene.json(&["events", "list"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["id"], piped["id"], "newest first");
    let shown = scene.json(&["events", "show", &piped["id"].to_string()]).await;
    assert_eq!(
        (&shown["event"]["payload"], &shown["event"]["status"]),
        (&"piped".into(), &"PENDING".into())
    );
    assert!(shown["event"]["next_retry_at"].is_string(), "{shown:#}");
    let plain = site.run(&["events", "list", "-o", "orders"]).await.exits(0);
    assert!(plain.stdout.contains("PENDING") && plain.stdout.contains("order/7"), "{plain:?}");
    let one = ["events", "show", "-o", "orders", "999999"];
    let _ = site.run(&one).await.exits(1).says(&["no live or archived event 999999"]);

    let daemon = site.start().await;
    scene
        .received(&[crate::scene::Committed {
            id: first["id"].as_i64().unwrap(),
            event_id: first["event_id"].as_str().unwrap().to_owned(),
        }])
        .await;
    daemon.stop().await;
    let delivered = scene.json(&["events", "list", "--status", "completed"]).await;
    assert_eq!(delivered[0]["id"], first["id"]);
    assert!(delivered[0]["delivered_at"].is_string());
    let stats = scene.json(&["stats"]).await;
    let numbers = ["appended", "delivered", "dead", "pending"].map(|name| stats[0][name].as_i64());
    assert_eq!(numbers, [Some(2), Some(1), Some(0), Some(1)], "{stats:#}");
    assert_eq!(stats[0]["by_type"][0]["event_type"], "OrderPlaced");
    let plain = site.run(&["stats"]).await.exits(0);
    assert!(plain.stdout.contains("orders") && plain.stdout.contains("OLDEST"), "{plain:?}");
    let ledger = scene.reconcile().await;
    assert_eq!((&ledger["appended"]["count"], &ledger["pending"]["count"]), (&2.into(), &1.into()));
    let plain = site.run(&["reconcile"]).await.exits(0);
    assert!(plain.stdout.contains("balanced"), "{plain:?}");
    let _ = site.run(&["run", "--check"]).await.exits(0);
}

/// Piped into `psql`, `mariadb` or `sqlite3`, as an administrator does it.
async fn the_printed_migration_works_in_the_databases_own_client(place: Place) {
    use postrider_store::StoreKind;
    let Some(scene) = Scene::open_empty(place, &Settings::new()).await else { return };
    if place.kind == StoreKind::Sqlite {
        // It is printed for a file that is there.
        scene.db.execute("CREATE TABLE business (number INTEGER)").await;
    }
    let printed = scene.site.run(&["migrate", "--print"]).await.exits(0).stdout;
    let (program, args) = client(place.kind, &scene.db.url);
    // GRANTs name roles that only an administrator makes; what makes the tables is enough here.
    let ran = pipe(program, &args, &printed).await;
    let Some(ran) = ran else {
        postrider_testkit::skip(place.test, &format!("{program} is not installed"));
        return;
    };
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    let events = scene.append(&[order(1), order(2)]).await;
    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

fn client(kind: postrider_store::StoreKind, url: &str) -> (&'static str, Vec<String>) {
    use postrider_store::StoreKind;
    let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    match kind {
        StoreKind::Postgres => ("psql", owned(&["-X", "-q", "-v", "ON_ERROR_STOP=1", url])),
        StoreKind::Mysql => {
            // mysql://user:password@host:port/database
            let (_, rest) = url.split_once("://").unwrap();
            let (login, place) = rest.rsplit_once('@').unwrap();
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            let (host, database) = place.split_once('/').unwrap();
            let (host, port) = host.split_once(':').unwrap_or((host, "3306"));
            let database = database.split('?').next().unwrap();
            let (user, password) = (format!("--user={user}"), format!("--password={password}"));
            let (host, port) = (format!("--host={host}"), format!("--port={port}"));
            ("mariadb", owned(&["--no-defaults", &user, &password, &host, &port, database]))
        }
        StoreKind::Sqlite => {
            let file = url.strip_prefix("sqlite:").unwrap().split('?').next().unwrap();
            ("sqlite3", owned(&["-bail", file]))
        }
    }
}

/// `None` where there is no such program.
async fn pipe(program: &str, args: &[String], input: &str) -> Option<std::process::Output> {
    use std::process::Stdio;
    use tokio::io::AsyncWriteExt;
    let mut command = tokio::process::Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    Some(child.wait_with_output().await.unwrap())
}

async fn a_live_row_deleted_by_hand_makes_reconcile_fail(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(503));
    let events = scene.append_orders(3).await;
    scene.reconcile().await;
    let table = scene.db.outbox.table();
    scene.db.execute(&format!("DELETE FROM {table} WHERE id = {}", events[1].id)).await;
    let found = scene.site.run(&["reconcile", "--json"]).await.exits(3);
    let found = found.says(&["does not balance", "outbox orders"]).json();
    assert_eq!(found[0]["balanced"], false);
    assert_eq!(found[0]["unbalanced"].as_array().unwrap().len(), 1, "{found:#}");
    let plain = scene.site.run(&["reconcile"]).await.exits(3);
    assert!(plain.stdout.contains("DIFFER by 1 events"), "{plain:?}");
}

#[tokio::test]
async fn the_printed_default_is_a_configuration_that_works() {
    let site = Installation::new(BINARY, "");
    let default = site.run(&["config"]).await.exits(0).stdout;
    site.configure(&default);
    let _ = site.run(&["migrate"]).await.exits(0);
    let _ = site.run(&["run", "--check"]).await.exits(0);
    let stats = site.run(&["stats", "--json"]).await.exits(0).json();
    assert_eq!(stats[0]["outbox"], "default");
    assert!(site.path("postrider-data/postrider.db").exists());
}

#[tokio::test]
async fn every_command_explains_itself() {
    let site = Installation::new(BINARY, "");
    for command in [
        "",
        "run",
        "demo",
        "migrate",
        "append",
        "stats",
        "events",
        "events list",
        "events show",
        "dlq",
        "dlq list",
        "dlq show",
        "dlq retry",
        "dlq resolve",
        "dlq import",
        "reconcile",
        "config",
        "bench",
        "bench drain",
        "bench latency",
        "bench append",
        "bench blocked-keys",
        "bench held-xmin",
        "bench scale",
        "bench backlog",
    ] {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = site.run(&args).await.exits(0);
        assert!(help.stdout.contains("Usage: postrider"), "{help:?}");
        let acts = ["dlq retry", "dlq resolve", "dlq import"].contains(&command);
        assert_eq!(help.stdout.contains(&format!("[default: {OPERATOR}]")), acts, "{command}");
    }
    let version = site.run(&["--version"]).await.exits(0);
    assert!(version.stdout.starts_with("postrider 0."), "{version:?}");
    let _ = site.run(&["dlqq"]).await.exits(2).says(&["dlqq", "dlq"]);
}
