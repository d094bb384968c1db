//! Outages: what waits, what continues, what is charged, and how a destination recovers.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider::NewEvent;
use postrider_relay::{
    Batch, Cause, OutboxConfig, Outcome, Preset, RateLimit, Sink, SinkError,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::Event;
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually,
    http::{Receiver, Reply},
    on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::time::Instant;

use crate::http_sink::settings;
use crate::lanes::use_lanes;

const HOUR: Duration = Duration::from_secs(3600);

on_each_store!(
    an_event_that_always_times_out_dies_and_the_thousand_behind_it_arrive,
    events_that_always_time_out_die_once_the_outage_lasts_too_long,
    one_of_twenty_destinations_is_down_and_the_others_go_on,
    one_of_twenty_destinations_is_down_and_the_others_go_on_in_lanes,
    in_lanes_a_queue_that_is_full_for_one_key_holds_back_no_other_key,
    a_probe_that_waits_for_its_timeout_keeps_nobody_waiting,
    while_a_probe_is_under_way_others_are_served,
    while_a_probe_is_under_way_others_are_served_in_lanes,
    plain_counting_holds_nothing_back,
    a_destination_that_is_back_gets_one_event_then_two_then_four,
    an_overloaded_destination_gets_fewer_at_once_and_no_event_pays_for_it,
    a_destination_that_says_429_is_left_alone_as_long_as_it_asks,
    a_rate_limit_holds_for_any_sink,
);

fn poison() -> NewEvent {
    NewEvent::new("order", "poisoned", "Poison", "{}")
}

fn poisoned(event: &Event, _: usize) -> Act {
    match event.event_type.as_str() {
        "Poison" => Act::down("timeout"),
        _ => Act::DELIVER,
    }
}

async fn append_orders(db: &TestDb, aggregate_type: &str, count: usize) {
    let event = |n: usize| NewEvent::new(aggregate_type, n.to_string(), "OrderPlaced", "{}");
    for start in (0..count).step_by(500) {
        let events: Vec<_> = (start..count.min(start + 500)).map(event).collect();
        db.append(&events).await;
    }
}

async fn until_dead(db: &TestDb, count: i64) {
    let what = format!("{count} events are dead letters");
    eventually(&what, async || (db.count("_dlq").await == count).then_some(())).await;
}

async fn an_event_that_always_times_out_dies_and_the_thousand_behind_it_arrive(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(poisoned).shared());
    db.append(&[poison()]).await;
    append_orders(&db, "order", 1_000).await;
    let preset = Preset { batch: 100, outage_max: Duration::from_secs(1), ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    sink.until_delivered(1_000).await;
    until_dead(&db, 1).await;
    relay.stop().await;
    assert_eq!(db.count("").await, 0);
    let blamed = "SELECT count(DISTINCT event_id) FROM orders_outbox_attempts";
    assert_eq!(db.integer(blamed).await, 1, "only the one that times out pays");
    db.assert_balanced().await;
}

/// 52 of them alone look like an outage, so nothing is spent before `outage_max`.
async fn events_that_always_time_out_die_once_the_outage_lasts_too_long(db: TestDb) {
    let sink = ScriptedSink::scripted(poisoned).to_one_destination().shared();
    let folder = TempFolder::new();
    db.append(&(0..52).map(|_| poison()).collect::<Vec<_>>()).await;
    let preset = |outage_max| Preset { outage_max, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset(HOUR));
    sink.until("probes are sent", |log| log.answers.len() > 20).await;
    relay.stop().await;
    assert_eq!(db.count("_attempts").await, 0, "an outage is free");

    let short = Duration::from_millis(500);
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset(short));
    until_dead(&db, 52).await;
    relay.stop().await;
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

/// The events of the destination that is down come first, and outnumber all others: neither
/// claiming them nor their share of a batch may keep out the others.
async fn one_of_twenty_destinations_is_down_and_the_others_go_on(db: TestDb) {
    let script = |event: &Event, _| match event.aggregate_type.as_str() {
        "host-0" => Act::down("connection refused"),
        _ => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    append_orders(&db, "host-0", 2_000).await;
    for host in 1..20 {
        append_orders(&db, &format!("host-{host}"), 50).await;
    }
    // Probes are far apart here: everything that the others get, they get between two probes.
    let idle_poll = Duration::from_secs(60);
    let preset = Preset { batch: 100, idle_poll, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    sink.until_delivered(19 * 50).await;
    let down = sink.log().answers.iter().filter(|(_, o)| *o != Outcome::Delivered).count();
    assert!(down <= 300, "three batches that were under way when it went down at most: {down}");
    let gone = async || (db.count("").await == 2_000).then_some(());
    eventually("the others are settled", gone).await;
    relay.stop().await;
    assert_eq!((db.count("_attempts").await, db.count("_dlq").await), (0, 0), "nothing is spent");
    db.assert_balanced().await;
}

async fn one_of_twenty_destinations_is_down_and_the_others_go_on_in_lanes(db: TestDb) {
    use_lanes(&db).await;
    one_of_twenty_destinations_is_down_and_the_others_go_on(db).await;
}

/// A template with `{aggregate_id}` is one destination, and only the head of each key is tried.
async fn in_lanes_a_queue_that_is_full_for_one_key_holds_back_no_other_key(db: TestDb) {
    use_lanes(&db).await;
    let script = |event: &Event, _| match event.aggregate_id.as_str() {
        "full" => Act::down("the queue is full"),
        _ => Act::DELIVER,
    };
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(script).to_one_destination().shared();
    for key in std::iter::once("full".to_owned()).chain((0..20).map(|n| format!("key-{n}"))) {
        let event = |_| NewEvent::new("order", key.as_str(), "OrderPlaced", "{}");
        db.append(&(0..50).map(event).collect::<Vec<_>>()).await;
    }
    // While it counted as down, each of the others would wait a minute for the next probe.
    let idle_poll = Duration::from_secs(60);
    let preset = Preset { batch: 100, idle_poll, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    sink.until_delivered(20 * 50).await;
    relay.stop().await;
}

/// One batch at a time, in which every second event is for a host that does not answer.
async fn a_probe_that_waits_for_its_timeout_keeps_nobody_waiting(db: TestDb) {
    let silent = Receiver::start(|_| Reply::Silence).await;
    let well = Receiver::start(|_| Reply::Status(204)).await;
    let port = |receiver: &Receiver| receiver.url("").rsplit(':').next().unwrap().to_owned();
    let settings = HttpSettings {
        timeout: Duration::from_secs(2),
        ..settings("http://127.0.0.1:{aggregate_type}/x".to_owned())
    };
    let sink = Arc::new(HttpSink::new(settings).unwrap());
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink);
    let outbox = OutboxConfig { batches_max: 1, ..outbox };
    let folder = TempFolder::new();
    append_orders(&db, &port(&silent), 20).await;
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    silent.until("it is down, and is probed", |received| received.requests.len() > 5).await;
    let before = silent.received().requests.len();
    let hosts = [port(&silent), port(&well)];
    let call = |n: usize| NewEvent::new(&*hosts[n % 2], n.to_string(), "OrderPlaced", "{}");
    db.append(&(0..800).map(call).collect::<Vec<_>>()).await;
    well.until("the other is served", |received| received.requests.len() == 400).await;
    // Eighty batches, half of which would wait for a probe's timeout if the probe took their
    // permit: forty probes. The others come while the batches are written, however slow the disk.
    let probes = silent.received().requests.len() - before;
    assert!(probes < 35, "{probes} probes");
    relay.stop().await;
    db.assert_balanced().await;
}

/// One batch at a time, and the answer to the probe arrives only after all others are delivered.
async fn while_a_probe_is_under_way_others_are_served(db: TestDb) {
    let down = Receiver::start(|_| Reply::Status(503)).await;
    let well = Receiver::start(|_| Reply::Status(204)).await;
    let port = |receiver: &Receiver| receiver.url("").rsplit(':').next().unwrap().to_owned();
    let timeout = Duration::from_secs(600);
    let url = "http://127.0.0.1:{aggregate_type}/x".to_owned();
    let sink = Arc::new(HttpSink::new(HttpSettings { timeout, ..settings(url) }).unwrap());
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink);
    let outbox = OutboxConfig { batches_max: 1, deliver_timeout: timeout, ..outbox };
    let folder = TempFolder::new();
    append_orders(&db, &port(&down), 20).await;
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    // Each event is sent once before the destination is down, so any further requests are probes.
    down.until("it is down, and is probed", |received| received.requests.len() > 25).await;
    down.shut();
    down.until("a probe is under way", |received| received.now == 1).await;
    append_orders(&db, &port(&well), 100).await;
    append_orders(&db, &port(&down), 20).await;
    relay.waker.wake();
    well.until("the other is served", |received| received.requests.len() == 100).await;
    assert_eq!(down.received().now, 1, "the probe is under way still, and the only one");
    down.open();
    relay.stop().await;
    db.assert_balanced().await;
}

async fn while_a_probe_is_under_way_others_are_served_in_lanes(db: TestDb) {
    use_lanes(&db).await;
    while_a_probe_is_under_way_others_are_served(db).await;
}

async fn plain_counting_holds_nothing_back(db: TestDb) {
    let sink = ScriptedSink::scripted(|_, _| Act::down("503")).to_one_destination().shared();
    let folder = TempFolder::new();
    // Probes would be too far apart for any of these to be tried three times.
    let idle_poll = Duration::from_secs(60);
    let preset = Preset { outage_spends_attempts: true, idle_poll, ..quick_preset() };
    append_orders(&db, "order", 40).await;
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset);
    eventually("all are dead", async || {
        relay.waker.wake();
        (db.count("_dlq").await == 40).then_some(())
    })
    .await;
    relay.stop().await;
    assert_eq!(sink.log().answers.len(), 3 * 40);
    db.assert_balanced().await;
}

async fn a_destination_that_is_back_gets_one_event_then_two_then_four(db: TestDb) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let script = move |_: &Event, _| match is_up.load(Ordering::SeqCst) {
        true => Act::DELIVER,
        false => Act::down("503"),
    };
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(script).to_one_destination().shared();
    append_orders(&db, "order", 200).await;
    let preset = Preset { batch: 50, ..quick_preset() };
    let outbox = OutboxConfig::new(db.outbox.clone(), preset, sink.clone());
    // One batch at a time, so that calls and answers have the same order.
    let outbox = OutboxConfig { batches_max: 1, ..outbox };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.until("it is down, and was probed", |log| log.calls.iter().any(|c| c.len() == 1)).await;
    up.store(true, Ordering::SeqCst);
    sink.until_delivered(200).await;
    relay.stop().await;
    let (log, mut answers, mut delivered) = (sink.log(), 0, 0);
    let mut sizes = Vec::new();
    for size in log.calls.iter().map(Vec::len) {
        if answers >= 50 {
            assert!(size <= delivered.max(1), "{size} at once after {delivered}: {sizes:?}");
            sizes.push(size);
        }
        let all = &log.answers[answers..answers + size];
        delivered += all.iter().filter(|(_, outcome)| *outcome == Outcome::Delivered).count();
        answers += size;
    }
    assert!(sizes.iter().any(|size| *size > 8), "the load grows again: {sizes:?}");
    assert_eq!(db.count("_attempts").await, 0, "nothing is spent");
    db.assert_balanced().await;
}

