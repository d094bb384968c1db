//! Tests specific to the RabbitMQ sink: exchanges, routing keys, logins.

use postrider_relay::{
    Cause, Outcome, Sink,
    sinks::{RabbitSettings, RabbitSink},
};
use postrider_store::Event;
use postrider_testkit::{
    TlsFront,
    relay::held_event,
    sinks::{Destination, RabbitDestination, deliver, events_of_keys},
};

async fn exchange(test: &str) -> Option<RabbitDestination> {
    RabbitDestination::shared(&format!("{}::{test}", module_path!())).await
}

fn sink(settings: RabbitSettings) -> RabbitSink {
    RabbitSink::new(settings).expect("settings in order")
}

/// A configuration error: no event becomes a dead letter because of it, and `run --check` finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_configured_exchange_that_does_not_exist_is_down_and_named() {
    let Some(exchange) = exchange("missing").await else { return };
    let sink = sink(RabbitSettings { exchange: "no-such".to_owned(), ..exchange.settings() });
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("under-test") && error.contains("`no-such`"), "{error}");
    assert!(error.contains("`exchange`"), "{error}");
    let outcomes = deliver(&sink, &events_of_keys(1, 20, 20), false).await;
    let not_charged =
        |outcome: &Outcome| matches!(outcome, Outcome::Down { cause: Cause::Destination, .. });
    assert!(outcomes.iter().all(not_charged), "{outcomes:?}");
    exchange.remove().await;
}

/// An error of these events: the others of the call arrive, on the same channel.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_an_event_names_and_nobody_declared_is_a_rejection_of_that_event() {
    let Some(exchange) = exchange("templated").await else { return };
    let template = exchange.name.replace("test-", "{aggregate_type}-");
    let sink = sink(RabbitSettings { exchange: template, ..exchange.settings() });
    let event = |id, of: &str| Event { aggregate_type: of.to_owned(), ..held_event(id) };
    let events = [event(1, "test"), event(2, "nobody"), event(3, "test")];
    let outcomes = deliver(&sink, &events, false).await;
    assert_eq!([&outcomes[0], &outcomes[2]], [&Outcome::Delivered; 2]);
    let Outcome::Rejected { error, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(error.contains("nobody-"), "{error}");
    exchange.remove().await;
}

/// The name of a queue is a routing key of the default exchange.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_exchange_leads_to_a_queue_by_its_name() {
    let Some(exchange) = exchange("default").await else { return };
    let sink = sink(RabbitSettings {
        exchange: String::new(),
        routing_key: Some(exchange.name.clone()),
        ..exchange.settings()
    });
    sink.check().await.unwrap();
    let outcomes = deliver(&sink, &events_of_keys(1, 3, 3), false).await;
    assert_eq!(outcomes, vec![Outcome::Delivered; 3]);
    assert_eq!(exchange.arrived().await.len(), 3);
    exchange.remove().await;
}

/// AMQP stores the length of a routing key in one byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_routing_key_that_is_too_long_is_a_rejection_of_that_event() {
    let Some(exchange) = exchange("long").await else { return };
    let sink = sink(exchange.settings());
    let long = Event { event_type: "世".repeat(100), ..held_event(1) };
    let outcomes = deliver(&sink, &[long, held_event(2)], false).await;
    let Outcome::CannotEncode { error } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("300 bytes") && error.contains("255"), "{error}");
    assert_eq!(outcomes[1], Outcome::Delivered);
    exchange.remove().await;
}

fn with_header(id: i64, name: &str, value: &str) -> Event {
    Event { headers: Some(serde_json::json!({ name: value }).to_string()), ..held_event(id) }
}

