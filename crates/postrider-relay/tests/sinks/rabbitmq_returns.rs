//! Messages that no queue takes, among others that arrive: each is distinguished from its
//! neighbours.

use std::collections::HashSet;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Preset};
use postrider_store::{ClaimMode, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    relay::{RunningRelay, quick_config, quick_preset},
    sinks::{Destination, RabbitDestination, RabbitQueue},
};

/// Set it to try more events than a test has time for: `POSTRIDER_TEST_RETURNS=200000`.
const EVENTS_VARIABLE: &str = "POSTRIDER_TEST_RETURNS";
const EVENTS: usize = 4_000;
const KEYS: usize = 199;
/// One in this many has a routing key that nothing is bound to.
const UNROUTABLE_EVERY: usize = 20;
const UNROUTABLE: &str = "NobodyTakesIt";

#[tokio::test(flavor = "multi_thread")]
async fn rows_to_a_transient_queue() {
    returns_are_attributed(ClaimMode::Rows, RabbitQueue::Transient).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_to_a_durable_queue() {
    returns_are_attributed(ClaimMode::Rows, RabbitQueue::Durable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_to_a_quorum_queue() {
    returns_are_attributed(ClaimMode::Rows, RabbitQueue::Quorum).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_to_a_transient_queue() {
    returns_are_attributed(ClaimMode::Lanes, RabbitQueue::Transient).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_to_a_durable_queue() {
    returns_are_attributed(ClaimMode::Lanes, RabbitQueue::Durable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_to_a_quorum_queue() {
    returns_are_attributed(ClaimMode::Lanes, RabbitQueue::Quorum).await;
}

/// Every event that no queue takes becomes a dead letter, no other does, and the queue has the
/// rest.
async fn returns_are_attributed(mode: ClaimMode, queue: RabbitQueue) {
    let test = format!("rabbitmq_returns::{mode:?}::{queue:?}");
    let Some(db) = TestDb::open(StoreKind::Postgres, &test).await else { return };
    let Some(exchange) = RabbitDestination::with_queue(&test, queue).await else { return };
    db.store.set_mode(&db.outbox, mode, "test").await.unwrap();
    let asked = std::env::var(EVENTS_VARIABLE).ok().and_then(|count| count.parse().ok());
    let events: usize = asked.unwrap_or(EVENTS);
    for first in (0..events).step_by(1_000) {
        let some: Vec<NewEvent> = (first..events.min(first + 1_000)).map(event).collect();
        db.append(&some).await;
    }
    let folder = TempFolder::new();
    let preset = Preset { batch: 500, ..quick_preset() };
    let outbox = OutboxConfig::new(db.outbox.clone(), preset, exchange.sink());
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    let mut left = i64::MAX;
    while left > 0 {
        let before = left;
        left = eventually("events are settled", async || {
            Some(db.count("").await).filter(|left| *left < before)
        })
        .await;
    }
    relay.stop().await;
    let unroutable = events.div_ceil(UNROUTABLE_EVERY);
    let arrived = exchange.arrived().await;
    let types: HashSet<&str> =
        arrived.iter().map(|message| message.headers["postrider-event-type"].as_str()).collect();
    assert_eq!(types, HashSet::from(["OrderPlaced"]));
    let ids: HashSet<&str> = arrived.iter().map(|message| message.event_id.as_str()).collect();
    let innocent = db.count(&format!("_dlq WHERE event_type <> '{UNROUTABLE}'")).await;
    let returned = db.count(&format!("_dlq WHERE event_type = '{UNROUTABLE}'")).await;
    println!(
        "{mode:?}, {queue:?}: {events} events, {returned} of {unroutable} unroutable ones and \
         {innocent} others are dead letters, the queue has {} messages of {} events",
        arrived.len(),
        ids.len()
    );
    assert_eq!(innocent, 0, "delivered events became dead letters");
    assert_eq!(usize::try_from(returned).unwrap(), unroutable, "the others are lost");
    assert_eq!(ids.len(), events - unroutable);
    assert_eq!(arrived.len(), ids.len(), "no message is there twice");
    db.assert_balanced().await;
    exchange.remove().await;
}

fn event(number: usize) -> NewEvent {
    let event_type =
        if number.is_multiple_of(UNROUTABLE_EVERY) { UNROUTABLE } else { "OrderPlaced" };
    NewEvent::new("account", format!("key-{}", number % KEYS), event_type, "{}")
}
