//! Claim mode `lanes` with one relay: order per key, and what happens to a key that fails.

use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{Backoff, FailingKey, OutboxConfig, Preset};
use postrider_store::{ClaimMode, Event, Key};
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

on_each_store!(
    events_of_a_key_arrive_in_order_through_retries,
    a_failing_key_blocks_nobody_else_and_goes_on_when_its_head_is_dead,
    a_parked_key_stops_until_an_operator_releases_it,
    a_key_is_parked_behind_an_event_that_fails_its_integrity_check,
    a_skipped_event_is_overtaken_by_those_behind_it,
    an_event_that_is_not_due_holds_back_its_key_only,
    an_outage_spends_no_attempt_and_breaks_no_order,
    a_relay_that_stops_in_the_middle_leaves_the_rest_in_order_for_the_next,
    a_lease_lost_in_the_middle_loses_nothing_and_breaks_no_order,
    a_head_that_an_operator_removed_lets_its_key_go_on,
    a_sink_that_panics_spends_attempts_and_breaks_no_order,
    nothing_is_written_before_an_event_is_settled,
);

pub(crate) fn of_key(key: &str, event_type: &str) -> NewEvent {
    NewEvent::new("account", key, event_type, "{}")
}

/// Returns `each` events for each of `keys` keys, in turn.
pub(crate) fn in_turn(keys: usize, each: usize) -> Vec<NewEvent> {
    (0..keys * each).map(|n| of_key(&format!("key-{}", n % keys), "Moved")).collect()
}

/// Appends as fast as the sink accepts, until it is stopped.
pub(crate) struct Traffic {
    stop: CancellationToken,
    task: JoinHandle<usize>,
}

