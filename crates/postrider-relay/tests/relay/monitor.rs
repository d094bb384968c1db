//! The monitor, on real tables: a condition is reported once, by the relay responsible for it, and
//! so is its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_relay::{
    OutboxConfig, Preset, Relay, RelayConfig, Thresholds,
    alerts::{AlertSettings, MessageState, Severity},
};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    relay::{Act, RecordedAlerts, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

postrider_testkit::on_each_store!(
    too_much_that_waits_is_told_and_so_is_its_end,
    failed_rows_are_counted_among_rows_that_wait,
    an_outage_is_told_and_so_is_its_end,
    the_report_has_types_states_and_dead_letters,
    what_the_tables_show_is_told_by_one_of_several_relays,
);

fn preset(alerts: Thresholds) -> Preset {
    Preset { alerts, ..quick_preset() }
}

fn relay(
    db: &TestDb,
    config: RelayConfig,
    preset: Preset,
    sink: &Arc<ScriptedSink>,
    people: &RecordedAlerts,
) -> Relay {
    let outbox = OutboxConfig::new(db.outbox.clone(), preset, sink.clone());
    let settings = AlertSettings { cool_down: Duration::from_secs(60), ..Default::default() };
    Relay::new(Arc::clone(&db.store), config)
        .outbox(outbox)
        .alert_channel(people.subscribed())
        .alert_settings(settings)
}

async fn too_much_that_waits_is_told_and_so_is_its_end(db: TestDb) {
    let (folder, people) = (TempFolder::new(), RecordedAlerts::new(false));
    let sink = ScriptedSink::delivering().gated().shared();
    db.append_orders(6).await;
    let alerts = Thresholds { pending_max: Some(5), ..Thresholds::BROKER };
    let relay = relay(&db, quick_config(&folder), preset(alerts), &sink, &people);
    let registry = relay.alert_registry();
    let relay = RunningRelay::start(relay);
    let raised = people.until("Outbox orders has 6 events waiting").await;
    assert_eq!(raised.severity, Severity::Warning);
    assert!(raised.fields.contains(&("threshold", "5".to_owned())), "{raised:?}");
    assert_eq!(registry.lists().active[0].kind, "pending/orders");
    sink.open();
    people.until_resolved("Outbox orders has 0 events waiting").await;
    relay.stop().await;
    assert_eq!(people.sent().len(), 2, "told once each");
    assert!(registry.lists().active.is_empty());
}

async fn failed_rows_are_counted_among_rows_that_wait(db: TestDb) {
    let (folder, people) = (TempFolder::new(), RecordedAlerts::new(false));
    let script = |event: &postrider_store::Event, _| match event.event_type.as_str() {
        "Late" => Act::retry("not yet"),
        _ => Act::DELIVER,
    };
    let sink = ScriptedSink::scripted(script).shared();
    let late = |n: usize| postrider::NewEvent::new("order", n.to_string(), "Late", "{}");
    db.append(&(0..4).map(late).collect::<Vec<_>>()).await;
    let hour = Duration::from_secs(3600);
    let mut preset = preset(Thresholds { failed_rows_max: Some(3), ..Thresholds::BROKER });
    preset.backoff.first = hour;
    preset.backoff.max = hour;
    let relay = relay(&db, quick_config(&folder), preset, &sink, &people);
    let relay = RunningRelay::start(relay);
    people.until("Outbox orders has 4 failed events that wait for another attempt").await;
    let seen = db.store.failed_rows(&db.outbox, 3).await.unwrap();
    assert_eq!((seen.count, seen.exact), (3, false), "no more rows are read than asked for");
    relay.stop().await;
}

async fn an_outage_is_told_and_so_is_its_end(db: TestDb) {
    let (folder, people) = (TempFolder::new(), RecordedAlerts::new(false));
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    let script = move |_: &postrider_store::Event, _| match is_down.load(Ordering::SeqCst) {
        true => Act::down("connection refused"),
        false => Act::DELIVER,
    };
    let sink = ScriptedSink::scripted(script).shared();
    db.append_orders(10).await;
    let relay = relay(&db, quick_config(&folder), quick_preset(), &sink, &people);
    let relay = RunningRelay::start(relay);
    let raised = people.until("destinations that are down: 1").await;
    assert_eq!(raised.severity, Severity::Critical);
    down.store(false, Ordering::SeqCst);
    sink.until_delivered(10).await;
    // Enough good calls that the bad ones are fewer than one in twenty.
    db.append_orders(800).await;
    people.until_resolved("found the destination up").await;
    relay.stop().await;
}

async fn the_report_has_types_states_and_dead_letters(db: TestDb) {
    let (folder, people) = (TempFolder::new(), RecordedAlerts::new(false).with_reports());
    let script = |event: &postrider_store::Event, _| match event.event_type.as_str() {
        "Bad" => Act::reject("never"),
        "Late" => Act::retry("not yet"),
        _ => Act::DELIVER,
    };
    let sink = ScriptedSink::scripted(script).shared();
    let typed = |kind: &str| postrider::NewEvent::new("order", kind, kind, "{}");
    db.append(&[typed("Bad"), typed("Late"), typed("Good")]).await;
    let hour = Duration::from_secs(3600);
    let mut preset = preset(Thresholds::API_CALL);
    preset.backoff.first = hour;
    preset.backoff.max = hour;
    let config = RelayConfig { report_every: Duration::from_millis(300), ..quick_config(&folder) };
    let relay = RunningRelay::start(relay(&db, config, preset, &sink, &people));
    let complete = |message: &postrider_relay::alerts::Message| {
        let field = |name, value: &str| message.fields.contains(&(name, value.to_owned()));
        message.state == MessageState::Report
            && field("by type and state", "Late FAILED 1")
            && field("unresolved by type", "Bad 1")
            && field("delivered in all", "1")
    };
    eventually("a report with everything", async || people.sent().into_iter().find(complete)).await;
    relay.stop().await;
}

/// Two relays serve the outbox and see the same tables. One of them alerts; when it is gone, the
/// other does.
async fn what_the_tables_show_is_told_by_one_of_several_relays(db: TestDb) {
    let folder = TempFolder::new();
    let (first_people, second_people) = (RecordedAlerts::new(false), RecordedAlerts::new(false));
    let sink = ScriptedSink::delivering().gated().shared();
    db.append_orders(6).await;
    let alerts = Thresholds { pending_max: Some(5), ..Thresholds::BROKER };
    let start = |people: &RecordedAlerts| {
        RunningRelay::start(relay(&db, quick_config(&folder), preset(alerts), &sink, people))
    };
    let first = start(&first_people);
    first_people.until("events waiting").await;
    let second = start(&second_people);
    let both = async || (db.store.relays().await.unwrap().len() == 2).then_some(());
    eventually("both are on the list", both).await;
    assert!(second_people.sent().is_empty(), "the first tells");
    let stopping = tokio::spawn(first.stop());
    second_people.until("events waiting").await;
    sink.open();
    stopping.await.unwrap();
    second_people.until_resolved("events waiting").await;
    second.stop().await;
}
