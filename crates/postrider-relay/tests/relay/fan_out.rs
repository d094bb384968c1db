//! One outbox, several sinks.

use std::sync::Arc;

use postrider::NewEvent;
use postrider_relay::{BranchSettings, FanOut, OutboxConfig, Preset, Relay};
use postrider_store::{ClaimMode, Dedupe, Event, OnSuccess};
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    copies_of_a_key_are_in_the_order_of_their_originals,
    a_branch_that_fails_does_not_touch_the_other_and_order_is_kept_in_both,
    an_event_that_no_branch_takes_is_a_dead_letter_of_its_own_outbox,
);

/// The child's ids are assigned when the parent's events are settled, and many settles run at once.
/// No relay serves the child, so its rows stay for inspection.
async fn copies_of_a_key_are_in_the_order_of_their_originals(db: TestDb) {
    const EVENTS: usize = 30_000;
    let folder = TempFolder::new();
    let child = db.add_outbox(Dedupe::default()).await;
    for outbox in [&child, &db.outbox] {
        db.store.set_mode(outbox, ClaimMode::Lanes, "test").await.unwrap();
    }
    let branch = BranchSettings {
        outbox: child.clone(),
        event_type: None,
        aggregate_type: None,
        filter: None,
    };
    // The type contains the position, zero-padded because it is compared as text.
    let event =
        |n: usize| NewEvent::new("account", format!("key-{}", n % 3), format!("{n:06}"), "{}");
    let events: Vec<NewEvent> = (0..EVENTS).map(event).collect();
    for batch in events.chunks(1_000) {
        db.append(batch).await;
    }
    let fan_out = Arc::new(FanOut::new("branches", &[branch]).unwrap());
    let outbox = OutboxConfig::fanned_out(db.outbox.clone(), Preset::broker(), fan_out);
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    let copies = format!("SELECT count(*) FROM {}", child.table());
    let all_copied = async || (db.integer(&copies).await == EVENTS as i64).then_some(());
    eventually("all are copied", all_copied).await;
    relay.stop().await;
    let inversions = format!(
        "SELECT count(*) FROM (SELECT event_type, lag(event_type) OVER \
         (PARTITION BY aggregate_id ORDER BY id) AS before_it FROM {}) AS copied \
         WHERE event_type < before_it",
        child.table()
    );
    assert_eq!(db.integer(&inversions).await, 0);
}

async fn a_branch_that_fails_does_not_touch_the_other_and_order_is_kept_in_both(db: TestDb) {
    let folder = TempFolder::new();
    let good = ScriptedSink::delivering().shared();
    let bad = ScriptedSink::scripted(|event: &Event, _| match event.event_type.as_str() {
        "Poison" => Act::reject("never"),
        _ => Act::DELIVER,
    });
    let bad = bad.shared();
    let children = [db.add_outbox(Dedupe::default()).await, db.add_outbox(Dedupe::default()).await];
    for outbox in children.iter().chain([&db.outbox]) {
        db.store.set_mode(outbox, ClaimMode::Lanes, "test").await.unwrap();
    }
    let branch = |index: usize, filter: Option<&str>| BranchSettings {
        outbox: children[index].clone(),
        event_type: None,
        aggregate_type: None,
        filter: filter.map(str::to_owned),
    };
    let branches = [branch(0, None), branch(1, Some("payload.copy == true"))];
    let fan_out = Arc::new(FanOut::new("branches", &branches).unwrap());
    let preset = Preset { on_success: OnSuccess::Delete, ..quick_preset() };
    let relay = Relay::new(db.store.clone(), quick_config(&folder))
        .outbox(OutboxConfig::fanned_out(db.outbox.clone(), preset.clone(), fan_out))
        .outbox(OutboxConfig::new(children[0].clone(), preset.clone(), good.clone()))
        .outbox(OutboxConfig::new(children[1].clone(), preset, bad.clone()));
    let relay = RunningRelay::start(relay);
    let event = |n: usize| {
        let event_type = if n == 7 { "Poison" } else { "Moved" };
        let payload = format!(r#"{{"copy": {}}}"#, n % 2 == 1);
        NewEvent::new("account", format!("key-{}", n % 3), event_type, payload)
    };
    db.append(&(0..60).map(event).collect::<Vec<_>>()).await;
    good.until_delivered(60).await;
    bad.until_delivered(29).await;
    let dead = db.clone().with_outbox(children[1].clone());
    let one_dead = format!("SELECT count(*) FROM {}_dlq", children[1].table());
    eventually("it is dead", async || (db.integer(&one_dead).await == 1).then_some(())).await;
    relay.stop().await;
    for sink in [&good, &bad] {
        assert_eq!(sink.log().out_of_order(), [0; 0]);
    }
    assert_eq!((good.log().delivered().len(), bad.log().delivered().len()), (60, 29));
    assert_eq!(db.count("_dlq").await, 0, "the parent is not touched");
    db.assert_balanced().await;
    dead.assert_balanced().await;
}

async fn an_event_that_no_branch_takes_is_a_dead_letter_of_its_own_outbox(db: TestDb) {
    let folder = TempFolder::new();
    let child = db.add_outbox(Dedupe::default()).await;
    let branch = BranchSettings {
        outbox: child.clone(),
        event_type: Some("Order*".to_owned()),
        aggregate_type: None,
        filter: None,
    };
    let fan_out = Arc::new(FanOut::new("branches", &[branch]).unwrap());
    let outbox = OutboxConfig::fanned_out(db.outbox.clone(), quick_preset(), fan_out);
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    db.append(&[NewEvent::new("user", "1", "UserJoined", "{}")]).await;
    db.append_orders(1).await;
    eventually("it is dead", async || (db.count("_dlq").await == 1).then_some(())).await;
    let copies = format!("SELECT count(*) FROM {}", child.table());
    eventually("the other is copied", async || (db.integer(&copies).await == 1).then_some(()))
        .await;
    relay.stop().await;
    let reason = db.text("SELECT reason FROM orders_outbox_dlq").await;
    assert_eq!(reason.as_deref(), Some("no_route"));
    db.assert_balanced().await;
}
