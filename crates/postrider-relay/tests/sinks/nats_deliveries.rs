//! A stream drops the repeat of a delivery, and no other delivery of the same event.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusBuilder;
use postrider::Outbox;
use postrider_relay::{
    BranchSettings, FanOut, OutboxConfig, Outcome, Preset, Relay,
    sinks::{NatsSettings, NatsSink},
    telemetry,
};
use postrider_store::{Dedupe, Event, EventFilter, JobWork, NewJob, OnSuccess, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    relay::{RunningRelay, held_event, quick_config, quick_preset},
    sinks::{Destination, NatsDestination, deliver},
};

const EVENTS: usize = 20;

async fn stream(test: &str) -> Option<NatsDestination> {
    NatsDestination::shared(&format!("{}::{test}", module_path!())).await
}

/// A sink for one subject of the stream.
fn sink(stream: &NatsDestination, last: &str) -> Arc<NatsSink> {
    let subject = Some(format!("{}.{last}", stream.name));
    Arc::new(NatsSink::new(NatsSettings { subject, ..stream.settings() }).unwrap())
}

/// Returns how many messages the stream has of each event.
async fn copies(stream: &NatsDestination) -> Vec<usize> {
    let mut copies = BTreeMap::new();
    for message in stream.arrived().await {
        *copies.entry(message.event_id).or_insert(0) += 1;
    }
    copies.into_values().collect()
}

async fn until_delivered(db: &TestDb, outboxes: &[&Outbox]) {
    for outbox in outboxes {
        let archived = format!("SELECT count(*) FROM {}_archive", outbox.table());
        eventually(&format!("{} has delivered all", outbox.name()), async || {
            (db.integer(&archived).await == EVENTS as i64).then_some(())
        })
        .await;
    }
}

/// The third branch leads to the subject of the first: it is an outbox of its own, too.
#[tokio::test(flavor = "multi_thread")]
async fn branches_of_a_fan_out_do_not_count_as_repeats_of_each_other() {
    let test = "branches_of_a_fan_out_do_not_count_as_repeats_of_each_other";
    let Some(stream) = stream(test).await else { return };
    let Some(db) = TestDb::open(StoreKind::Sqlite, test).await else { return };
    let folder = TempFolder::new();
    let preset = Preset { on_success: OnSuccess::Archive, ..quick_preset() };
    let mut relay = Relay::new(db.store.clone(), quick_config(&folder));
    let (mut branches, mut children) = (Vec::new(), Vec::new());
    for subject in ["orders", "audit", "orders"] {
        let child = db.add_outbox(Dedupe::default()).await;
        let (event_type, aggregate_type, filter) = (None, None, None);
        branches.push(BranchSettings { outbox: child.clone(), event_type, aggregate_type, filter });
        relay =
            relay.outbox(OutboxConfig::new(child.clone(), preset.clone(), sink(&stream, subject)));
        children.push(child);
    }
    let fan_out = Arc::new(FanOut::new("branches", &branches).unwrap());
    let relay = relay.outbox(OutboxConfig::fanned_out(db.outbox.clone(), preset, fan_out));
    let relay = RunningRelay::start(relay);
    db.append_orders(EVENTS as u64).await;
    until_delivered(&db, &children.iter().collect::<Vec<_>>()).await;
    relay.stop().await;
    assert_eq!(copies(&stream).await, vec![3; EVENTS]);
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_into_another_subject_does_not_count_as_a_repeat() {
    let test = "a_replay_into_another_subject_does_not_count_as_a_repeat";
    let Some(stream) = stream(test).await else { return };
    let Some(db) = TestDb::open(StoreKind::Sqlite, test).await else { return };
    let folder = TempFolder::new();
    let preset = Preset { on_success: OnSuccess::Archive, ..quick_preset() };
    let search = db.add_outbox(Dedupe::default()).await;
    let of = |outbox: &Outbox, subject: &str| {
        OutboxConfig::new(outbox.clone(), preset.clone(), sink(&stream, subject))
    };
    let relay = Relay::new(db.store.clone(), quick_config(&folder))
        .outbox(of(&db.outbox, "orders"))
        .outbox(of(&search, "search"));
    let relay = RunningRelay::start(relay);
    db.append_orders(EVENTS as u64).await;
    until_delivered(&db, &[&db.outbox]).await;
    let work =
        JobWork::Replay { filter: EventFilter::default(), into: Some(search.name().to_owned()) };
    let (operator, note) = ("olga".to_owned(), "a new index".to_owned());
    let job = NewJob { work, operator, note, rate: None, canary: None, request_key: None };
    db.store.create_job(&db.outbox, &job).await.unwrap();
    until_delivered(&db, &[&search]).await;
    relay.stop().await;
    assert_eq!(copies(&stream).await, vec![2; EVENTS]);
    stream.remove().await;
}

/// Whatever the relay counts on the row between two tries.
#[tokio::test(flavor = "multi_thread")]
async fn another_try_of_the_same_row_is_dropped() {
    let Some(stream) = stream("another_try_of_the_same_row_is_dropped").await else { return };
    let first = held_event(1);
    let again = Event { retry_count: 3, crash_count: 2, version: 9, ..first.clone() };
    let settings = NatsSettings { name: "repeats".to_owned(), ..stream.settings() };
    // Another relay: its sink is new. Both are built before anything is recorded, as in a daemon.
    let sinks = [(); 2].map(|()| NatsSink::new(settings.clone()).unwrap());
    let metrics = PrometheusBuilder::new().install_recorder().unwrap();
    for (repeats, (sink, event)) in sinks.iter().zip([first, again]).enumerate() {
        assert_eq!(deliver(sink, &[event], false).await, [Outcome::Delivered]);
        let counted = format!("{}{{sink=\"repeats\"}} {repeats}", telemetry::NATS_REPEATS);
        assert!(metrics.render().contains(&counted), "{counted}: {}", metrics.render());
    }
    assert_eq!(copies(&stream).await, [1]);
    stream.remove().await;
}

/// An operator who sends a dead letter again, or replays an event, wants it sent.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_sends_again_does_not_count_as_a_repeat() {
    let test = "what_an_operator_sends_again_does_not_count_as_a_repeat";
    let Some(stream) = stream(test).await else { return };
    let sink = sink(&stream, "orders");
    let first = held_event(1);
    let replayed = |job: &str| Event {
        headers: Some(format!(r#"{{"postrider-replay":"{job}"}}"#)),
        redrive_count: 1,
        ..first.clone()
    };
    let retried = Event { id: 2, redrive_count: 1, ..first.clone() };
    // The first retry of a dead letter that was opened again.
    let reopened = Event { id: 3, ..retried.clone() };
    let all = [first.clone(), retried, reopened, replayed("7"), replayed("8")];
    for event in all {
        assert_eq!(deliver(&*sink, &[event], false).await, [Outcome::Delivered]);
    }
    assert_eq!(copies(&stream).await, [5]);
    stream.remove().await;
}
