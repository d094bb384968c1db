//! Tests specific to the Kafka sink: topics, record batches, TLS and logins.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, RouteSettings, Sink,
    message::{EnvelopeSettings, Form},
    sinks::{KafkaSettings, KafkaSink, Sasl, Tls},
};
use postrider_store::Event;
use postrider_testkit::{
    relay::held_event,
    sinks::{Destination, KafkaDestination, deliver, events_of_keys},
    skip,
};
use tokio::time::Instant;

async fn topic(test: &str) -> Option<KafkaDestination> {
    KafkaDestination::shared(&format!("{}::{test}", module_path!())).await
}

fn sink(settings: KafkaSettings) -> KafkaSink {
    KafkaSink::new(settings).expect("settings in order")
}

/// Small record batches put many requests behind the refused one; all of them were in flight.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_refused_message_nothing_of_its_key_arrives_however_much_is_in_flight() {
    let Some(topic) = topic("in_flight").await else { return };
    let options = BTreeMap::from([("batch.num.messages".to_owned(), "5".to_owned())]);
    let sink = sink(KafkaSettings { options, ..topic.settings() });
    let mut events = events_of_keys(1, 2_000, 4);
    let refused = 300;
    events[refused] = topic.refused(events[refused].clone());
    let outcomes = deliver(&sink, &events, true).await;
    assert!(matches!(outcomes[refused], Outcome::Rejected { .. }), "{:?}", outcomes[refused]);
    let arrived = topic.arrived().await;
    let mut untried = 0;
    for (index, (event, outcome)) in events.iter().zip(&outcomes).enumerate() {
        let there = arrived.iter().any(|message| message.event_id == event.event_id);
        assert_eq!(there, *outcome == Outcome::Delivered, "event {index}: {outcome:?}");
        if index > refused && event.key() == events[refused].key() {
            assert_eq!(*outcome, Outcome::Untried, "event {index}");
            untried += 1;
        }
    }
    assert!(untried > 400, "{untried}");
    topic.remove().await;
}

/// The size is known before anything is sent, so there is no gap and nothing to resend.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_sinks_own_limit_is_rejected_by_name() {
    let Some(topic) = topic("own_limit").await else { return };
    let sink = sink(KafkaSettings { message_bytes_max: 2_000, ..topic.settings() });
    let mut events = events_of_keys(1, 4, 2);
    events[1].payload = "x".repeat(3_000);
    let outcomes = deliver(&sink, &events, true).await;
    let Outcome::CannotEncode { error } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(error.contains("message_bytes_max") && error.contains("2000"), "{error}");
    assert_eq!(outcomes[3], Outcome::Untried, "behind it");
    assert_eq!([&outcomes[0], &outcomes[2]], [&Outcome::Delivered; 2]);
    topic.remove().await;
}

/// A configuration error: no event becomes a dead letter because of it, and `run --check` finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_configured_topic_that_does_not_exist_is_down_and_named() {
    let Some(topic) = topic("missing").await else { return };
    let sink = sink(KafkaSettings { topic: Some("no-such-topic".to_owned()), ..topic.settings() });
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("under-test") && error.contains("no-such-topic"), "{error}");
    assert!(error.contains("`topic`"), "{error}");
    let outcomes = deliver(&sink, &events_of_keys(1, 20, 20), false).await;
    let Outcome::Down { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("no-such-topic"), "{error}");
    let downs = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Down { .. })).count();
    assert_eq!(downs, 5, "enough for a breaker; the others are not to blame: {outcomes:?}");
    topic.remove().await;
}

/// An error of these events: the others arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_an_event_names_and_nobody_made_is_a_rejection_of_that_event() {
    let Some(topic) = topic("templated").await else { return };
    let template = topic.topic.replace("test-", "{event_type}-");
    let sink = sink(KafkaSettings { topic: Some(template), ..topic.settings() });
    let event =
        |id, event_type: &str| Event { event_type: event_type.to_owned(), ..held_event(id) };
    let events = [event(1, "test"), event(2, "nobody"), event(3, "a b"), event(4, "test")];
    let outcomes = deliver(&sink, &events, false).await;
    assert_eq!([&outcomes[0], &outcomes[3]], [&Outcome::Delivered; 2]);
    let Outcome::Rejected { error, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(error.contains("does not exist"), "{error}");
    let Outcome::CannotEncode { error } = &outcomes[2] else { panic!("{outcomes:?}") };
    assert!(error.contains("ASCII"), "{error}");
    topic.remove().await;
}

