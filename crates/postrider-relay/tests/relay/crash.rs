//! Events that kill the process, and processes that are killed.
//!
//! The test binary runs itself again: with `CHILD` in its environment, `the_child_process` is a
//! relay that works until the outbox is empty.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use postrider::{NewEvent, Outbox};
use postrider_relay::{OutboxConfig, Preset, RelayConfig};
use postrider_store::{ConnectOptions, Event, OnSuccess, connect};
use postrider_testkit::{
    PATIENCE, TempFolder, TestDb, eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::lanes::use_lanes;

on_each_store!(
    an_event_that_kills_the_process_is_found_and_no_innocent_one_is_blamed,
    twenty_kills_in_a_row_dead_letter_nothing,
    in_lanes_an_event_that_kills_the_process_is_found_and_no_innocent_one_is_blamed,
    in_lanes_twenty_kills_in_a_row_dead_letter_nothing,
);

/// Variable with the URL of the child's database.
const CHILD: &str = "POSTRIDER_TEST_CRASH_CHILD";
/// Variable with the duration of each of the child's deliveries, in milliseconds.
const PACE: &str = "POSTRIDER_TEST_CRASH_PACE";
/// Line that the child prints when a delivery has begun.
const DELIVERING: &str = "the child is delivering";

#[tokio::test(flavor = "multi_thread")]
async fn the_child_process() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let pace = Duration::from_millis(std::env::var(PACE).unwrap().parse().unwrap());
    let script = |event: &Event, _| match event.event_type.as_str() {
        "Killer" => Act::Abort,
        _ => Act::DELIVER,
    };
    let sink = ScriptedSink::scripted(script).paced(pace).shared();
    let watched = Arc::clone(&sink);
    tokio::spawn(async move {
        watched.until("a delivery begins", |log| log.calls_now > 0).await;
        println!("{DELIVERING}");
    });
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    let folder = TempFolder::new();
    let config = RelayConfig {
        lease: Duration::from_millis(800),
        heartbeat_every: Duration::from_millis(80),
        ..quick_config(&folder)
    };
    let preset = Preset { batch: 100, on_success: OnSuccess::Archive, ..quick_preset() };
    let outbox = Outbox::new("orders").unwrap();
    let relay = RunningRelay::on(&store, config, OutboxConfig::new(outbox.clone(), preset, sink));
    let pending = async || store.statistics(&outbox).await.unwrap().pending;
    eventually("all is settled", async || (pending().await == 0).then_some(())).await;
    relay.stop().await;
}

fn start_child(db: &TestDb, pace_ms: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["crash::the_child_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, &db.url)
        .env(PACE, pace_ms.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Runs the child to its end; returns whether it survived.
async fn run_child(db: &TestDb, pace_ms: u32) -> bool {
    let child = start_child(db, pace_ms);
    let ended = tokio::time::timeout(2 * PATIENCE, child.wait_with_output()).await;
    ended.expect("the child ends").unwrap().status.success()
}

/// Runs the child until it delivers, then kills it. Returns whether there was anything to deliver.
async fn kill_while_delivering(db: &TestDb, pace_ms: u32) -> bool {
    let mut child = start_child(db, pace_ms);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let delivering = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(DELIVERING) {
                return true;
            }
        }
        false
    };
    let delivering = tokio::time::timeout(PATIENCE, delivering).await.expect("the child delivers");
    child.kill().await.unwrap();
    delivering
}

async fn an_event_that_kills_the_process_is_found_and_no_innocent_one_is_blamed(db: TestDb) {
    db.append_orders(25).await;
    let killer = NewEvent::new("order", "killer", "Killer", "{}").max_retries(3);
    let killer = db.append(&[killer]).await[0];
    db.append_orders(25).await;
    let mut crashes = 0;
    while !run_child(&db, 0).await {
        crashes += 1;
        assert!(crashes <= 10, "the killer goes on killing");
    }
    assert!(crashes >= 3, "{crashes}: it is not blamed before it was alone");
    assert_eq!(db.count("_archive").await, 50, "every innocent one is delivered");
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 1));
    let reason = format!("SELECT reason FROM orders_outbox_dlq WHERE original_id = {killer}");
    assert_eq!(db.text(&reason).await.as_deref(), Some("crash"));
    db.assert_balanced().await;
}

async fn in_lanes_an_event_that_kills_the_process_is_found_and_no_innocent_one_is_blamed(
    db: TestDb,
) {
    use_lanes(&db).await;
    an_event_that_kills_the_process_is_found_and_no_innocent_one_is_blamed(db).await;
}

async fn in_lanes_twenty_kills_in_a_row_dead_letter_nothing(db: TestDb) {
    use_lanes(&db).await;
    twenty_kills_in_a_row_dead_letter_nothing(db).await;
}

async fn twenty_kills_in_a_row_dead_letter_nothing(db: TestDb) {
    db.append_orders(40).await;
    for kill in 1..=20 {
        assert!(kill_while_delivering(&db, 150).await, "there was nothing to kill at {kill}");
    }
    assert!(run_child(&db, 0).await);
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    assert_eq!(db.count("_archive").await, 40);
    db.assert_balanced().await;
}
