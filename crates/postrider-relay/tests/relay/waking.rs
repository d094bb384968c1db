//! Wake-ups: hints that make an idle relay poll at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider::Outbox;
use postrider_relay::{OutboxConfig, Preset, Relay};
use postrider_store::{ConnectOptions, OutboxSpec, StoreKind, connect};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb, eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::time::Instant;

on_each_store!(
    a_wake_up_ends_an_idle_wait,
    a_wake_up_reaches_every_outbox,
    polling_starts_over_at_5_ms_and_doubles,
    a_probe_that_gets_through_releases_what_waits_at_once,
);

/// Far beyond the test's time limit: whatever arrives was not found by an idle poll.
fn sleepy() -> Preset {
    Preset { idle_poll: Duration::from_secs(3600), ..quick_preset() }
}

/// Polls come 5, 15, 35 … 5,115, 10,235 ms after a batch. After this wait, the next one is 4 s
/// away: an event that arrives sooner than [`AWAKE`] was not found by a poll.
async fn fall_asleep() {
    tokio::time::sleep(Duration::from_secs(6)).await;
}

/// Far more than a wake-up takes, and less than a poll would.
const AWAKE: Duration = Duration::from_secs(3);

async fn a_wake_up_ends_an_idle_wait(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = RunningRelay::with_preset(&db, &folder, &sink, sleepy());
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    fall_asleep().await;
    let appended = Instant::now();
    db.append_orders(1).await;
    relay.waker.wake();
    sink.until_delivered(2).await;
    assert!(appended.elapsed() < AWAKE, "{:?}", appended.elapsed());
    relay.stop().await;
}

async fn a_probe_that_gets_through_releases_what_waits_at_once(db: TestDb) {
    let (folder, down) = (TempFolder::new(), Arc::new(AtomicBool::new(true)));
    let state = Arc::clone(&down);
    let script = move |_: &postrider_store::Event, _| match state.load(Ordering::SeqCst) {
        true => Act::down("connection refused"),
        false => Act::DELIVER,
    };
    let sink = ScriptedSink::scripted(script).to_one_destination().shared();
    // Probes are this far apart: an event that follows one sooner was not sent by the next probe.
    let preset = Preset { idle_poll: Duration::from_secs(6), ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    db.append_orders(20).await;
    sink.until("a batch failed, and a probe", |log| log.answers.len() > 10).await;
    down.store(false, Ordering::SeqCst);
    sink.until_delivered(1).await;
    let came_back = Instant::now();
    sink.until_delivered(20).await;
    assert!(came_back.elapsed() < AWAKE, "{:?}", came_back.elapsed());
    relay.stop().await;
}

async fn a_wake_up_reaches_every_outbox(db: TestDb) {
    let folder = TempFolder::new();
    let mut relay = Relay::new(Arc::clone(&db.store), quick_config(&folder));
    let mut sinks = Vec::new();
    for _ in 0..3 {
        let outbox = db.add_outbox(postrider_store::Dedupe::default()).await;
        let sink = ScriptedSink::delivering().shared();
        relay = relay.outbox(OutboxConfig::new(outbox.clone(), sleepy(), sink.clone()));
        sinks.push((outbox, sink));
    }
    let relay = RunningRelay::start(relay);
    for round in 1..=2 {
        let appended = Instant::now();
        for (outbox, _) in &sinks {
            let event = postrider_testkit::conformance::steps::order(round);
            db.append_to(outbox, &[event]).await;
        }
        relay.waker.wake();
        for (_, sink) in &sinks {
            sink.until_delivered(usize::try_from(round).unwrap()).await;
        }
        if round == 2 {
            assert!(appended.elapsed() < AWAKE, "{:?}", appended.elapsed());
        } else {
            fall_asleep().await;
        }
    }
    relay.stop().await;
}

/// After a batch, polls come after 5, 10, 20 … ms, so an event appended soon after is found soon,
/// without a wake-up and however long the idle poll is.
async fn polling_starts_over_at_5_ms_and_doubles(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = RunningRelay::with_preset(&db, &folder, &sink, sleepy());
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    for round in 2..=8 {
        let (appended, pause) = (Instant::now(), Duration::from_millis(10));
        tokio::time::sleep(pause).await;
        db.append_orders(1).await;
        sink.until_delivered(round).await;
        assert!(appended.elapsed() < Duration::from_secs(10), "the polls started over");
    }
    relay.stop().await;
}

async fn notified(test: &str) -> Option<TestDb> {
    let spec = OutboxSpec { notify: true, ..OutboxSpec::new(Outbox::new("orders").unwrap()) };
    TestDb::open_with(StoreKind::Postgres, test, &[spec]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_of_postgresql_wakes_a_relay_of_another_process() {
    let Some(db) = notified("waking::a_notification_of_postgresql").await else { return };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    // A separate pool, as another process would have.
    let store = connect(&db.url, &ConnectOptions::default()).await.unwrap();
    let outbox = OutboxConfig::new(db.outbox.clone(), sleepy(), sink.clone());
    let config = OutboxConfig { notify: true, ..outbox };
    let relay = RunningRelay::on(&store, quick_config(&folder), config);
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE 'LISTEN%'";
    eventually("the relay listens", async || (db.integer(listening).await > 0).then_some(())).await;
    fall_asleep().await;
    let appended = Instant::now();
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    assert!(appended.elapsed() < AWAKE, "{:?}", appended.elapsed());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_listening_connection_is_survived() {
    let Some(db) = notified("waking::the_loss_of_the_listening_connection").await else { return };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let store = connect(&url, &ConnectOptions::default()).await.unwrap();
    let outbox = OutboxConfig::new(db.outbox.clone(), sleepy(), sink.clone());
    let config = OutboxConfig { notify: true, ..outbox };
    let relay = RunningRelay::on(&store, quick_config(&folder), config);
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    proxy.cut();
    proxy.pass();
    // This event may fall into the gap; a poll finds it then.
    db.append_orders(1).await;
    sink.until_delivered(2).await;
    fall_asleep().await;
    let appended = Instant::now();
    db.append_orders(1).await;
    sink.until_delivered(3).await;
    assert!(appended.elapsed() < AWAKE, "hints arrive again: {:?}", appended.elapsed());
    relay.stop().await;
    db.assert_balanced().await;
}
