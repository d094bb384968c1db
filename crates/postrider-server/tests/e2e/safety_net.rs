//! Dead letters through the triple safety net, and the way back.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use postrider::NewEvent;
use postrider_testkit::{Answer, Daemon, Received, conformance::steps::order, eventually};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    without_its_table_a_dead_letter_is_in_the_file_and_comes_back,
    without_table_and_file_an_alert_carries_the_event,
    a_channel_without_payloads_is_told_where_the_event_is,
    a_tampered_payload_is_a_dead_letter_and_alerts_at_once,
});

const FILE: &str = "backup/dead-letters.jsonl";

/// Text that is in the payload and nowhere else.
const SECRET: &str = "the-payload-itself";

fn doomed(number: u64) -> NewEvent {
    let payload = format!(r#"{{"order":{number},"text":"{SECRET}"}}"#);
    NewEvent::new("order", format!("order-{number}"), "Refused", payload)
}

fn refuse(scene: &Scene) {
    scene.target.answer_by(|request| match request.header("postrider-event-type") {
        "Refused" => Answer::status(422),
        _ => Answer::ok(),
    });
}

/// The records of a backup file, each with a checksum that fits.
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let record = |line: &str| {
        // The record as it is written, between `"record":` and the line's last brace.
        let (_, written) = line.split_once(r#""record":"#).unwrap();
        let written = written.strip_suffix('}').unwrap();
        let sum: String = Sha256::digest(written).iter().map(|b| format!("{b:02x}")).collect();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["sha256"], sum);
        line["record"].clone()
    };
    text.lines().map(record).collect()
}

async fn alert_about(scene: &Scene, words: &str) -> Received {
    eventually(&format!("an alert: {words}"), async || {
        scene.people.received().into_iter().find(|alert| alert.body.contains(words))
    })
    .await
}

/// What an import counts: restored, live, known, closed, damaged.
fn counts(report: &Value) -> [u64; 5] {
    let damaged = report["damaged"].as_array().unwrap().len() as u64;
    let count = |name: &str| report[name].as_u64().unwrap();
    [count("restored"), count("live"), count("known"), count("closed"), damaged]
}

async fn without_its_table_a_dead_letter_is_in_the_file_and_comes_back(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new().alerts(false)).await else { return };
    let (db, table, site) = (&scene.db, scene.db.outbox.table(), &scene.site);
    refuse(&scene);
    let daemon = site.start().await;
    db.execute(&format!("DROP TABLE {table}_dlq")).await;
    let dead = scene.append(&[doomed(1), doomed(2)]).await;
    let good = scene.append_orders(3).await;
    daemon.reaches("postrider_outbox_backup_total", 2.0).await;
    let marked = async || (scene.rows("DEAD_LETTER").await == 2).then_some(());
    eventually("the rows are marked", marked).await;

    let file = site.path(FILE);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = records(&file);
    assert_eq!(written.len(), 2);
    assert!(written[0]["event"]["payload"].as_str().unwrap().contains(SECRET));
    assert_eq!(written[0]["event"]["event_id"], dead[0].event_id);
    let alert = alert_about(&scene, "event is in the backup file").await;
    assert!(!alert.body.contains(SECRET), "{}", alert.body);
    assert!(!daemon.log().contains(SECRET), "payloads are not logged");
    let ledger = scene.reconcile().await;
    assert_eq!(ledger["dead"]["count"], 2, "marked rows count as dead: {ledger:#}");
    daemon.stop().await;

    let file = file.to_str().unwrap();
    let import = async |file: &str| site.run(&["dlq", "import", file, "--json"]).await;
    let _ = site.run(&["migrate"]).await.exits(0);
    assert_eq!(counts(&import(file).await.exits(0).json()), [0, 2, 0, 0, 0], "still live");
    let copy = site.path("copy.jsonl");
    std::fs::copy(file, &copy).unwrap();
    let copy = copy.to_str().unwrap();

    let daemon = site.start().await;
    scene.has_dead_letters(2).await;
    scene.drained().await;
    eventually("the file is closed", async || (records(Path::new(file)).len() == 4).then_some(()))
        .await;
    assert!(records(Path::new(file))[2..].iter().all(|record| record["kind"] == "closed"));
    assert_eq!(counts(&import(file).await.exits(0).json()), [0, 0, 0, 2, 0], "closed");
    assert_eq!(counts(&import(copy).await.exits(0).json()), [0, 0, 2, 0, 0], "known");
    daemon.stop().await;
    scene.settle_up(&good, 2).await;

    db.execute(&format!("DELETE FROM {table}_dlq WHERE original_id = {}", dead[0].id)).await;
    assert_eq!(counts(&import(copy).await.exits(0).json()), [1, 0, 1, 0, 0], "restored");
    let restored = scene.dead_letters().await;
    let restored = restored.iter().find(|d| d["original_id"] == dead[0].id).unwrap();
    assert_eq!(restored["event_id"], dead[0].event_id);
    let id = restored["id"].to_string();
    let shown = site.run(&["dlq", "show", &id, "--json"]).await.exits(0).json();
    assert!(shown["dead_letter"]["payload"].as_str().unwrap().contains(SECRET));

    db.execute(&format!("DELETE FROM {table}_dlq")).await;
    let text = std::fs::read_to_string(copy).unwrap();
    std::fs::write(copy, text.replacen(SECRET, "something-else", 1)).unwrap();
    let damaged = import(copy).await.exits(1).says(&["line 1", "checksum"]);
    assert_eq!(counts(&damaged.json()), [1, 0, 0, 0, 1], "the rest is imported");
    scene.reconcile().await;
}

