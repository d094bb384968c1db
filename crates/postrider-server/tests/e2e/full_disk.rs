//! SQLite on a disk without room.
//!
//! A small disk cannot be mounted without privileges, so the daemon's files get a largest size
//! (`RLIMIT_FSIZE`), which can be set and lifted while it runs. A write beyond it fails as one on a
//! full disk does: SQLite gives the transaction up and rolls back by itself.

use std::path::PathBuf;
use std::process::Command;

use postrider_testkit::{Daemon, eventually};

use crate::scene::{BINARY, Committed, Place, Scene, Settings};

crate::on_stores!(sqlite: { work_goes_on_by_itself_when_there_is_room_again });

const EVENTS: &str = "/api/v1/outboxes/orders/events";

async fn work_goes_on_by_itself_when_there_is_room_again(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    // Without this, the first write beyond the limit would kill the daemon.
    let ignoring = "trap '' XFSZ; exec \"$0\" run";
    let daemon = scene.site.with_binary("sh").serve(&["-c", ignoring, BINARY], &[]).await;
    daemon.ready().await;
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
        Some(daemon.get("/readyz").await.unwrap()).filter(|answer| answer.status != 200)
    });
    let unready = unready.await;
    assert_eq!(unready.status, 503, "{unready:?}");
    assert!(unready.body.contains("does not take writes"), "{unready:?}");

    limit(&daemon, "unlimited");
    let appended = eventually("an append is taken", async || append(&daemon, 10_000).await.ok());
    committed.push(appended.await);
    daemon.ready().await;
    scene.received(&committed).await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&committed, 0).await;
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
