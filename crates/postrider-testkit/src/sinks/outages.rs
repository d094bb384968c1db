//! Cases with a server that goes down.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{Batch, Outcome, Sink};
use postrider_store::Event;
use tokio::sync::watch;
use tokio::time::Instant;

use super::steps::{arrived, assert_complete_and_in_order};
use super::{Destination, deliver, events_of_keys, settings_name};
use crate::{PATIENCE, eventually};

/// Timeout of a call, short enough that a test sees several calls fail.
const CALL: Duration = Duration::from_secs(2);
/// Time between batches: enough batches for a server to fail in the middle of one, but not a flood.
const PACE: Duration = Duration::from_millis(5);
const KEYS: i64 = 7;
const BATCH: i64 = 20;

/// No event is blamed, and the same sink delivers once the server is up.
pub async fn a_server_that_is_down_at_the_start_costs_nothing_but_time<D: Destination>(
    destination: &D,
) {
    destination.stop().await;
    let (sink, events) = (destination.sink(), events_of_keys(1, 30, KEYS));
    let started = Instant::now();
    let outcomes = sink.deliver(Batch::new(&events, started + CALL)).await;
    assert!(started.elapsed() < CALL + Duration::from_secs(2), "the deadline holds");
    assert!(matches!(outcomes[0], Outcome::Down { credentials: false, .. }), "{:?}", outcomes[0]);
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Down { .. } | Outcome::Untried), "{outcome:?}");
    }
    destination.start().await;
    eventually("the same sink delivers", async || {
        let outcomes = sink.deliver(Batch::new(&events, Instant::now() + CALL)).await;
        outcomes.iter().all(|outcome| *outcome == Outcome::Delivered).then_some(())
    })
    .await;
    arrived(destination, 30).await;
}

/// The error contains a hint for the operator.
pub async fn a_check_names_the_sink_whose_server_is_down<D: Destination>(destination: &D) {
    let sink = destination.sink();
    sink.check().await.unwrap();
    destination.stop().await;
    let error = sink.check().await.expect_err("the server is down").to_string();
    assert!(error.contains(&settings_name()) && error.contains("check `"), "{error}");
}

/// A normal restart.
pub async fn a_server_stopped_in_the_middle_loses_nothing_and_keeps_order<D: Destination>(
    destination: &D,
) {
    let stream = Stream::start(destination.sink());
    stream.until_delivered(200).await;
    destination.stop().await;
    destination.start().await;
    stream.goes_on().await;
    let events = stream.finish().await;
    assert_complete_and_in_order(&events, &arrived(destination, events.len()).await);
}

/// A crash: answers are lost, and connections are not closed.
pub async fn a_server_killed_in_the_middle_loses_nothing_and_keeps_order<D: Destination>(
    destination: &D,
) {
    let stream = Stream::start(destination.sink());
    stream.until_delivered(200).await;
    destination.kill().await;
    destination.start().await;
    stream.goes_on().await;
    let events = stream.finish().await;
    assert_complete_and_in_order(&events, &arrived(destination, events.len()).await);
}

/// Like at a stop of the relay: the call is dropped while it waits for the server.
pub async fn a_call_dropped_in_an_outage_does_not_disturb_the_next_one<D: Destination>(
    destination: &D,
) {
    let (sink, events) = (destination.sink(), events_of_keys(1, 30, KEYS));
    let before = events_of_keys(100, 5, KEYS);
    assert_eq!(deliver(&*sink, &before, true).await, vec![Outcome::Delivered; 5]);
    destination.stop().await;
    let call = sink.deliver(Batch::new(&events, Instant::now() + PATIENCE).in_order(true));
    // Either the call returns that the server is down, or it is dropped while it waits.
    drop(tokio::time::timeout(Duration::from_millis(300), call).await);
    destination.start().await;
    let mut waiting = events.clone();
    eventually("what was given back is delivered", async || {
        deliver_in_order(&*sink, &mut waiting).await;
        waiting.is_empty().then_some(())
    })
    .await;
    let all: Vec<Event> = events.into_iter().chain(before).collect();
    let arrived = arrived(destination, all.len()).await;
    assert_complete_and_in_order(&all[..30], &arrived_of(&all[..30], arrived));
}

fn arrived_of(events: &[Event], mut arrived: Vec<super::Arrived>) -> Vec<super::Arrived> {
    arrived.retain(|message| events.iter().any(|event| event.event_id == message.event_id));
    arrived
}

/// Makes one call; undelivered events stay, in order.
async fn deliver_in_order(sink: &dyn Sink, waiting: &mut Vec<Event>) -> usize {
    let batch: Vec<Event> = waiting.iter().take(100).cloned().collect();
    let call = Batch::new(&batch, Instant::now() + CALL).in_order(true);
    let mut outcomes = sink.deliver(call).await.into_iter();
    let before = waiting.len();
    waiting.retain(|event| match outcomes.next() {
        Some(Outcome::Rejected { error, .. }) => panic!("{} was rejected: {error}", event.id),
        Some(Outcome::Retry { error }) => panic!("{} was charged: {error}", event.id),
        outcome => outcome != Some(Outcome::Delivered),
    });
    before - waiting.len()
}

/// An endless sequence of events, delivered like by a relay: in order, and again until each is
/// acknowledged.
struct Stream {
    delivered: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Vec<Event>>,
}

impl Stream {
    fn start(sink: Arc<dyn Sink>) -> Self {
        let (progress, delivered) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let (mut all, mut waiting) = (Vec::new(), Vec::new());
            let mut pace = tokio::time::interval(PACE);
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            while !*stopped.borrow() || !waiting.is_empty() {
                pace.tick().await;
                if waiting.len() < 100 && !*stopped.borrow() {
                    let first = i64::try_from(all.len()).unwrap() + 1;
                    let more = events_of_keys(first, BATCH, KEYS);
                    all.extend(more.clone());
                    waiting.extend(more);
                }
                let delivered = deliver_in_order(&*sink, &mut waiting).await;
                progress.send_modify(|total| *total += delivered);
            }
            all
        });
        Self { delivered, stop, task }
    }

    async fn until_delivered(&self, events: usize) {
        let mut delivered = self.delivered.clone();
        let seen = tokio::time::timeout(PATIENCE, delivered.wait_for(|n| *n >= events)).await;
        assert!(matches!(seen, Ok(Ok(_))), "{events} events were not delivered in {PATIENCE:?}");
    }

    async fn goes_on(&self) {
        let now = *self.delivered.borrow();
        self.until_delivered(now + 200).await;
    }

    async fn finish(self) -> Vec<Event> {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it drains").expect("no panic")
    }
}