/// Sends one request per event to a destination that accepts four at once and refuses more.
#[derive(Default)]
struct Narrow {
    now: AtomicUsize,
    refused: AtomicUsize,
    delivered: Mutex<Vec<i64>>,
}

impl Narrow {
    async fn send<'a>(&'a self, batch: &Batch<'a>, event: &'a Event) -> Outcome {
        let Some(place) = batch.enter(event, "narrow").await else { return Outcome::Untried };
        let under_way = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
        let outcome = if under_way > 4 {
            self.refused.fetch_add(1, Ordering::SeqCst);
            Outcome::Down {
                error: "503".to_owned(),
                retry_after: None,
                credentials: false,
                cause: Cause::Unknown,
            }
        } else {
            self.delivered.lock().unwrap().push(event.id);
            Outcome::Delivered
        };
        place.leave(&outcome);
        outcome
    }
}

#[async_trait]
impl Sink for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }

    fn destination<'a>(&'a self, _: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed("narrow")
    }

    fn only_destination(&self) -> Option<&str> {
        Some("narrow")
    }

    fn enters_each(&self) -> bool {
        true
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let calls = batch.events.iter().map(|event| self.send(&batch, event));
        futures_util::future::join_all(calls).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}

async fn an_overloaded_destination_gets_fewer_at_once_and_no_event_pays_for_it(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), Arc::new(Narrow::default()));
    append_orders(&db, "order", 1_000).await;
    let preset = Preset { batch: 100, max_retries: 1_000, ..quick_preset() };
    let outbox = OutboxConfig::new(db.outbox.clone(), preset, sink.clone());
    // With several batches in flight before the first answer, all but a few events would be
    // refused.
    let outbox = OutboxConfig { batches_max: 1, ..outbox };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    eventually("all arrive", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    let refused = sink.refused.load(Ordering::SeqCst);
    // About 190; without a window 830, with a window that also doubles after a cut 600.
    assert!(refused < 300, "{refused} were refused on the way of 1,000");
    assert_eq!(db.count("_dlq").await, 0);
    db.assert_balanced().await;
}