/// Two topics are independent of each other: the second waits for the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_changes_its_topic_does_not_go_on_behind_a_failure() {
    let Some(topic) = topic("two_topics").await else { return };
    let route = RouteSettings {
        event_type: Some("Lost".to_owned()),
        to: "lost-{aggregate_type}".to_owned(),
        ..RouteSettings::default()
    };
    let sink = sink(KafkaSettings { routes: vec![route], ..topic.settings() });
    let mut events = events_of_keys(1, 6, 2);
    events[2].event_type = "Lost".to_owned();
    let outcomes = deliver(&sink, &events, true).await;
    assert!(matches!(outcomes[2], Outcome::Rejected { .. }), "{outcomes:?}");
    assert_eq!(outcomes[4], Outcome::Untried, "behind it");
    for index in [0, 1, 3, 5] {
        assert_eq!(outcomes[index], Outcome::Delivered, "event {index}");
    }
    assert_eq!(topic.arrived().await.len(), 4);
    topic.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cloudevents_travel_by_the_kafka_binding() {
    let Some(topic) = topic("cloudevents").await else { return };
    let envelope =
        EnvelopeSettings { form: Form::CloudEventsBinary, ..EnvelopeSettings::default() };
    let sink = sink(KafkaSettings { envelope, ..topic.settings() });
    let event = held_event(1);
    assert_eq!(deliver(&sink, std::slice::from_ref(&event), false).await, [Outcome::Delivered]);
    let headers = topic.arrived().await.remove(0).headers;
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", event.event_id.as_str()),
        ("ce_type", "OrderPlaced"),
        ("ce_source", "/order"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}: {headers:?}");
    }
    topic.remove().await;
}

/// At most 16 MiB wait in the producer; a larger batch waits for room.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_larger_than_the_queue_waits_for_room() {
    let Some(topic) = topic("queue").await else { return };
    let sink = sink(topic.settings());
    let mut events = events_of_keys(1, 60, 60);
    for event in &mut events {
        event.payload = "x".repeat(400_000);
    }
    assert_eq!(deliver(&sink, &events, false).await, vec![Outcome::Delivered; 60]);
    topic.remove().await;
}

