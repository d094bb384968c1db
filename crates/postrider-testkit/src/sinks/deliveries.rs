//! Cases with a server that is up.

use std::time::Duration;

use postrider_relay::{Batch, Outcome};
use postrider_store::Event;
use tokio::time::Instant;

use super::steps::{arrived, assert_complete_and_in_order, identities};
use super::{Destination, deliver, events_of_keys};
use crate::PATIENCE;
use crate::relay::held_event;

/// Each event arrives once.
pub async fn a_batch_arrives_and_every_event_is_acknowledged<D: Destination>(destination: &D) {
    let (sink, events) = (destination.sink(), events_of_keys(1, 100, 100));
    assert_eq!(deliver(&*sink, &events, false).await, vec![Outcome::Delivered; 100]);
    let arrived = arrived(destination, 100).await;
    assert_eq!(arrived.len(), 100);
    for event in &events {
        let message = arrived.iter().find(|message| message.event_id == event.event_id);
        assert_eq!(message.map(|message| &message.payload), Some(&event.payload));
    }
}

/// Order is kept within a batch, and from one batch to the next.
pub async fn events_of_a_key_arrive_in_order<D: Destination>(destination: &D) {
    let (sink, events) = (destination.sink(), events_of_keys(1, 600, 7));
    for batch in events.chunks(200) {
        assert_eq!(deliver(&*sink, batch, true).await, vec![Outcome::Delivered; 200]);
    }
    assert_complete_and_in_order(&events, &arrived(destination, 600).await);
}

/// A relay has several batches in flight.
pub async fn calls_at_the_same_time_do_not_disturb_each_other<D: Destination>(destination: &D) {
    let sink = destination.sink();
    let batches: Vec<_> = (0..5).map(|n| events_of_keys(n * 100 + 1, 100, 100)).collect();
    let calls = batches.iter().map(|batch| deliver(&*sink, batch, false));
    for outcomes in futures_util::future::join_all(calls).await {
        assert_eq!(outcomes, vec![Outcome::Delivered; 100]);
    }
    assert_eq!(arrived(destination, 500).await.len(), 500);
}

