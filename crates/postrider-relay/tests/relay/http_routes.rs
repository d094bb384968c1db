//! The HTTP sink's routes, forms, bodies, signatures, order, proxy and guard.

use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, RouteSettings, Sink,
    message::{EnvelopeSettings, Form},
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::Event;
use postrider_testkit::{
    http::{Receiver, Reply},
    relay::held_event,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::http_sink::{deliver, settings};

fn of_type(id: i64, event_type: &str) -> Event {
    Event { event_type: event_type.to_owned(), ..held_event(id) }
}

async fn taking() -> Receiver {
    Receiver::start(|_| Reply::Status(200)).await
}

fn targets(receiver: &Receiver) -> Vec<String> {
    receiver.received().requests.iter().map(|request| request.target.clone()).collect()
}

#[tokio::test]
async fn routes_lead_to_their_urls_and_an_event_without_one_is_not_sent() {
    let (main, refunds) = (taking().await, taking().await);
    let route = |event_type: &str, to: String| RouteSettings {
        event_type: Some(event_type.to_owned()),
        to,
        ..RouteSettings::default()
    };
    let routes = vec![
        route("Refund*", refunds.url("/refunds/{header.region}")),
        route("Order*", main.url("/orders/{payload.order}")),
    ];
    let sink =
        HttpSink::new(HttpSettings { url: None, routes, ..settings(String::new()) }).unwrap();
    let refund =
        Event { headers: Some(r#"{"region":"eu west"}"#.to_owned()), ..of_type(1, "RefundPaid") };
    let events =
        [refund, of_type(2, "OrderPlaced"), of_type(3, "UserLeft"), of_type(4, "RefundPaid")];
    let outcomes = deliver(&sink, &events).await;
    assert_eq!(outcomes[..2], [Outcome::Delivered, Outcome::Delivered]);
    for (outcome, words) in
        outcomes[2..].iter().zip([["UserLeft", "`url`"], ["[[sink.route]] 1", "{header.region}"]])
    {
        let Outcome::NoRoute { error } = outcome else { panic!("{outcome:?}") };
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    assert_eq!(targets(&refunds), ["/refunds/eu%20west"]);
    assert_eq!(targets(&main), ["/orders/2"]);
    let host = |receiver: &Receiver| receiver.url("").split_off("http://".len());
    assert_eq!(sink.destination(&events[0]), host(&refunds));
    assert_eq!(sink.destination(&events[1]), host(&main));
    assert_eq!(sink.destination(&events[2]), "");
}

#[tokio::test]
async fn cloud_events_travel_in_both_modes() {
    let receiver = taking().await;
    let event = Event { aggregate_id: "a b%\"ü".to_owned(), ..held_event(7) };
    for form in [Form::CloudEventsBinary, Form::CloudEventsStructured] {
        let envelope = EnvelopeSettings { form, ..EnvelopeSettings::default() };
        let settings = HttpSettings { envelope, ..settings(receiver.url("/")) };
        let sink = HttpSink::new(settings).unwrap();
        assert_eq!(deliver(&sink, std::slice::from_ref(&event)).await, [Outcome::Delivered]);
    }
    let received = receiver.received();
    let [binary, structured] = received.requests.as_slice() else { panic!("two requests") };
    assert_eq!(binary.body, event.payload);
    assert_eq!(binary.header("content-type"), ["application/json"]);
    assert_eq!(binary.header("ce-id"), [event.event_id.as_str()]);
    assert_eq!(binary.header("ce-specversion"), ["1.0"]);
    assert_eq!(binary.header("ce-type"), ["OrderPlaced"]);
    assert_eq!(binary.header("ce-subject"), ["a%20b%25%22%C3%BC"], "decodes to what it was");
    let content_type = "application/cloudevents+json; charset=UTF-8";
    assert_eq!(structured.header("content-type"), [content_type]);
    assert!(structured.header("ce-id").is_empty());
    let object: Value = serde_json::from_str(&structured.body).unwrap();
    assert_eq!(object["subject"], event.aggregate_id);
    assert_eq!(object["data"], json!({ "order": 7 }));
    assert_eq!(structured.header("postrider-event-id"), [event.event_id.as_str()]);
}

#[tokio::test]
async fn a_body_by_template_replaces_the_payload_and_an_event_that_it_does_not_fit_is_rejected() {
    let receiver = taking().await;
    let body = r#"{"id": {{ event_id }}, "number": {{ payload.order + 1 }}}"#.to_owned();
    let settings = HttpSettings { body: Some(body), ..settings(receiver.url("/")) };
    let sink = HttpSink::new(settings).unwrap();
    let odd = Event { payload: "{}".to_owned(), ..held_event(2) };
    let outcomes = deliver(&sink, &[held_event(1), odd]).await;
    assert_eq!(outcomes[0], Outcome::Delivered);
    let Outcome::CannotEncode { error } = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert!(error.contains("`body`") && error.contains("payload.order"), "{error}");
    let received = receiver.received();
    let [request] = received.requests.as_slice() else { panic!("one request") };
    let sent: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(sent, json!({ "id": held_event(1).event_id, "number": 2 }));
}

/// A receiver verifies with whichever secret it knows.
#[tokio::test]
async fn each_secret_signs_what_is_sent() {
    let receiver = taking().await;
    let secrets =
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"];
    let signing_secrets = secrets.map(str::to_owned).to_vec();
    let signed = |method: &str| HttpSettings {
        method: method.to_owned(),
        signing_secrets: signing_secrets.clone(),
        ..settings(receiver.url("/"))
    };
    for method in ["POST", "GET"] {
        let sink = HttpSink::new(signed(method)).unwrap();
        let forged = Some(r#"{"webhook-signature":"v1,forged"}"#.to_owned());
        let event = Event { headers: forged, ..held_event(1) };
        assert_eq!(deliver(&sink, &[event]).await, [Outcome::Delivered]);
    }
    for request in &receiver.received().requests {
        let [id] = request.header("webhook-id")[..] else { panic!("one id") };
        let [at] = request.header("webhook-timestamp")[..] else { panic!("one time") };
        let [signatures] = request.header("webhook-signature")[..] else { panic!("one header") };
        assert_eq!(id, held_event(1).event_id);
        let age = chrono::Utc::now().timestamp() - at.parse::<i64>().unwrap();
        assert!((0..60).contains(&age), "{age}");
        let wanted =
            secrets.map(|secret| signature(secret, &format!("{id}.{at}.{}", request.body)));
        assert_eq!(signatures.split(' ').collect::<Vec<_>>(), wanted);
    }
}

/// Computes a signature as a receiver does.
fn signature(secret: &str, content: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use hmac::{Hmac, KeyInit, Mac};
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(content.as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Returns events of `keys` keys in turn.
fn of_keys(count: i64, keys: i64) -> Vec<Event> {
    (1..=count)
        .map(|id| Event { aggregate_id: format!("k{}", id % keys), ..held_event(id) })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_order_kept_a_key_is_one_at_a_time_and_keys_are_side_by_side() {
    let receiver = taking().await;
    receiver.shut();
    let sink =
        HttpSink::new(HttpSettings { host_concurrency_max: 16, ..settings(receiver.url("/{id}")) });
    let (sink, events) = (sink.unwrap(), of_keys(40, 4));
    let deadline = Instant::now() + Duration::from_secs(60);
    let delivery = sink.deliver(Batch::new(&events, deadline).in_order(true));
    let open = async {
        receiver.until("one of each key is on its way", |received| received.now == 4).await;
        receiver.open();
    };
    let (outcomes, ()) = tokio::join!(delivery, open);
    assert_eq!(outcomes, vec![Outcome::Delivered; 40]);
    assert_eq!(receiver.received().now_max, 4, "one of each key");
    let ids: Vec<i64> = targets(&receiver).iter().map(|path| path[1..].parse().unwrap()).collect();
    for key in 0..4 {
        let of_key: Vec<i64> = ids.iter().copied().filter(|id| id % 4 == key).collect();
        assert!(of_key.is_sorted() && of_key.len() == 10, "{of_key:?}");
    }
}

/// The answer to event 5 is lost; it may have arrived, and 9 must not overtake it.
#[tokio::test]
async fn with_order_kept_the_first_that_is_not_delivered_stops_its_key_only() {
    for (reply, is_down) in [(Reply::Close, true), (Reply::Status(422), false)] {
        let script = move |request: &postrider_testkit::http::Request| match request.target.as_str()
        {
            "/5" => reply.clone(),
            _ => Reply::Status(200),
        };
        let receiver = Receiver::start(script).await;
        let sink = HttpSink::new(settings(receiver.url("/{id}"))).unwrap();
        let events = of_keys(12, 4);
        let deadline = Instant::now() + Duration::from_secs(60);
        let outcomes = sink.deliver(Batch::new(&events, deadline).in_order(true)).await;
        for (event, outcome) in events.iter().zip(&outcomes) {
            match event.id {
                5 => assert_eq!(matches!(outcome, Outcome::Down { .. }), is_down, "{outcome:?}"),
                9 => assert_eq!(*outcome, Outcome::Untried),
                id => assert_eq!(*outcome, Outcome::Delivered, "{id}"),
            }
        }
        assert!(!targets(&receiver).contains(&"/9".to_owned()));
    }
}

#[tokio::test]
async fn a_proxy_is_asked_instead_of_the_host() {
    let proxy = taking().await;
    let target = "http://ledger.example.com/orders/{id}".to_owned();
    let settings = HttpSettings { proxy: Some(proxy.url("")), ..settings(target) };
    let sink = HttpSink::new(settings).unwrap();
    sink.check().await.unwrap();
    assert_eq!(deliver(&sink, &[held_event(5)]).await, [Outcome::Delivered]);
    assert_eq!(targets(&proxy), ["http://ledger.example.com/orders/5"]);
    let away = HttpSettings {
        proxy: Some("http://hush:hush@127.0.0.1:1".to_owned()),
        ..crate::http_sink::settings("http://ledger.example.com/".to_owned())
    };
    let sink = HttpSink::new(away).unwrap();
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("`proxy`"), "{error}");
    assert!(!error.contains("hush"), "{error}");
}

/// By address and by name: a name is resolved where the connection is made.
#[tokio::test]
async fn the_guard_connects_to_no_private_address() {
    let receiver = taking().await;
    let port = receiver.url("").rsplit(':').next().unwrap().to_owned();
    let guarded = |url: String| {
        HttpSink::new(HttpSettings { deny_private_addresses: true, ..settings(url) }).unwrap()
    };
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"] {
        let sink = guarded(format!("http://{host}:{port}/"));
        let outcome = deliver(&sink, &[held_event(1)]).await.remove(0);
        let Outcome::Down { error, .. } = &outcome else { panic!("{host}: {outcome:?}") };
        assert!(error.contains("deny_private_addresses"), "{host}: {error}");
        let error = sink.check().await.unwrap_err().to_string();
        assert!(error.contains("deny_private_addresses") && error.contains("`api`"), "{error}");
        // If the event determines the host, the event is refused.
        let sink = guarded(format!("http://{{aggregate_id}}:{port}/"));
        let event =
            Event { aggregate_id: host.trim_matches(['[', ']']).to_owned(), ..held_event(1) };
        let outcome = deliver(&sink, &[event]).await.remove(0);
        let Outcome::CannotEncode { error } = &outcome else { panic!("{host}: {outcome:?}") };
        assert!(error.contains("deny_private_addresses") || host.contains(':'), "{host}: {error}");
    }
    assert_eq!(receiver.received().requests.len(), 0);
    let open = HttpSink::new(settings(format!("http://localhost:{port}/"))).unwrap();
    assert_eq!(deliver(&open, &[held_event(1)]).await, [Outcome::Delivered]);
}