async fn a_destination_that_says_429_is_left_alone_as_long_as_it_asks(db: TestDb) {
    let receiver = Receiver::start(|_| {
        Reply::Full(429, vec![("retry-after", "1800".to_owned())], String::new())
    })
    .await;
    let folder = TempFolder::new();
    let settings = HttpSettings { host_concurrency_max: 16, ..settings(receiver.url("/x")) };
    let sink = Arc::new(HttpSink::new(settings).unwrap());
    append_orders(&db, "order", 100).await;
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink);
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    receiver.until("it refuses", |received| received.requests.len() >= 5).await;
    let processing = "SELECT count(*) FROM orders_outbox WHERE status = 'PROCESSING'";
    let waiting = "SELECT count(*) FROM orders_outbox WHERE next_retry_at IS NOT NULL";
    let settled = async || {
        let none = db.integer(processing).await == 0 && db.integer(waiting).await > 0;
        none.then_some(())
    };
    eventually("what was under way waits", settled).await;
    relay.stop().await;
    let requests = receiver.received().requests.len();
    assert!(requests <= 48, "three batches that were under way at most: {requests}");
    assert_eq!(db.count("_attempts").await, 0, "a rate limit is not a failure");
    assert_eq!(db.count("").await, 100);
    // Another relay would be asked to wait as well; this one must not have asked again.
    db.assert_balanced().await;
}

async fn a_rate_limit_holds_for_any_sink(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.append(&(1..=60).map(order).collect::<Vec<_>>()).await;
    let outbox = OutboxConfig {
        rate: Some(Arc::new(RateLimit::new(50.0, 10).unwrap())),
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let started = Instant::now();
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.until_delivered(60).await;
    let took = started.elapsed();
    relay.stop().await;
    assert!(took >= Duration::from_millis(990), "60 at 50/s after a burst of 10: {took:?}");
    assert_eq!(sink.log().delivered().len(), 60, "and each of them once");
    db.assert_balanced().await;
}
