//! Sinks that misbehave, and events that always fail.

use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Outcome, Preset};
use postrider_store::{DeadReason, Event};
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

const HOUR: Duration = Duration::from_secs(3600);

on_each_store!(
    a_sink_that_panics_spends_an_attempt_and_the_relay_lives,
    a_sink_that_answers_the_wrong_number_spends_an_attempt,
    a_call_that_fails_as_a_whole_costs_only_the_event_that_broke_it,
    a_sink_that_ignores_its_deadline_counts_as_down,
    a_poison_event_among_good_ones_dies_and_they_do_not,
    a_lone_poison_event_spends_nothing_until_the_outage_lasts_too_long,
    many_poison_events_do_not_starve_what_comes_after_them,
    an_outage_spends_no_attempt_and_all_come_back,
    a_rejected_event_is_dead_at_once,
);

fn poison() -> NewEvent {
    NewEvent::new("order", "poisoned", "Poison", "{}")
}

fn is_poison(event: &Event) -> bool {
    event.event_type == "Poison"
}

/// Returns reason and attempts of the only dead letter.
async fn the_dead(db: &TestDb) -> (Option<DeadReason>, i64) {
    let dead = async |column: &str| format!("SELECT {column} FROM orders_outbox_dlq");
    eventually("there is a dead letter", async || (db.count("_dlq").await > 0).then_some(())).await;
    assert_eq!(db.count("_dlq").await, 1);
    let reason = db.text(&dead("reason").await).await.and_then(|text| text.parse().ok());
    (reason, db.integer(&dead("retry_count").await).await)
}

async fn misbehaving(db: TestDb, act: Act) {
    let script = move |event: &Event, _| if is_poison(event) { act.clone() } else { Act::DELIVER };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    db.append(&[poison()]).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    assert_eq!(the_dead(&db).await, (Some(DeadReason::Exhausted), 3));
    db.append_orders(3).await;
    sink.until_delivered(3).await;
    relay.stop().await;
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

async fn a_sink_that_panics_spends_an_attempt_and_the_relay_lives(db: TestDb) {
    misbehaving(db, Act::Panic).await;
}

async fn a_sink_that_answers_the_wrong_number_spends_an_attempt(db: TestDb) {
    misbehaving(db, Act::Miscount).await;
}

/// Nine good events share every batch with one that breaks the call.
async fn a_call_that_fails_as_a_whole_costs_only_the_event_that_broke_it(db: TestDb) {
    for act in [Act::Panic, Act::Miscount] {
        db.execute("DELETE FROM orders_outbox_dlq").await;
        let script =
            move |event: &Event, _| if is_poison(event) { act.clone() } else { Act::DELIVER };
        let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
        let mut events: Vec<_> = (1..=9).map(order).collect();
        events.insert(4, poison());
        db.append(&events).await;
        let relay = RunningRelay::quick(&db, &folder, &sink);
        assert_eq!(the_dead(&db).await, (Some(DeadReason::Exhausted), 3));
        sink.until_delivered(9).await;
        relay.stop().await;
        assert_eq!((db.count("").await, db.count("_dlq").await), (0, 1));
    }
    let blamed = "SELECT count(DISTINCT event_id) FROM orders_outbox_attempts";
    assert_eq!(db.integer(blamed).await, 2, "one a round");
}

async fn a_sink_that_ignores_its_deadline_counts_as_down(db: TestDb) {
    let script = |_: &_, tries| if tries == 1 { Act::Hang } else { Act::DELIVER };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let id = db.append_orders(1).await[0];
    let config = OutboxConfig {
        deliver_timeout: Duration::from_millis(100),
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), config);
    sink.until("the sink hangs", |log| log.calls_now == 1).await;
    let released = async || {
        let error = db.column(id, "last_error").await.filter(|text| text.contains("no answer"));
        error.or_else(|| sink.log().answers.first().map(|_| String::new()))
    };
    eventually("the call is given up", released).await;
    sink.until_delivered(1).await;
    relay.stop().await;
    assert_eq!(db.count("_attempts").await, 0, "an outage spends no attempt");
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    db.assert_balanced().await;
}