/// A scene whose daemon has neither a dead-letter table nor a backup file to write to.
async fn without_table_and_file(place: Place, payloads: bool) -> Option<(Scene, Daemon)> {
    // Not even root can make a folder below a file.
    let settings = Settings::new().relay("backup_folder", "blocked/folder").alerts(payloads);
    let scene = Scene::open(place, &settings).await?;
    refuse(&scene);
    // On SQLite a start would make the table again, and it refuses a folder that cannot be written.
    let daemon = scene.site.start().await;
    std::fs::write(scene.site.path("blocked"), "a file").unwrap();
    scene.db.execute(&format!("DROP TABLE {}_dlq", scene.db.outbox.table())).await;
    Some((scene, daemon))
}

/// The rows are in the outbox; with the table back, maintenance moves them.
async fn with_the_table_back(scene: &Scene, daemon: Daemon, dead: usize) {
    let count = i64::try_from(dead).unwrap();
    let marked = async || (scene.rows("DEAD_LETTER").await == count).then_some(());
    eventually("the rows are marked", marked).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.has_dead_letters(count).await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&[], dead).await;
}

async fn alert_about_losing(scene: &Scene, event: &Committed) -> Received {
    eventually("the alert about this event", async || {
        let wanted = |alert: &Received| {
            alert.body.contains("nowhere else") && alert.body.contains(&event.event_id)
        };
        scene.people.received().into_iter().find(wanted)
    })
    .await
}

async fn without_table_and_file_an_alert_carries_the_event(place: Place) {
    let Some((scene, daemon)) = without_table_and_file(place, true).await else { return };
    let small = scene.append_one(doomed(1)).await;
    let padding = "x".repeat(5_000);
    let large = NewEvent::new("order", "large", "Refused", format!("{SECRET} {padding} end"));
    let large = scene.append_one(large).await;
    daemon.reaches("postrider_outbox_critical_failure_total", 2.0).await;
    daemon.logs("could be saved nowhere else").await;
    for event in [&small, &large] {
        let alert = alert_about_losing(&scene, event).await;
        assert!(alert.body.contains(SECRET), "the whole event: {}", alert.body);
        assert!(alert.body.contains(&format!("row {}", event.id)), "where it is: {}", alert.body);
    }
    let alert = alert_about_losing(&scene, &large).await;
    assert!(alert.body.contains(&format!("{padding} end")), "nothing is cut off");
    assert!(!daemon.log().contains(SECRET), "the log carries no payload");
    with_the_table_back(&scene, daemon, 2).await;
}

async fn a_channel_without_payloads_is_told_where_the_event_is(place: Place) {
    let Some((scene, daemon)) = without_table_and_file(place, false).await else { return };
    let event = scene.append_one(doomed(1)).await;
    daemon.reaches("postrider_outbox_critical_failure_total", 1.0).await;
    let alert = alert_about_losing(&scene, &event).await;
    assert!(!alert.body.contains(SECRET), "no payload: {}", alert.body);
    let place = format!("table {} row {}", scene.db.outbox.table(), event.id);
    assert!(alert.body.contains(&place), "{}", alert.body);
    with_the_table_back(&scene, daemon, 1).await;
}

async fn a_tampered_payload_is_a_dead_letter_and_alerts_at_once(place: Place) {
    // A cool-down that no test waits for: what comes, comes at once.
    let settings = Settings::new().alerts(false).relay("alert_cool_down", "1h");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let tampered = scene.append_one(order(1)).await;
    let good = scene.append_orders(2).await;
    let table = scene.db.outbox.table();
    let change = format!("UPDATE {table} SET payload = '{{}}' WHERE id = {}", tampered.id);
    scene.db.execute(&change).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(1).await;
    scene.drained().await;
    let alert = alert_about(&scene, "Integrity failure").await;
    assert!(alert.body.contains(&tampered.event_id), "{}", alert.body);
    daemon.logs("Integrity failure in outbox orders").await;
    daemon.shows("postrider_outbox_integrity_failure_total", &[], 1.0).await;
    daemon.shows("postrider_outbox_dlq_total", &[("reason", "integrity")], 1.0).await;
    let dead = scene.dead_letters().await;
    assert_eq!(dead[0]["original_id"], tampered.id);
    assert_eq!(dead[0]["reason"], "integrity");
    assert!(scene.target.calls(&tampered.event_id).is_empty(), "never sent");
    daemon.stop().await;
    scene.settle_up(&good, 1).await;
}
