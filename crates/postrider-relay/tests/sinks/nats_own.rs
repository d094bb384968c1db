//! Tests specific to the NATS sink: subjects, streams, TLS.

use postrider_relay::{
    Cause, Outcome, Sink,
    sinks::{NatsSettings, NatsSink},
};
use postrider_store::Event;
use postrider_testkit::{
    relay::held_event,
    sinks::{Destination, NatsDestination, deliver, events_of_keys},
    skip,
};

async fn stream(test: &str) -> Option<NatsDestination> {
    NatsDestination::shared(&format!("{}::{test}", module_path!())).await
}

fn sink(settings: NatsSettings) -> NatsSink {
    NatsSink::new(settings).expect("settings in order")
}

/// A configuration error: no event becomes a dead letter because of it, and `run --check` finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_configured_subject_that_no_stream_takes_is_down_and_named() {
    let Some(stream) = stream("missing").await else { return };
    let sink = sink(NatsSettings { subject: Some("no.such".to_owned()), ..stream.settings() });
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("under-test") && error.contains("`no.such`"), "{error}");
    assert!(error.contains("`subject`"), "{error}");
    let outcomes = deliver(&sink, &events_of_keys(1, 20, 20), false).await;
    let not_charged =
        |outcome: &Outcome| matches!(outcome, Outcome::Down { cause: Cause::Destination, .. });
    assert!(outcomes.iter().all(not_charged), "{outcomes:?}");
    stream.remove().await;
}

/// An error of these events: the others arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_subject_that_an_event_makes_and_no_stream_takes_is_a_rejection_of_that_event() {
    let Some(stream) = stream("templated").await else { return };
    let template = stream.name.replace("test-", "{aggregate_type}-") + ".{event_type}";
    let sink = sink(NatsSettings { subject: Some(template), ..stream.settings() });
    let event = |id, of: &str| Event { aggregate_type: of.to_owned(), ..held_event(id) };
    let events = [event(1, "test"), event(2, "nobody"), event(3, "a b"), event(4, "test")];
    let outcomes = deliver(&sink, &events, false).await;
    assert_eq!([&outcomes[0], &outcomes[3]], [&Outcome::Delivered; 2]);
    let Outcome::Rejected { error, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(error.contains("no stream"), "{error}");
    let Outcome::CannotEncode { error } = &outcomes[2] else { panic!("{outcomes:?}") };
    assert!(error.contains("no spaces"), "{error}");
    stream.remove().await;
}

/// Headers that control a stream would let an event empty it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_cannot_give_orders_to_the_stream() {
    let Some(stream) = stream("orders").await else { return };
    let sink = sink(stream.settings());
    let orders = r#"{"Nats-Rollup":"all","Nats-Expected-Last-Sequence":"99","note":"a\nb"}"#;
    let event = Event { headers: Some(orders.to_owned()), ..held_event(1) };
    assert_eq!(deliver(&sink, &[event], false).await, [Outcome::Delivered]);
    let headers = stream.arrived().await.remove(0).headers;
    assert!(!headers.contains_key("nats-rollup"), "{headers:?}");
    assert_eq!(headers["note"], "a%0Ab", "a header is one line");
    stream.remove().await;
}

/// Larger than the server accepts at all: known before it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_servers_limit_is_rejected() {
    let Some(stream) = stream("payload").await else { return };
    let sink = sink(stream.settings());
    let large = Event { payload: "x".repeat(2_000_000), ..held_event(1) };
    let outcomes = deliver(&sink, &[large, held_event(2)], false).await;
    assert!(matches!(outcomes[0], Outcome::Rejected { .. }), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
    stream.remove().await;
}

/// A line of the protocol has a limit; a longer one makes the server close the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_subject_longer_than_a_line_is_a_rejection_of_that_event() {
    let Some(stream) = stream("long").await else { return };
    let sink = sink(stream.settings());
    let long = |id, length| Event { event_type: "x".repeat(length), ..held_event(id) };
    let mut events = events_of_keys(1, 50, 5);
    events[20] = long(21, 5_000);
    // The server accepts the longest allowed subject.
    events[21] = long(22, 3_900 - stream.name.len() - 1);
    events[22] = long(23, 3_900 - stream.name.len());
    let outcomes = deliver(&sink, &events, false).await;
    for (index, outcome) in outcomes.iter().enumerate() {
        match index {
            20 | 22 => {
                assert!(matches!(outcome, Outcome::CannotEncode { .. }), "{index}: {outcome:?}")
            }
            _ => assert_eq!(*outcome, Outcome::Delivered, "event {index}"),
        }
    }
    stream.remove().await;
}

/// JetStream stores up to 64 KiB of headers.
#[tokio::test(flavor = "multi_thread")]
async fn headers_larger_than_a_stream_takes_are_a_rejection_of_that_event() {
    let Some(stream) = stream("headers").await else { return };
    let sink = sink(stream.settings());
    let note = |id, length| Event {
        headers: Some(serde_json::json!({ "note": "x".repeat(length) }).to_string()),
        ..held_event(id)
    };
    let outcomes =
        deliver(&sink, &[note(1, 70_000), note(2, 2_000_000), held_event(3)], false).await;
    assert!(matches!(outcomes[0], Outcome::Rejected { .. }), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Rejected { .. }), "{outcomes:?}");
    assert_eq!(outcomes[2], Outcome::Delivered);
    stream.remove().await;
}

/// Otherwise anyone who can append could purge streams through `$JS.API`, or answer requests of
/// others.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_cannot_name_a_subject_of_the_server() {
    let Some(stream) = stream("own").await else { return };
    let sink = sink(NatsSettings { subject: Some("{event_type}".to_owned()), ..stream.settings() });
    let purge = format!("$JS.API.STREAM.PURGE.{}", stream.name);
    let to = |id, subject: &str| Event { event_type: subject.to_owned(), ..held_event(id) };
    let kept = to(1, &format!("{}.kept", stream.name));
    assert_eq!(deliver(&sink, &[kept], false).await, [Outcome::Delivered]);
    for subject in [purge.as_str(), "_INBOX.someone.1"] {
        let outcomes = deliver(&sink, &[to(2, subject)], false).await;
        assert!(matches!(outcomes[0], Outcome::CannotEncode { .. }), "{subject}: {outcomes:?}");
    }
    assert_eq!(stream.arrived().await.len(), 1, "nothing was purged");
    let template = Some("$JS.{event_type}".to_owned());
    assert!(NatsSink::new(NatsSettings { subject: template, ..stream.settings() }).is_err());
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_delivers() {
    let Some(stream) = stream("trusted").await else { return };
    let Ok(ca) = std::env::var("NATS_CA") else {
        return skip("nats_own: TLS", "NATS_CA is not set");
    };
    let url = stream.url.replace("nats://", "tls://");
    let sink = sink(NatsSettings { url, ca: Some(ca.into()), ..stream.settings() });
    sink.check().await.unwrap();
    let events = events_of_keys(1, 5, 5);
    assert_eq!(deliver(&sink, &events, false).await, vec![Outcome::Delivered; 5]);
    assert_eq!(stream.arrived().await.len(), 5);
    stream.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_tls_is_named_with_its_setting() {
    let Some(stream) = stream("tls").await else { return };
    let url = stream.url.replace("nats://", "tls://");
    let error = sink(NatsSettings { url, ..stream.settings() }).check().await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("under-test") && error.contains("check `"), "{error}");
    stream.remove().await;
}