/// AMQP does not split the frame that holds the headers; a larger one closes the connection.
#[tokio::test(flavor = "multi_thread")]
async fn headers_larger_than_a_frame_are_a_rejection_of_that_event() {
    let Some(exchange) = exchange("frame").await else { return };
    let sink = sink(exchange.settings());
    let mut events = events_of_keys(1, 50, 5);
    events[20] = with_header(21, "note", &"x".repeat(200_000));
    let outcomes = deliver(&sink, &events, false).await;
    let Outcome::CannotEncode { error } = &outcomes[20] else { panic!("{:?}", outcomes[20]) };
    let numbers: Vec<usize> =
        error.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [bytes, bytes_max] = numbers[..] else { panic!("{error}") };
    assert!(outcomes.iter().filter(|outcome| **outcome == Outcome::Delivered).count() == 49);
    // Exact to the byte: the largest header that fits is accepted, and one more byte is not.
    let fitting = 200_000 - (bytes - bytes_max);
    let events = [fitting, fitting + 1].map(|length| with_header(22, "note", &"x".repeat(length)));
    let outcomes = deliver(&sink, &events, false).await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert!(matches!(outcomes[1], Outcome::CannotEncode { .. }), "{outcomes:?}");
    assert_eq!(exchange.arrived().await.len(), 50);
    exchange.remove().await;
}

/// The broker closes the channel because of one message, which must not affect the others on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_closes_its_channel_does_not_hold_back_the_others() {
    let Some(exchange) = exchange("channel").await else { return };
    let internal = exchange.add_internal_exchange().await;
    let template = exchange.name.replace("test-", "{aggregate_type}-");
    let sink = sink(RabbitSettings { exchange: template, ..exchange.settings() });
    let of = internal.split_once('-').unwrap().0;
    let mut events = events_of_keys(1, 50, 5);
    events.iter_mut().for_each(|event| event.aggregate_type = "test".to_owned());
    events[20].aggregate_type = of.to_owned();
    let outcomes = deliver(&sink, &events, false).await;
    for (index, outcome) in outcomes.iter().enumerate() {
        match index {
            20 => {
                assert!(matches!(outcome, Outcome::Down { credentials: true, .. }), "{outcome:?}")
            }
            _ => assert_eq!(*outcome, Outcome::Delivered, "event {index}"),
        }
    }
    exchange.remove().await;
}

/// Otherwise anyone who can append could reach every queue of the broker.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_cannot_route_itself_to_further_queues() {
    let Some(exchange) = exchange("carbon").await else { return };
    let sink = sink(exchange.settings());
    let events = [with_header(1, "CC", "x"), with_header(2, "BCC", "x"), with_header(3, "cc", "x")];
    assert_eq!(deliver(&sink, &events, false).await, vec![Outcome::Delivered; 3]);
    let arrived = exchange.arrived().await;
    let kept = arrived.iter().filter(|message| message.headers.contains_key("cc")).count();
    assert_eq!((arrived.len(), kept), (3, 1), "only the one that means nothing to the broker");
    exchange.remove().await;
}

/// Reported by `run --check` at the start, later as an alert; never as a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_or_vhost_is_named_without_being_shown() {
    let Some(exchange) = exchange("password").await else { return };
    for url in [
        exchange.url.replace("postrider@", "hunter2@"),
        exchange.url.replace("%2f", "no-such-vhost-hunter2"),
    ] {
        let sink = sink(RabbitSettings { url, ..exchange.settings() });
        let error = sink.check().await.unwrap_err().to_string();
        assert!(error.contains("under-test") && error.contains("`url`"), "{error}");
        assert!(!error.contains(":hunter2"), "{error}");
        let outcomes = deliver(&sink, &events_of_keys(1, 2, 2), false).await;
        assert!(matches!(outcomes[0], Outcome::Down { credentials: true, .. }), "{outcomes:?}");
    }
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_delivers() {
    let Some(exchange) = exchange("trusted").await else { return };
    let (before, rest) = exchange.url.split_once('@').unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    let front = TlsFront::before(address).await;
    let url = format!("{before}@{}/{path}", front.address()).replace("amqp://", "amqps://");
    let sink = sink(RabbitSettings { url, ca: Some(front.ca()), ..exchange.settings() });
    sink.check().await.unwrap();
    let events = events_of_keys(1, 5, 5);
    assert_eq!(deliver(&sink, &events, false).await, vec![Outcome::Delivered; 5]);
    assert_eq!(exchange.arrived().await.len(), 5);
    exchange.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_tls_is_named_with_its_setting() {
    let Some(exchange) = exchange("tls").await else { return };
    let url = exchange.url.replace("amqp://", "amqps://");
    let error = sink(RabbitSettings { url, ..exchange.settings() }).check().await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("under-test") && error.contains("`tls`"), "{error}");
    exchange.remove().await;
}