impl Traffic {
    pub(crate) fn start(db: &TestDb, sink: &Arc<ScriptedSink>) -> Self {
        let (db, sink, stop) = (db.clone(), Arc::clone(sink), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut appended = 0;
            while !stopped.is_cancelled() {
                appended += db.append(&in_turn(25, 4)).await.len();
                // Some events are always in flight.
                sink.until_delivered(appended - 50).await;
            }
            appended
        });
        Self { stop, task }
    }

    /// Returns how many events were appended.
    pub(crate) async fn stop(self) -> usize {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

pub(crate) async fn use_lanes(db: &TestDb) {
    db.store.set_mode(&db.outbox, ClaimMode::Lanes, "test").await.unwrap();
}

fn relay(db: &TestDb, folder: &TempFolder, sink: &std::sync::Arc<ScriptedSink>) -> RunningRelay {
    RunningRelay::quick(db, folder, sink)
}

/// Returns a preset with enough attempts that nothing dies.
fn patient() -> Preset {
    Preset { max_retries: 100, ..quick_preset() }
}

async fn events_of_a_key_arrive_in_order_through_retries(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&in_turn(7, 40)).await;
    // Each event fails once or twice, at different times, or not at all.
    let script = |event: &Event, tries: usize| match i64::try_from(tries).unwrap() <= event.id % 3 {
        true => Act::retry("not yet"),
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let relay = RunningRelay::with_preset(&db, &folder, &sink, patient());
    sink.until_delivered(ids.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(sink.log().delivered().len(), ids.len(), "each once");
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
    db.assert_balanced().await;
}

async fn a_failing_key_blocks_nobody_else_and_goes_on_when_its_head_is_dead(db: TestDb) {
    use_lanes(&db).await;
    let head = db.append(&[of_key("bad", "Poison")]).await[0];
    let behind = db.append(&vec![of_key("bad", "Moved"); 100]).await;
    let good = db.append(&in_turn(5, 20)).await;
    let script = move |event: &Event, _| match event.id == head {
        true => Act::retry("always"),
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let wait = Duration::from_secs(1);
    let backoff = Backoff { first: wait, factor: 1.0, max: wait, jitter: 0.0 };
    let slow = Preset { backoff, max_retries: 2, ..quick_preset() };
    let relay = RunningRelay::with_preset(&db, &folder, &sink, slow);
    sink.until_delivered(good.len()).await;
    let early: Vec<i64> = sink.log().delivered();
    assert!(early.iter().all(|id| !behind.contains(id)), "the key waits: {early:?}");
    let blocked = eventually("the key is shown as blocked", async || {
        let blocked = db.store.blocked_keys(&db.outbox, 10, 200_000).await.unwrap();
        (!blocked.is_empty()).then_some(blocked)
    })
    .await;
    assert_eq!((blocked[0].head_id, blocked[0].waiting), (Some(head), 100));
    sink.until_delivered(good.len() + behind.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(sink.log().tries(head), 2);
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 1));
    db.assert_balanced().await;
}

async fn a_parked_key_stops_until_an_operator_releases_it(db: TestDb) {
    use_lanes(&db).await;
    let head = db.append(&[of_key("bad", "Poison")]).await[0];
    let behind = db.append(&vec![of_key("bad", "Moved"); 100]).await;
    let good = db.append(&in_turn(3, 5)).await;
    let script = move |event: &Event, _| match event.id == head {
        true => Act::reject("never"),
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let start = || {
        let outbox = OutboxConfig {
            failing_key: FailingKey::Park,
            ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
        };
        RunningRelay::on(&db.store, quick_config(&folder), outbox)
    };
    let relay = start();
    eventually("the head is dead", async || (db.count("_dlq").await == 1).then_some(())).await;
    sink.until_delivered(good.len()).await;
    relay.stop().await;
    // The key is stopped in the database, so another relay finds it stopped.
    let relay = start();
    let more = db.append(&in_turn(3, 5)).await;
    sink.until_delivered(good.len() + more.len()).await;
    assert!(sink.log().delivered().iter().all(|id| !behind.contains(id)), "it stays parked");
    let blocked = db.store.blocked_keys(&db.outbox, 10, 200_000).await.unwrap();
    assert!(blocked.len() == 1 && blocked[0].parked && blocked[0].waiting == 100, "{blocked:?}");
    let key = Key { aggregate_type: "account".to_owned(), aggregate_id: "bad".to_owned() };
    db.store.release_key(&db.outbox, &key, "olga").await.unwrap();
    sink.until_delivered(good.len() + more.len() + behind.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(db.count("").await, 0);
}

/// The event is never sent, and those behind it are in the same batch.
async fn a_key_is_parked_behind_an_event_that_fails_its_integrity_check(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&vec![of_key("bad", "Moved"); 3]).await;
    let forge = format!("UPDATE orders_outbox SET payload = '[]' WHERE id = {}", ids[0]);
    db.execute(&forge).await;
    let good = db.append(&in_turn(2, 2)).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let outbox = OutboxConfig {
        failing_key: FailingKey::Park,
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    eventually("it is dead", async || (db.count("_dlq").await == 1).then_some(())).await;
    sink.until_delivered(good.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().distinct(), good.len(), "those behind it stay");
    assert_eq!(db.count("").await, 2);
}

async fn a_skipped_event_is_overtaken_by_those_behind_it(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&vec![of_key("one", "Moved"); 20]).await;
    let first = ids[0];
    let script = move |event: &Event, tries: usize| match event.id == first && tries < 3 {
        true => Act::retry("not yet"),
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let outbox = OutboxConfig {
        failing_key: FailingKey::Skip,
        ..OutboxConfig::new(db.outbox.clone(), patient(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.until_delivered(ids.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [first], "only the one that failed is late");
    assert_eq!(db.count("").await, 0);
}

async fn an_event_that_is_not_due_holds_back_its_key_only(db: TestDb) {
    use_lanes(&db).await;
    let later = of_key("later", "Moved").deliver_after(Duration::from_millis(1500));
    let before = db.append(&[of_key("later", "Moved")]).await;
    let waiting = db.append(&[later, of_key("later", "Moved")]).await;
    let others = [before, db.append(&in_turn(3, 3)).await].concat();
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relay = relay(&db, &folder, &sink);
    sink.until_delivered(others.len()).await;
    assert!(sink.log().delivered().iter().all(|id| !waiting.contains(id)), "a waiting head waits");
    sink.until_delivered(others.len() + 2).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
}

async fn an_outage_spends_no_attempt_and_breaks_no_order(db: TestDb) {
    use_lanes(&db).await;
    let (folder, up) =
        (TempFolder::new(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let is_up = std::sync::Arc::clone(&up);
    let script = move |_: &Event, _| match is_up.load(std::sync::atomic::Ordering::SeqCst) {
        true => Act::DELIVER,
        false => Act::down("unreachable"),
    };
    let sink = ScriptedSink::scripted(script).to_one_destination().shared();
    let ids = db.append(&in_turn(10, 10)).await;
    let relay = relay(&db, &folder, &sink);
    sink.until("a number of probes fail", |log| log.answers.len() > 12).await;
    up.store(true, std::sync::atomic::Ordering::SeqCst);
    sink.until_delivered(ids.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!((db.count("").await, db.count("_dlq").await), (0, 0));
}

async fn a_relay_that_stops_in_the_middle_leaves_the_rest_in_order_for_the_next(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&in_turn(6, 50)).await;
    let (folder, pace) = (TempFolder::new(), Duration::from_millis(1));
    let sink = ScriptedSink::delivering().paced(pace).shared();
    for part in 1..=3 {
        let relay = relay(&db, &folder, &sink);
        sink.until_delivered(ids.len() * part / 4).await;
        relay.stop().await;
        assert_eq!(
            db.integer("SELECT count(*) FROM postrider_lanes WHERE owner IS NOT NULL").await,
            0
        );
        let crashes = "SELECT sum(crash_count) FROM postrider_lanes";
        assert_eq!(
            db.integer(&format!("SELECT ({crashes}) + 0")).await,
            0,
            "a stop is not a crash"
        );
    }
    let relay = relay(&db, &folder, &sink);
    sink.until_delivered(ids.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(sink.log().delivered().len(), ids.len(), "a stop finishes what is in flight");
    assert_eq!(db.count("").await, 0);
}

/// The relay is fenced while its events are in flight.
async fn a_lease_lost_in_the_middle_loses_nothing_and_breaks_no_order(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&in_turn(6, 50)).await;
    let (folder, pace) = (TempFolder::new(), Duration::from_millis(1));
    let sink = ScriptedSink::delivering().paced(pace).shared();
    let relay = relay(&db, &folder, &sink);
    for part in 1..=3 {
        sink.until_delivered(ids.len() * part / 4).await;
        db.execute("UPDATE postrider_relays SET epoch = epoch + 1, fenced = true").await;
    }
    sink.until_delivered(ids.len()).await;
    eventually("all are settled", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    db.assert_balanced().await;
}

async fn a_head_that_an_operator_removed_lets_its_key_go_on(db: TestDb) {
    use_lanes(&db).await;
    let head = db.append(&[of_key("bad", "Poison")]).await[0];
    let behind = db.append(&vec![of_key("bad", "Moved"); 10]).await;
    let script = move |event: &Event, _| match event.id == head {
        true => Act::retry("always"),
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let relay = RunningRelay::with_preset(
        &db,
        &folder,
        &sink,
        Preset { max_retries: 1000, ..quick_preset() },
    );
    sink.until("the head was tried", |log| log.tries(head) > 1).await;
    // Repeated until the row is not in flight and stays gone.
    eventually("it is removed", async || {
        db.execute(&format!("DELETE FROM orders_outbox WHERE id = {head}")).await;
        let left = format!("SELECT count(*) FROM orders_outbox WHERE id = {head}");
        (db.integer(&left).await == 0).then_some(())
    })
    .await;
    sink.until_delivered(behind.len()).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
}

async fn a_sink_that_panics_spends_attempts_and_breaks_no_order(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&in_turn(4, 10)).await;
    let worst = ids[13];
    let script = move |event: &Event, _| match event.id == worst {
        true => Act::Panic,
        false => Act::DELIVER,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::scripted(script).shared());
    let relay = relay(&db, &folder, &sink);
    sink.until_delivered(ids.len() - 1).await;
    eventually("it is dead", async || (db.count("_dlq").await == 1).then_some(())).await;
    relay.stop().await;
    assert_eq!(sink.log().out_of_order(), [0; 0]);
    assert_eq!(db.count("").await, 0);
    db.assert_balanced().await;
}

/// This makes lanes fast: a row in flight is unchanged since its insert.
async fn nothing_is_written_before_an_event_is_settled(db: TestDb) {
    use_lanes(&db).await;
    let ids = db.append(&in_turn(3, 3)).await;
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    let relay = relay(&db, &folder, &sink);
    sink.until("a call is under way", |log| log.calls_now > 0).await;
    let touched = "SELECT count(*) FROM orders_outbox WHERE version <> 0 OR locked_by IS NOT NULL";
    assert_eq!(db.integer(touched).await, 0);
    sink.open();
    sink.until_delivered(ids.len()).await;
    relay.stop().await;
    assert_eq!(db.count("").await, 0);
}
