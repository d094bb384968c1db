//! An event that makes its server close the connection while everything else is in flight on it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{
    Cause, OutboxConfig, Outcome, Preset, Sink,
    sinks::{NatsSettings, NatsSink, RabbitSettings, RabbitSink},
};
use postrider_store::{ClaimMode, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, Tripwire, eventually,
    relay::{RunningRelay, quick_config, quick_preset},
    sinks::{Destination, NatsDestination, RabbitDestination, deliver, events_of_keys},
};

/// The text at which the server closes the connection.
const MARKED: &str = "this-breaks-the-connection";

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_sent_the_poison_alone_before_anything_is_charged() {
    let Some(stream) = NatsDestination::shared("poison::nats::alone").await else { return };
    let wire = Tripwire::before(host(&stream.url), MARKED).await;
    only_the_poison_is_charged(&*nats(&stream, &wire), &stream).await;
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_is_sent_the_poison_alone_before_anything_is_charged() {
    let Some(exchange) = RabbitDestination::shared("poison::rabbitmq::alone").await else { return };
    let wire = Tripwire::before(host(&exchange.url), MARKED).await;
    only_the_poison_is_charged(&*rabbitmq(&exchange, &wire), &exchange).await;
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_rows_die_alone() {
    let Some(stream) = NatsDestination::shared("poison::nats::rows").await else { return };
    let wire = Tripwire::before(host(&stream.url), MARKED).await;
    the_poison_dies_alone(ClaimMode::Rows, nats(&stream, &wire), &stream, &wire).await;
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_rows_die_alone() {
    let Some(exchange) = RabbitDestination::shared("poison::rabbitmq::rows").await else { return };
    let wire = Tripwire::before(host(&exchange.url), MARKED).await;
    the_poison_dies_alone(ClaimMode::Rows, rabbitmq(&exchange, &wire), &exchange, &wire).await;
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_lanes_die_alone() {
    let Some(exchange) = RabbitDestination::shared("poison::rabbitmq::lanes").await else { return };
    let wire = Tripwire::before(host(&exchange.url), MARKED).await;
    the_poison_dies_alone(ClaimMode::Lanes, rabbitmq(&exchange, &wire), &exchange, &wire).await;
    exchange.remove().await;
}

/// Returns `host:port` of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

fn nats(stream: &NatsDestination, wire: &Tripwire) -> Arc<dyn Sink> {
    let settings = stream.settings();
    Arc::new(NatsSink::new(NatsSettings { url: wire.url(&settings.url), ..settings }).unwrap())
}

fn rabbitmq(exchange: &RabbitDestination, wire: &Tripwire) -> Arc<dyn Sink> {
    let settings = exchange.settings();
    Arc::new(RabbitSink::new(RabbitSettings { url: wire.url(&settings.url), ..settings }).unwrap())
}

/// Within one call, with and without order.
async fn only_the_poison_is_charged(sink: &dyn Sink, destination: &impl Destination) {
    let mut poisons = HashSet::new();
    for (keep_order, first) in [(false, 1), (true, 101)] {
        let mut events = events_of_keys(first, 60, 20);
        events[33].payload = MARKED.to_owned();
        poisons.insert(events[33].event_id.clone());
        let outcomes = deliver(sink, &events, keep_order).await;
        for (index, outcome) in outcomes.iter().enumerate() {
            match index {
                33 => assert!(
                    matches!(outcome, Outcome::Down { cause: Cause::Unknown, .. }),
                    "the poison: {outcome:?}"
                ),
                53 if keep_order => assert_eq!(*outcome, Outcome::Untried, "behind the poison"),
                _ => assert_eq!(*outcome, Outcome::Delivered, "event {index}"),
            }
        }
    }
    let arrived = destination.arrived().await;
    let ids: HashSet<&str> = arrived.iter().map(|message| message.event_id.as_str()).collect();
    assert_eq!(ids.len(), 59 + 58);
    assert!(!poisons.iter().any(|poison| ids.contains(poison.as_str())));
}

/// With traffic before, next to and after it: it spends its attempts, and no other event does.
async fn the_poison_dies_alone(
    mode: ClaimMode,
    sink: Arc<dyn Sink>,
    destination: &impl Destination,
    wire: &Tripwire,
) {
    let Some(db) = TestDb::open(StoreKind::Postgres, "poison").await else { return };
    db.store.set_mode(&db.outbox, mode, "test").await.unwrap();
    let event = |number: usize, payload: &str| {
        NewEvent::new("account", format!("key-{}", number % 40), "OrderPlaced", payload)
    };
    let innocent = |count: usize| (0..count).map(|number| event(number, "{}")).collect::<Vec<_>>();
    let mut events = innocent(200);
    events.insert(100, event(100, MARKED));
    db.append(&events).await;
    let (folder, preset) = (TempFolder::new(), Preset { batch: 50, ..quick_preset() });
    let outbox = OutboxConfig {
        deliver_timeout: Duration::from_secs(10),
        ..OutboxConfig::new(db.outbox.clone(), preset, sink)
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    let mut others = 200;
    // It is charged only if its destination accepted others since its previous attempt.
    eventually("the poison is a dead letter", async || {
        db.append(&innocent(40)).await;
        others += 40;
        (db.count("_dlq").await > 0).then_some(())
    })
    .await;
    eventually("all others are delivered", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    let innocents = format!("_dlq WHERE payload <> '{MARKED}'");
    assert_eq!(db.count(&innocents).await, 0, "innocent events died with it");
    assert_eq!(db.count("_dlq").await, 1);
    let dead = format!("(SELECT event_id FROM {}_dlq)", db.outbox.table());
    let spent = db.count(&format!("_attempts WHERE event_id NOT IN {dead}")).await;
    assert_eq!(spent, 0, "innocent events spent attempts");
    assert!(wire.broken() >= 3, "it was sent as often as it may be");
    let ids: HashSet<String> =
        destination.arrived().await.into_iter().map(|message| message.event_id).collect();
    assert_eq!(ids.len(), others);
    db.assert_balanced().await;
}