fn secure(topic: &KafkaDestination, mechanism: &str, password: &str) -> Option<KafkaSettings> {
    let brokers = std::env::var("KAFKA_SECURE_BROKERS").ok();
    let ca = std::env::var("KAFKA_CA").ok();
    let (Some(brokers), Some(ca)) = (brokers, ca) else {
        skip("kafka_own: TLS and SASL", "KAFKA_SECURE_BROKERS or KAFKA_CA is not set");
        return None;
    };
    Some(KafkaSettings {
        brokers,
        tls: Some(Tls { ca: Some(PathBuf::from(ca)), ..Tls::default() }),
        sasl: Some(Sasl {
            mechanism: mechanism.to_owned(),
            username: "postrider".to_owned(),
            password: password.to_owned(),
            without_tls: false,
        }),
        ..topic.settings()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_both_kinds_of_login_deliver() {
    let Some(topic) = topic("secure").await else { return };
    for (first, mechanism) in [(1, "PLAIN"), (10, "SCRAM-SHA-256")] {
        let Some(settings) = secure(&topic, mechanism, "postrider") else { return };
        let sink = sink(settings);
        sink.check().await.unwrap();
        let events = events_of_keys(first, 5, 5);
        assert_eq!(deliver(&sink, &events, false).await, vec![Outcome::Delivered; 5]);
    }
    assert_eq!(topic.arrived().await.len(), 10);
    topic.remove().await;
}

/// Brokers that identify their clients by certificates.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_ours_is_shown_to_brokers_that_ask_for_one() {
    let Some(topic) = topic("mutual").await else { return };
    let variables = ["KAFKA_MUTUAL_BROKERS", "KAFKA_CA", "KAFKA_KEY"];
    let [Ok(brokers), Ok(ca), Ok(key)] = variables.map(std::env::var) else {
        return skip("kafka_own: client certificates", "KAFKA_MUTUAL_BROKERS is not set");
    };
    let ca = Some(PathBuf::from(ca));
    // The brokers trust their own certificate, and the client presents the same one.
    let shown = Tls { cert: ca.clone(), key: Some(PathBuf::from(key)), ca: ca.clone() };
    let none_shown = Tls { ca, ..Tls::default() };
    let with = |tls| KafkaSettings { brokers: brokers.clone(), tls: Some(tls), ..topic.settings() };
    let known = sink(with(shown));
    known.check().await.unwrap();
    let events = events_of_keys(1, 5, 5);
    assert_eq!(deliver(&known, &events, false).await, vec![Outcome::Delivered; 5]);
    assert_eq!(topic.arrived().await.len(), 5);
    let error = sink(with(none_shown)).check().await.unwrap_err().to_string();
    assert!(error.contains("under-test") && error.contains("`tls`"), "{error}");
    topic.remove().await;
}

/// Reported by `run --check` at the start, later as an alert; never as a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_named_without_being_shown() {
    let Some(topic) = topic("password").await else { return };
    let Some(settings) = secure(&topic, "SCRAM-SHA-256", "hunter2") else { return };
    let sink = sink(settings);
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("under-test") && error.contains("`sasl`"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let events = events_of_keys(1, 2, 1);
    let far = Instant::now() + Duration::from_secs(60);
    let outcomes = sink.deliver(Batch::new(&events, far)).await;
    assert!(matches!(outcomes[0], Outcome::Down { credentials: true, .. }), "{outcomes:?}");
    assert!(Instant::now() < far, "it does not wait for a login that was refused");
    topic.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_tls_is_named_with_its_setting() {
    let Some(topic) = topic("tls").await else { return };
    let Some(settings) = secure(&topic, "PLAIN", "postrider") else { return };
    let with_system_roots = KafkaSettings { tls: Some(Tls::default()), ..settings.clone() };
    let to_a_plain_port = KafkaSettings { brokers: topic.brokers.clone(), ..settings };
    for settings in [with_system_roots, to_a_plain_port] {
        let error = sink(settings).check().await.unwrap_err().to_string();
        assert!(error.contains("under-test") && error.contains("`tls`"), "{error}");
    }
    topic.remove().await;
}

/// Each message is small enough; only together they are too large. None of them is the cause.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_takes_small_record_batches_gets_them() {
    let Some(topic) = topic("record_batches").await else { return };
    let linger = Duration::from_millis(200);
    let sink = sink(KafkaSettings { linger, ..topic.settings() });
    let mut waiting = events_of_keys(1, 900, 1);
    for event in &mut waiting {
        event.payload = "x".repeat(1_000);
    }
    for _ in 0..5 {
        let outcomes = deliver(&sink, &waiting, true).await;
        let rejected = |outcome: &&Outcome| matches!(outcome, Outcome::Rejected { .. });
        assert_eq!(outcomes.iter().find(rejected), None);
        let mut outcomes = outcomes.into_iter();
        waiting.retain(|_| outcomes.next() != Some(Outcome::Delivered));
    }
    assert_eq!(waiting.len(), 0, "all arrived within a few calls");
    topic.remove().await;
}

/// While the only destination is down, the relay claims only probes, so it must know that there is
/// only one.
#[test]
fn a_sink_with_one_fixed_topic_says_so() {
    let settings = KafkaSettings::new("k", "127.0.0.1:1", "orders");
    assert_eq!(sink(settings.clone()).only_destination(), Some("orders"));
    let by_event = KafkaSettings { topic: Some("{aggregate_type}".to_owned()), ..settings.clone() };
    assert_eq!(sink(by_event).only_destination(), None);
    let refunds = RouteSettings { to: "refunds".to_owned(), ..RouteSettings::default() };
    let two = KafkaSettings { routes: vec![refunds], ..settings };
    assert_eq!(sink(two).only_destination(), None);
}
