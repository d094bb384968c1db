//! A broker that is killed while a relay drains an outbox in lanes: nothing lost, no order broken.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider::store::{ClaimMode, StoreKind};
use postrider_relay::{OutboxConfig, Preset, RateLimit};
use postrider_testkit::relay::{RunningRelay, quick_config, quick_preset};
use postrider_testkit::sinks::{
    Arrived, Destination, KafkaDestination, NatsDestination, RabbitDestination,
};
use postrider_testkit::{TempFolder, TestDb, eventually};

const KEYS: usize = 20;
const EVENTS: usize = 4_000;

#[tokio::test(flavor = "multi_thread")]
async fn kafka_killed_during_a_drain_in_lanes_loses_nothing_and_breaks_no_order() {
    killed_during_a_drain::<KafkaDestination>("relay_outage::kafka").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_killed_during_a_drain_in_lanes_loses_nothing_and_breaks_no_order() {
    killed_during_a_drain::<RabbitDestination>("relay_outage::rabbitmq").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_killed_during_a_drain_in_lanes_loses_nothing_and_breaks_no_order() {
    killed_during_a_drain::<NatsDestination>("relay_outage::nats").await;
}

async fn killed_during_a_drain<D: Destination>(test: &str) {
    let Some(db) = TestDb::open(StoreKind::Postgres, test).await else { return };
    let Some(destination) = D::private(test).await else { return };
    db.store.set_mode(&db.outbox, ClaimMode::Lanes, "test").await.unwrap();
    let mut ids = HashMap::new();
    for chunk in 0..EVENTS / 500 {
        let events: Vec<NewEvent> = (0..500)
            .map(|n| {
                let key = format!("key-{}", (chunk * 500 + n) % KEYS);
                NewEvent::new("account", key, "OrderPlaced", "{}")
            })
            .collect();
        for id in db.append(&events).await {
            let event = db.event(id).await.unwrap();
            ids.insert(event.event_id, (event.aggregate_id, id));
        }
    }
    let (folder, sink) = (TempFolder::new(), destination.sink());
    // Held back, so that the broker dies with most of them still to come.
    let rate = RateLimit::new(800.0, 50).map(Arc::new).unwrap();
    let preset = Preset { batch: 50, idle_poll: Duration::from_millis(200), ..quick_preset() };
    let outbox = OutboxConfig {
        rate: Some(rate),
        deliver_timeout: Duration::from_secs(5),
        ..OutboxConfig::new(db.outbox.clone(), preset, sink)
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    let left = async || usize::try_from(db.count("").await).unwrap();
    eventually("a part is delivered", async || (left().await < EVENTS - 500).then_some(())).await;
    destination.kill().await;
    let at_the_kill = left().await;
    assert!(at_the_kill > 0, "it was killed in the middle");
    destination.start().await;
    eventually("all are delivered", async || (left().await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(db.count("_dlq").await, 0, "an outage spends no attempts");
    assert_in_order(&ids, &destination.arrived().await);
    db.assert_balanced().await;
}

/// Of all copies the first of each event counts.
fn assert_in_order(ids: &HashMap<String, (String, i64)>, arrived: &[Arrived]) {
    let (mut seen, mut newest) = (HashSet::new(), HashMap::new());
    for message in arrived {
        let (key, id) = &ids[&message.event_id];
        if seen.insert(*id) {
            let last = newest.entry(key).or_insert(0);
            assert!(id > last, "key {key}: {id} after {last}");
            *last = *id;
        }
    }
    assert_eq!(seen.len(), ids.len(), "nothing is lost");
}
