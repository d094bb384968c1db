//! Building blocks of the cases.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use postrider_relay::{Batch, Outcome, Sink};
use postrider_store::Event;
use tokio::time::Instant;

use super::{Arrived, Destination};
use crate::eventually;
use crate::relay::held_event;

/// Far more time than a delivery takes.
const PLENTY: Duration = Duration::from_secs(30);

/// Returns the name that a destination gives its sink.
pub fn settings_name() -> String {
    "under-test".to_owned()
}

/// Returns events with ids from `first` on, rotating through the keys.
pub fn events_of_keys(first: i64, count: i64, keys: i64) -> Vec<Event> {
    let event = |id: i64| Event {
        aggregate_id: format!("key-{}", id % keys),
        content_hash: Some(format!("{id:064x}")),
        ..held_event(id)
    };
    (first..first + count).map(event).collect()
}

/// Makes one call with enough time.
pub async fn deliver(sink: &dyn Sink, events: &[Event], keep_order: bool) -> Vec<Outcome> {
    let batch = Batch::new(events, Instant::now() + PLENTY).in_order(keep_order);
    let outcomes = sink.deliver(batch).await;
    assert_eq!(outcomes.len(), events.len(), "one outcome per event");
    outcomes
}

/// Makes one call with enough time, and asserts that it delivers everything.
pub async fn deliver_all(sink: &dyn Sink, events: &[Event]) {
    let outcomes = deliver(sink, events, true).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered), "{outcomes:?}");
}

/// Waits until this many different events have arrived, and returns everything that has.
pub(super) async fn arrived(destination: &impl Destination, events: usize) -> Vec<Arrived> {
    let what = format!("{events} different events are at their destination");
    eventually(&what, async || {
        let arrived = destination.arrived().await;
        (identities(&arrived).len() >= events).then_some(arrived)
    })
    .await
}

pub(super) fn identities(arrived: &[Arrived]) -> BTreeSet<&str> {
    arrived.iter().map(|message| message.event_id.as_str()).collect()
}

/// Asserts that every event has arrived, and that the first copies of each key ascend.
pub(super) fn assert_complete_and_in_order(events: &[Event], arrived: &[Arrived]) {
    let by_id: HashMap<&str, &Event> =
        events.iter().map(|event| (event.event_id.as_str(), event)).collect();
    let found = identities(arrived);
    let lost: Vec<i64> = events
        .iter()
        .filter(|event| !found.contains(event.event_id.as_str()))
        .map(|event| event.id)
        .collect();
    assert!(lost.is_empty(), "{} of {} were lost: {lost:?}", lost.len(), events.len());
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for message in arrived {
        let event = by_id[message.event_id.as_str()];
        if seen.insert(event.id) {
            let before = last.insert(&event.aggregate_id, event.id).unwrap_or_default();
            assert!(
                before < event.id,
                "{}: {} came before {}",
                event.aggregate_id,
                before,
                event.id
            );
        }
    }
}