/// The destination accepts others, so the event is the cause: a `Down` is charged.
async fn a_poison_event_among_good_ones_dies_and_they_do_not(db: TestDb) {
    let script =
        |event: &Event, _| if is_poison(event) { Act::down("timeout") } else { Act::DELIVER };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    db.append(&[order(1), poison(), order(2)]).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    let mut good = 2;
    eventually("the poison event is dead", async || {
        good += 1;
        db.append_orders(1).await;
        (db.count("_dlq").await == 1).then_some(())
    })
    .await;
    sink.until_delivered(good).await;
    relay.stop().await;
    assert_eq!(the_dead(&db).await, (Some(DeadReason::Exhausted), 3));
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

/// Alone, it looks like an outage: nothing is spent before `outage_max`.
async fn a_lone_poison_event_spends_nothing_until_the_outage_lasts_too_long(db: TestDb) {
    let (folder, sink) =
        (TempFolder::new(), ScriptedSink::scripted(|_, _| Act::down("timeout")).shared());
    let id = db.append(&[poison()]).await[0];
    let preset = |outage_max| Preset { outage_max, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset(HOUR));
    sink.until("ten tries", |log| log.tries(id) >= 10).await;
    relay.stop().await;
    assert_eq!(db.column(id, "retry_count").await.as_deref(), Some("0"), "an outage is free");

    let short = Duration::from_millis(500);
    let relay = RunningRelay::with_preset(&db, &folder, &sink, preset(short));
    assert_eq!(the_dead(&db).await, (Some(DeadReason::Exhausted), 3));
    relay.stop().await;
    db.assert_balanced().await;
}

/// There are so many of them that the destination counts as down. A later event still gets its turn
/// and is delivered, and from then on they are charged.
async fn many_poison_events_do_not_starve_what_comes_after_them(db: TestDb) {
    let script =
        |event: &Event, _| if is_poison(event) { Act::down("timeout") } else { Act::DELIVER };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    for _ in 0..10 {
        db.append(&[poison()]).await;
    }
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until("the destination counts as down", |log| log.answers.len() >= 20).await;
    db.append_orders(1).await;
    sink.until_delivered(1).await;
    relay.stop().await;
}

async fn an_outage_spends_no_attempt_and_all_come_back(db: TestDb) {
    let up = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_up = std::sync::Arc::clone(&up);
    let script = move |_: &_, _| match is_up.load(std::sync::atomic::Ordering::SeqCst) {
        true => Act::DELIVER,
        false => Act::down("503"),
    };
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(script).to_one_destination().shared();
    db.append_orders(60).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until("a batch fails", |log| log.answers.len() >= 10).await;
    let batches = sink.log().calls.len();
    sink.until("probes go on", |log| log.calls.len() >= batches + 5).await;
    let calls = sink.log().calls[batches + 2..].to_vec();
    assert!(calls.iter().all(|call| call.len() == 1), "one probe at a time: {calls:?}");
    assert!(calls.windows(2).all(|pair| pair[0] != pair[1]), "and they take turns: {calls:?}");
    up.store(true, std::sync::atomic::Ordering::SeqCst);
    sink.until_delivered(60).await;
    relay.stop().await;
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    assert_eq!(db.count("_attempts").await, 0, "an outage is free");
    db.assert_balanced().await;
}

async fn a_rejected_event_is_dead_at_once(db: TestDb) {
    let script = |event: &Event, _| match event.event_type.as_str() {
        "Poison" => Act::reject("HTTP 422"),
        "Nowhere" => Act::Answer(Outcome::NoRoute { error: "no handler".to_owned() }),
        _ => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let nowhere = NewEvent::new("order", "1", "Nowhere", "{}");
    let ids = db.append(&[poison(), nowhere, order(1)]).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    sink.until_delivered(1).await;
    eventually("both are dead", async || (db.count("_dlq").await == 2).then_some(())).await;
    relay.stop().await;
    for (id, reason, attempts) in [(ids[0], "rejected", 1), (ids[1], "no_route", 0)] {
        assert_eq!(sink.log().tries(id), 1);
        let of =
            |column| format!("SELECT {column} FROM orders_outbox_dlq WHERE original_id = {id}");
        assert_eq!(db.text(&of("reason")).await.as_deref(), Some(reason));
        assert_eq!(db.integer(&of("retry_count")).await, attempts);
    }
    db.assert_balanced().await;
}