/// The event's own headers, including its trace context, and Postrider's headers arrive.
pub async fn identity_context_and_own_headers_arrive_intact<D: Destination>(destination: &D) {
    let event = Event {
        headers: Some(
            r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracestate":"a=1","region":"Zürich","n":5}"#
                .to_owned(),
        ),
        content_hash: Some("a1b2".to_owned()),
        ..held_event(1)
    };
    let sink = destination.sink();
    assert_eq!(deliver(&*sink, std::slice::from_ref(&event), false).await, [Outcome::Delivered]);
    let headers = arrived(destination, 1).await.remove(0).headers;
    for (name, value) in [
        ("postrider-event-id", event.event_id.as_str()),
        ("postrider-event-type", "OrderPlaced"),
        ("postrider-aggregate-type", "order"),
        ("postrider-aggregate-id", "order-1"),
        ("postrider-content-hash", "a1b2"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=1"),
        ("region", "Zürich"),
        ("n", "5"),
    ] {
        assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
    }
}

/// Consumers detect repeats by the event id.
pub async fn an_event_cannot_forge_its_identity<D: Destination>(destination: &D) {
    let forged = r#"{"postrider-event-id":"x","Postrider-Event-Id":"x","nats-msg-id":"x"}"#;
    let event = Event { headers: Some(forged.to_owned()), ..held_event(1) };
    let sink = destination.sink();
    assert_eq!(deliver(&*sink, std::slice::from_ref(&event), false).await, [Outcome::Delivered]);
    assert_eq!(arrived(destination, 1).await[0].headers["postrider-event-id"], event.event_id);
}

/// Line ends, quotes, four-byte characters, and an empty payload.
pub async fn payloads_of_any_text_arrive_unchanged<D: Destination>(destination: &D) {
    let texts = ["", "{}", "a\r\n\t\"b\"\\", "Grüße, 世界 🚀", "  spaced  "];
    let event = |(id, text): (i64, &&str)| Event { payload: (*text).to_owned(), ..held_event(id) };
    let events: Vec<Event> = (1..).zip(&texts).map(event).collect();
    let sink = destination.sink();
    assert_eq!(deliver(&*sink, &events, false).await, vec![Outcome::Delivered; texts.len()]);
    let arrived = arrived(destination, texts.len()).await;
    for event in events {
        let message = arrived.iter().find(|message| message.event_id == event.event_id).unwrap();
        assert_eq!(message.payload, event.payload);
    }
}

/// Together with small ones.
pub async fn a_payload_of_the_largest_size_arrives<D: Destination>(destination: &D) {
    let mut events = events_of_keys(1, 3, 3);
    events[1].payload = "x".repeat(D::CAPABILITIES.payload_bytes_max);
    let sink = destination.sink();
    assert_eq!(deliver(&*sink, &events, false).await, vec![Outcome::Delivered; 3]);
    let arrived = arrived(destination, 3).await;
    assert!(arrived.iter().any(|message| message.payload == events[1].payload));
}

/// Programs that insert rows by hand may write any text into the column.
pub async fn an_event_without_usable_headers_is_rejected_alone<D: Destination>(destination: &D) {
    let mut events = events_of_keys(1, 3, 3);
    events[1].headers = Some("no JSON".to_owned());
    let sink = destination.sink();
    let outcomes = deliver(&*sink, &events, false).await;
    assert!(matches!(outcomes[1], Outcome::CannotEncode { .. }), "{outcomes:?}");
    assert_eq!([&outcomes[0], &outcomes[2]], [&Outcome::Delivered; 2]);
    assert_eq!(arrived(destination, 2).await.len(), 2);
}

/// Partial failure: the refusal concerns one event of many.
pub async fn a_refused_event_is_rejected_and_the_others_arrive<D: Destination>(destination: &D) {
    let mut events = events_of_keys(1, 50, 5);
    events[20] = destination.refused(events[20].clone());
    let sink = destination.sink();
    let outcomes = deliver(&*sink, &events, false).await;
    for (index, outcome) in outcomes.iter().enumerate() {
        match (index, outcome) {
            (20, Outcome::Rejected { error, .. }) => assert!(!error.is_empty()),
            (20, other) => panic!("the refused event: {other:?}"),
            (_, outcome) => assert_eq!(*outcome, Outcome::Delivered, "event {index}"),
        }
    }
    let arrived = arrived(destination, 49).await;
    assert!(!identities(&arrived).contains(events[20].event_id.as_str()));
    // The sink continues normally.
    let next = events_of_keys(100, 10, 5);
    assert_eq!(deliver(&*sink, &next, false).await, vec![Outcome::Delivered; 10]);
}

/// With order kept, the call returns `Untried` for held-back events, and the next call delivers
/// them.
pub async fn behind_a_refused_event_its_key_waits_and_other_keys_go_on<D: Destination>(
    destination: &D,
) {
    let mut events = events_of_keys(1, 50, 5);
    events[20] = destination.refused(events[20].clone());
    let (sink, mut rejected, mut rounds) = (destination.sink(), 0, 0);
    let mut waiting = events.clone();
    while !waiting.is_empty() {
        let outcomes = deliver(&*sink, &waiting, true).await;
        let position = |id: i64| waiting.iter().position(|event| event.id == id);
        if let Some(refused) = position(events[20].id) {
            let behind = waiting.iter().zip(&outcomes).skip(refused + 1);
            for (event, outcome) in behind.filter(|(event, _)| event.key() == events[20].key()) {
                assert_eq!(*outcome, Outcome::Untried, "event {} is behind", event.id);
            }
        }
        rejected += outcomes.iter().filter(|o| matches!(o, Outcome::Rejected { .. })).count();
        let mut outcomes = outcomes.into_iter();
        waiting.retain(|_| outcomes.next() == Some(Outcome::Untried));
        rounds += 1;
        assert!(rounds <= 10, "{} events never get their turn", waiting.len());
    }
    assert_eq!(rejected, 1);
    events.remove(20);
    assert_complete_and_in_order(&events, &arrived(destination, 49).await);
}

/// It is in the middle of a batch, which must not fail with it.
pub async fn a_part_that_is_too_large_is_refused_and_the_others_arrive<D: Destination>(
    destination: &D,
) {
    let sink = destination.sink();
    for (keep_order, first) in [(false, 1), (true, 101)] {
        let mut events = events_of_keys(first, 30, 30);
        let Some(large) = destination.oversize(events[15].clone()) else { return };
        events[15] = large;
        let outcomes = deliver(&*sink, &events, keep_order).await;
        for (index, outcome) in outcomes.iter().enumerate() {
            match index {
                15 => assert!(
                    matches!(outcome, Outcome::CannotEncode { .. } | Outcome::Rejected { .. }),
                    "{outcome:?}"
                ),
                _ => assert_eq!(*outcome, Outcome::Delivered, "event {index}"),
            }
        }
    }
    assert_eq!(arrived(destination, 58).await.len(), 58);
}

/// Another relay may be delivering them by then.
pub async fn past_the_deadline_nothing_is_sent<D: Destination>(destination: &D) {
    let (sink, events) = (destination.sink(), events_of_keys(1, 10, 10));
    let late = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(sink.deliver(Batch::new(&events, late)).await, vec![Outcome::Untried; 10]);
    let after = events_of_keys(100, 1, 1);
    assert_eq!(deliver(&*sink, &after, false).await, [Outcome::Delivered]);
    let arrived = arrived(destination, 1).await;
    assert_eq!(identities(&arrived), identities(&arrived[..1]), "only the one that was in time");
}

/// The answer was lost, so the relay sends the event again.
pub async fn a_repeated_event_arrives_as_declared<D: Destination>(destination: &D) {
    let (sink, event) = (destination.sink(), events_of_keys(1, 1, 1));
    for _ in 0..2 {
        assert_eq!(deliver(&*sink, &event, false).await, [Outcome::Delivered]);
    }
    let after = events_of_keys(2, 1, 1);
    assert_eq!(deliver(&*sink, &after, false).await, [Outcome::Delivered]);
    let copies = if D::CAPABILITIES.recognises_repeats { 1 } else { 2 };
    assert_eq!(arrived(destination, 2).await.len(), copies + 1);
}

/// The relay closes a sink after the last call.
pub async fn what_was_acknowledged_is_there_after_closing<D: Destination>(destination: &D) {
    let (sink, events) = (destination.sink(), events_of_keys(1, 200, 20));
    assert_eq!(deliver(&*sink, &events, false).await, vec![Outcome::Delivered; 200]);
    tokio::time::timeout(PATIENCE, sink.close()).await.expect("closing ends");
    drop(sink);
    assert_eq!(destination.arrived().await.len(), 200);
}

/// The check of `postrider run --check`.
pub async fn a_check_passes_where_everything_is_in_order<D: Destination>(destination: &D) {
    destination.sink().check().await.unwrap();
}
