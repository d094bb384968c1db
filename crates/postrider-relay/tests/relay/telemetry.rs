//! Every metric is emitted by what it counts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use postrider::NewEvent;
use postrider_relay::{
    Backoff, OutboxConfig, Preset, Relay, RelayConfig,
    alerts::{Alert, AlertSettings, Dispatcher, Severity},
    telemetry,
};
use postrider_store::{Event, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually,
    relay::{Act, RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

use crate::lanes::{of_key, use_lanes};

/// Returns the recorder of the process; tests distinguish their numbers by outbox.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

/// Returns the sum of a metric's lines that contain the labels.
fn value(metric: &str, labels: &str) -> f64 {
    let text = recorder().render();
    let lines = text.lines().filter(|line| {
        let name = line.split(['{', ' ']).next();
        name == Some(metric) && line.contains(labels)
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn until(metric: &str, labels: &str, expected: f64) {
    let what = format!("{metric} {labels} is {expected}");
    eventually(&what, async || (value(metric, labels) >= expected).then_some(())).await;
    assert_eq!(value(metric, labels), expected, "{what}");
}

/// Opens an outbox that no other test uses.
async fn measured(name: &str) -> TestDb {
    recorder();
    let spec = postrider_store::OutboxSpec::new(postrider::Outbox::new(name).unwrap());
    TestDb::open_with(StoreKind::Sqlite, name, &[spec]).await.unwrap()
}

fn typed(event_type: &str) -> NewEvent {
    NewEvent::new("order", event_type, event_type, "{}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_events_life_is_counted() {
    let db = measured("measured").await;
    let here = "outbox=\"measured\"";
    let script = |event: &Event, tries| match (event.event_type.as_str(), tries) {
        ("Late", 1) => Act::retry("not yet"),
        ("Bad", _) => Act::reject("never"),
        ("Down", 1) => Act::down("503"),
        _ => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let ids = db.append(&[order(1), typed("Late"), typed("Bad"), typed("Down"), order(2)]).await;
    db.execute(&format!("UPDATE measured_outbox SET payload = '!' WHERE id = {}", ids[4])).await;
    let alerts = RecordedAlerts::new(true);
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(outbox)
        .alert_channel(alerts.subscribed());
    let relay = RunningRelay::start(relay);
    until(telemetry::PROCESSED, here, 3.0).await;
    until(telemetry::CLAIMED, here, 7.0).await;
    // Includes the last attempt of an event: one that failed, one that was refused.
    until(telemetry::FAILED, here, 2.0).await;
    until(telemetry::DEFERRED, here, 1.0).await;
    until(telemetry::DLQ, "event_type=\"Bad\",reason=\"rejected\"", 1.0).await;
    until(telemetry::DLQ, here, 2.0).await;
    until(telemetry::INTEGRITY_FAILURE, here, 1.0).await;
    alerts.until("Integrity failure").await;
    until(telemetry::DLQ_UNRESOLVED, here, 2.0).await;
    // Shared by all relays of this process, some of which lose their lease in other tests.
    let held = async || (value(telemetry::LEASE_HELD, "") == 1.0).then_some(());
    eventually("the lease is held", held).await;
    assert!(value(telemetry::ALERTS, "channel=\"recorded\"") >= 1.0);
    for seconds in [
        telemetry::CLAIM_SECONDS,
        telemetry::DELIVER_SECONDS,
        telemetry::SETTLE_SECONDS,
        telemetry::END_TO_END_SECONDS,
    ] {
        assert!(value(&format!("{seconds}_count"), here) >= 1.0, "{seconds}");
    }
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_key_whose_first_event_fails_little_is_read_in_vain() {
    let db = measured("in_vain").await;
    use_lanes(&db).await;
    let failing: Vec<NewEvent> = (0..5_000).map(|_| of_key("failing", "Failed")).collect();
    db.append(&failing).await;
    db.append(&[of_key("other", "Moved")]).await;
    let script = |event: &Event, _| match event.event_type.as_str() {
        "Failed" => Act::retry("no"),
        _ => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let wait = Duration::from_secs(3600);
    let preset = Preset { batch: 2_000, ..quick_preset() };
    let backoff = Backoff { first: wait, max: wait, ..preset.backoff };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, Preset { backoff, ..preset });
    sink.until_delivered(1).await;
    relay.stop().await;
    let read = value(telemetry::CLAIMED, "outbox=\"in_vain\"");
    assert!((1.0..=1_000.0).contains(&read), "{read} of 5,001 events were read to be sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_destination_that_is_down_are_counted_in_either_mode() {
    for name in ["held_in_rows", "held_in_lanes"] {
        let db = measured(name).await;
        if name == "held_in_lanes" {
            use_lanes(&db).await;
        }
        let script = |event: &Event, _| match event.aggregate_type.as_str() {
            "down" => Act::down("refused"),
            _ => Act::DELIVER,
        };
        let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
        let of = |to: &str, n: usize| NewEvent::new(to, n.to_string(), "Moved", "{}");
        db.append(&(0..10).map(|n| of("down", n)).collect::<Vec<_>>()).await;
        // No probe is due during this test.
        let preset = Preset { idle_poll: Duration::from_secs(3600), ..quick_preset() };
        let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
        let labels = format!("outbox=\"{name}\"");
        until(telemetry::DESTINATION_OPENED, &labels, 1.0).await;
        let put_off = || value(telemetry::DESTINATION_HELD_BACK, &labels);
        let before = put_off();
        let later = db.append(&(10..100).map(|n| of("down", n)).collect::<Vec<_>>()).await;
        db.append(&[of("up", 0)]).await;
        relay.waker.wake();
        sink.until_delivered(1).await;
        // Some of the first ten may be among them.
        eventually("they count", async || (put_off() >= before + 90.0).then_some(())).await;
        assert!(sink.log().answers.iter().all(|(id, _)| !later.contains(id)), "none was sent");
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_gauged() {
    let db = measured("gauged").await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    db.append_orders(5).await;
    db.age("gauged_outbox", "created_at", Duration::from_secs(90), "1 = 1").await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    until(telemetry::PENDING, "outbox=\"gauged\"", 5.0).await;
    let age = || value(telemetry::OLDEST_AGE, "outbox=\"gauged\"");
    eventually("the age is gauged", async || (age() >= 90.0).then_some(())).await;
    sink.open();
    sink.until_delivered(5).await;
    let pending = || value(telemetry::PENDING, "outbox=\"gauged\"");
    eventually("nothing waits", async || (pending() == 0.0 && age() == 0.0).then_some(())).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recoveries_and_fenced_settles_are_counted() {
    let db = measured("fenced").await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    let dead = db.relay("0-dead").await;
    db.append_orders(2).await;
    assert_eq!(db.claim(&dead, 2).await.len(), 2);
    let config = RelayConfig { lease: Duration::from_secs(1), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    until(telemetry::STALLED_RECOVERED, "outbox=\"fenced\"", 2.0).await;
    sink.until("both are in flight", |log| log.calls_now > 0).await;
    // As if another relay had recovered the rows in the meantime.
    db.execute("UPDATE fenced_outbox SET version = version + 1").await;
    sink.open();
    until(telemetry::FENCED, "outbox=\"fenced\"", 2.0).await;
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_rung_of_the_safety_net_is_counted() {
    let db = measured("rungs").await;
    let (folder, here) = (TempFolder::new(), "outbox=\"rungs\"");
    let sink = ScriptedSink::scripted(|_, _| Act::reject("never")).shared();
    db.execute("DROP TABLE rungs_outbox_dlq").await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    db.append_orders(1).await;
    until(telemetry::BACKUP, here, 1.0).await;
    let backups = quick_config(&folder).backup_folder;
    std::fs::remove_dir_all(&backups).unwrap();
    std::fs::write(&backups, "in the way").unwrap();
    db.append_orders(1).await;
    until(telemetry::CRITICAL, here, 1.0).await;
    assert_eq!(value(telemetry::BACKUP, here), 1.0);
    assert_eq!(value(telemetry::DLQ, here), 0.0);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_beyond_the_queue_are_counted() {
    recorder();
    let before = value(telemetry::ALERTS_DROPPED, "channel=\"all\"");
    // No dispatcher runs, so nothing takes them.
    let (alerts, _dispatcher) = Dispatcher::new(Vec::new(), AlertSettings::default());
    for number in 0..1_500 {
        alerts.raise(Alert {
            severity: Severity::Info,
            kind: number.to_string(),
            title: String::new(),
            fields: Vec::new(),
            event: None,
        });
    }
    assert!(value(telemetry::ALERTS_DROPPED, "channel=\"all\"") >= before + 500.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_cannot_be_sent_are_counted() {
    let db = measured("unheard").await;
    let sink = ScriptedSink::scripted(|_, _| Act::reject("never")).shared();
    let (folder, deaf) = (TempFolder::new(), RecordedAlerts::named("deaf"));
    deaf.fail(u32::MAX);
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(outbox)
        .alert_channel(deaf.subscribed());
    let relay = RunningRelay::start(relay);
    db.append_orders(1).await;
    let failed = || value(telemetry::ALERTS_FAILED, "channel=\"deaf\"");
    eventually("tries are counted", async || (failed() >= 2.0).then_some(())).await;
    assert_eq!(value(telemetry::ALERTS, "channel=\"deaf\""), 0.0);
    assert!(value(telemetry::ALERTS_WAITING, "channel=\"deaf\"") >= 1.0);
    relay.stop().await;
}
