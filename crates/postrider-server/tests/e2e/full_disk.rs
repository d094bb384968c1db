//! SQLite and the backup folder on a disk without room.
//!
//! A small disk cannot be mounted without privileges, so the daemon's files get a largest size
//! (`RLIMIT_FSIZE`), which can be set and lifted while it runs. A write beyond it fails as one on a
//! full disk does: SQLite gives the transaction up and rolls back by itself.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use postrider::NewEvent;
use postrider_testkit::{Answer, Daemon, eventually};

use crate::scene::{BINARY, Committed, Place, Scene, Settings};

crate::on_stores!(sqlite: { work_goes_on_by_itself_when_there_is_room_again });
mod on_a_server {
    // Its database is elsewhere: only the backup folder is on the full disk.
    crate::scene::tests!(postgres { dead_letters_are_filed_again_when_there_is_room });
}

const EVENTS: &str = "/api/v1/outboxes/orders/events";
/// From room on the disk to work that goes on.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// A daemon that a write beyond the limit does not kill.
async fn start(scene: &Scene) -> Daemon {
    let ignoring = "trap '' XFSZ; exec \"$0\" run";
    let daemon = scene.site.with_binary("sh").serve(&["-c", ignoring, BINARY], &[]).await;
    daemon.ready().await;
    daemon
}

async fn work_goes_on_by_itself_when_there_is_room_again(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = start(&scene).await;
    let mut committed = vec![append(&daemon, 1).await.unwrap()];
    scene.received(&committed).await;

    limit(&daemon, &(largest_file(&scene) + (256 << 10)).to_string());
    let refused = loop {
        match append(&daemon, 10_000).await {
            Ok(event) => committed.push(event),
            Err(status) => break status,
        }
    };
    assert_eq!(refused, 503, "worth a repeat");
    let unready = eventually("the daemon is not ready", async || {
        // Before that, it may say that its work fails, which has the same cause.
        let says = |answer: &postrider_testkit::http_client::Response| {
            answer.body.contains("does not take writes")
        };
        Some(daemon.get("/readyz").await.unwrap()).filter(says)
    });
    let unready = unready.await;
    assert_eq!(unready.status, 503, "{unready:?}");

    limit(&daemon, "unlimited");
    let since = Instant::now();
    let appended = eventually("an append is taken", async || append(&daemon, 10_000).await.ok());
    committed.push(appended.await);
    daemon.ready().await;
    scene.received(&committed).await;
    assert!(since.elapsed() < BACK_WITHIN, "{:?}", since.elapsed());
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&committed, 0).await;
}

/// Without a dead-letter table, the file is where dead letters go. While it takes none, their rows
/// stay; what it took in part does not spoil what follows.
async fn dead_letters_are_filed_again_when_there_is_room(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer_by(|request| match request.header("postrider-event-type") {
        "Refused" => Answer::status(422),
        _ => Answer::ok(),
    });
    let doomed = async |key: &str| {
        scene.append_one(NewEvent::new("order", key, "Refused", "{}")).await;
    };
    let marked = async |count: i64| {
        let rows = async || (scene.rows("DEAD_LETTER").await == count).then_some(());
        eventually("the row is marked", rows).await;
    };
    let daemon = start(&scene).await;
    scene.db.execute(&format!("DROP TABLE {}_dlq", scene.db.outbox.table())).await;
    doomed("first").await;
    daemon.reaches("postrider_outbox_backup_total", 1.0).await;
    let file = scene.site.path("backup/dead-letters.jsonl");
    let size = || std::fs::metadata(&file).unwrap().len();

    let full = size() + 100;
    limit(&daemon, &full.to_string());
    doomed("second").await;
    let good = scene.append_orders(3).await;
    scene.received(&good).await;
    marked(2).await;
    assert_eq!(size(), full, "a part of it");

    limit(&daemon, "unlimited");
    let since = Instant::now();
    doomed("third").await;
    daemon.reaches("postrider_outbox_backup_total", 2.0).await;
    marked(3).await;
    assert!(since.elapsed() < BACK_WITHIN, "{:?}", since.elapsed());
    daemon.stop().await;

    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let import = ["dlq", "import", file.to_str().unwrap(), "--json"];
    let read = scene.site.run(&import).await.exits(1).says(&["line 2"]).json();
    assert_eq!((&read["live"], read["damaged"].as_array().unwrap().len()), (&2.into(), 1));
    let daemon = scene.site.start().await;
    scene.has_dead_letters(3).await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&good, 3).await;
}

/// Appends an event over HTTP, or answers the status.
async fn append(daemon: &Daemon, payload_bytes: usize) -> Result<Committed, u16> {
    let payload = "x".repeat(payload_bytes);
    let event = serde_json::json!({
        "aggregate_type": "order", "aggregate_id": "1", "event_type": "OrderPlaced",
        "payload": payload,
    });
    let answer = daemon.post(EVENTS, &event.to_string()).await;
    match answer.status {
        201 => Ok(Committed {
            id: answer.json()["id"].as_i64().unwrap(),
            event_id: answer.json()["event_id"].as_str().unwrap().to_owned(),
        }),
        status => Err(status),
    }
}

/// Bytes of the database or its WAL.
fn largest_file(scene: &Scene) -> u64 {
    let file = scene.db.url.trim_start_matches("sqlite:").split('?').next().unwrap();
    let wal = PathBuf::from(format!("{file}-wal"));
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    size(PathBuf::from(file)).max(size(wal))
}

/// Only the soft limit: it may be raised again without privileges.
fn limit(daemon: &Daemon, bytes: &str) {
    let pid = daemon.pid().to_string();
    let limit = format!("--fsize={bytes}:");
    let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
    assert!(set.success(), "prlimit {limit}");
}
