//! The requests that the HTTP sink sends.

use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, Sink,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::Event;
use postrider_testkit::{
    http::{Receiver, Reply},
    relay::held_event,
};
use tokio::time::Instant;

pub(crate) fn settings(url: String) -> HttpSettings {
    HttpSettings {
        timeout: Duration::from_secs(10),
        host_concurrency_max: 4,
        ..HttpSettings::new("api", url)
    }
}

pub(crate) async fn deliver(sink: &HttpSink, events: &[Event]) -> Vec<Outcome> {
    let deadline = Instant::now() + Duration::from_secs(30);
    sink.deliver(Batch::new(events, deadline)).await
}

#[tokio::test]
async fn each_method_sends_what_it_should() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    for method in ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD"] {
        let settings = HttpSettings { method: method.to_owned(), ..settings(receiver.url("/x")) };
        let sink = HttpSink::new(settings).unwrap();
        assert_eq!(deliver(&sink, &[held_event(1)]).await, [Outcome::Delivered], "{method}");
        let request = receiver.received().requests.last().unwrap().clone();
        assert_eq!(request.method, method);
        let body = if matches!(method, "GET" | "HEAD") { "" } else { &held_event(1).payload };
        assert_eq!(request.body, body, "{method}");
    }
}

#[tokio::test]
async fn values_in_the_url_stay_in_their_place() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let template = receiver.url("/{aggregate_type}/{aggregate_id}?e={event_type}&n={id}");
    let sink = HttpSink::new(settings(template)).unwrap();
    for (odd, encoded) in [
        ("a/b\\c", "a%2Fb%5Cc"),
        ("a b+c", "a%20b%2Bc"),
        ("x?y#z&w=1", "x%3Fy%23z%26w%3D1"),
        ("Zürich", "Z%C3%BCrich"),
        ("100%", "100%25"),
        ("a\r\nHost: evil", "a%0D%0AHost%3A%20evil"),
        ("{id}", "%7Bid%7D"),
        ("...", "..."),
    ] {
        let event =
            Event { aggregate_id: odd.to_owned(), event_type: odd.to_owned(), ..held_event(9) };
        assert_eq!(deliver(&sink, &[event]).await, [Outcome::Delivered], "{odd}");
        let target = receiver.received().requests.last().unwrap().target.clone();
        assert_eq!(target, format!("/order/{encoded}?e={encoded}&n=9"), "{odd}");
    }
}

/// No encoding makes these safe.
#[tokio::test]
async fn an_event_cannot_climb_out_of_its_path() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let sink = HttpSink::new(settings(receiver.url("/orders/{aggregate_id}/state"))).unwrap();
    for odd in ["..", ".", "../../admin", "..\\admin", "a/../b", "..;x", "a/.", "%2e%2e/b"] {
        let event = Event { aggregate_id: odd.to_owned(), ..held_event(1) };
        let outcome = deliver(&sink, &[event]).await;
        assert!(matches!(outcome[0], Outcome::CannotEncode { .. }), "{odd}: {outcome:?}");
    }
    assert_eq!(receiver.received().requests.len(), 0);
}

#[tokio::test]
async fn identity_and_context_travel_in_headers() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    let event = Event {
        headers: Some(r#"{"traceparent":"00-1","X-Name":"Grüße","n":5}"#.to_owned()),
        event_type: "Größe".to_owned(),
        content_hash: Some("abc".to_owned()),
        ..held_event(1)
    };
    assert_eq!(deliver(&sink, std::slice::from_ref(&event)).await, [Outcome::Delivered]);
    let request = receiver.received().requests[0].clone();
    for (name, value) in [
        ("idempotency-key", event.event_id.as_str()),
        ("postrider-event-id", &event.event_id),
        ("postrider-event-type", "UTF-8''Gr%C3%B6%C3%9Fe"),
        ("postrider-aggregate-type", "order"),
        ("postrider-aggregate-id", "order-1"),
        ("postrider-content-hash", "abc"),
        ("content-type", "application/json"),
        ("traceparent", "00-1"),
        ("x-name", "UTF-8''Gr%C3%BC%C3%9Fe"),
        ("n", "5"),
    ] {
        assert_eq!(request.header(name), [value], "{name}");
    }
}

/// A receiver decodes values that begin with the prefix, and no others.
#[tokio::test]
async fn header_values_have_one_reading() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    for (value, sent) in [
        ("100%", "100%"),
        ("Gr%C3%BC", "Gr%C3%BC"),
        ("Gr\u{fc}", "UTF-8''Gr%C3%BC"),
        ("100% Gr\u{fc}", "UTF-8''100%25%20Gr%C3%BC"),
        ("utf-8''a", "UTF-8''utf-8%27%27a"),
        (" a", "UTF-8''%20a"),
        ("a\nb", "UTF-8''a%0Ab"),
        ("", ""),
    ] {
        let headers = serde_json::json!({ "x-name": value }).to_string();
        let event = Event { headers: Some(headers), ..held_event(1) };
        assert_eq!(deliver(&sink, &[event]).await, [Outcome::Delivered], "{value}");
        let request = receiver.received().requests.last().unwrap().clone();
        assert_eq!(request.header("x-name"), [sent], "{value}");
    }
}

/// Some servers answer 411 to a request without a length.
#[tokio::test]
async fn an_empty_payload_has_a_length() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    for (method, length) in [("POST", vec!["0"]), ("PUT", vec!["0"]), ("GET", vec![])] {
        let settings = HttpSettings { method: method.to_owned(), ..settings(receiver.url("/")) };
        let sink = HttpSink::new(settings).unwrap();
        let event = Event { payload: String::new(), ..held_event(1) };
        assert_eq!(deliver(&sink, &[event]).await, [Outcome::Delivered], "{method}");
        let request = receiver.received().requests.last().unwrap().clone();
        assert_eq!(request.header("content-length"), length, "{method}");
    }
}

#[tokio::test]
async fn a_certificate_of_our_own_is_trusted_where_the_settings_name_it() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let server = receiver.url("").replace("http://", "");
    let front = postrider_testkit::TlsFront::before(&server).await;
    let with = |ca| HttpSettings { ca, ..settings(format!("https://{}/", front.address())) };
    let distrusts = HttpSink::new(with(None)).unwrap();
    let outcome = deliver(&distrusts, &[held_event(1)]).await;
    assert!(matches!(&outcome[0], Outcome::Down { .. }), "{outcome:?}");
    let trusts = HttpSink::new(with(Some(front.ca()))).unwrap();
    assert_eq!(deliver(&trusts, &[held_event(1)]).await, [Outcome::Delivered]);
    for wrong in ["/no/such.pem", "/dev/null"] {
        let error = HttpSink::new(with(Some(wrong.into()))).err().unwrap().to_string();
        assert!(error.contains("`tls.ca`") && error.contains(wrong), "{error}");
    }
}

#[tokio::test]
async fn an_event_cannot_replace_credentials_or_garble_the_request() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let headers = vec![("X-Api-Key".to_owned(), "ours".to_owned())];
    let sink = HttpSink::new(HttpSettings { headers, ..settings(receiver.url("/")) }).unwrap();
    let hostile = r#"{"x-api-key":"theirs","X-API-KEY":"theirs","idempotency-key":"theirs",
        "host":"evil","content-length":"3","transfer-encoding":"chunked","Connection":"close"}"#;
    let event = Event { headers: Some(hostile.to_owned()), ..held_event(1) };
    assert_eq!(deliver(&sink, std::slice::from_ref(&event)).await, [Outcome::Delivered]);
    assert_eq!(deliver(&sink, std::slice::from_ref(&event)).await, [Outcome::Delivered]);
    let received = receiver.received();
    for request in &received.requests {
        assert_eq!(request.header("x-api-key"), ["ours"]);
        assert_eq!(request.header("idempotency-key"), [event.event_id.as_str()]);
        assert!(request.header("host")[0].starts_with("127.0.0.1"));
        assert_eq!(request.body, event.payload, "whole");
        assert!(request.header("transfer-encoding").is_empty());
    }
    assert_eq!(received.requests.len(), 2);
}

#[tokio::test]
async fn an_event_with_unusable_headers_is_rejected() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    for headers in [r#"{"bad name":"x"}"#, "[1]", "not json", r#"{"":"x"}"#] {
        let event = Event { headers: Some(headers.to_owned()), ..held_event(1) };
        let outcome = deliver(&sink, &[event]).await;
        assert!(matches!(outcome[0], Outcome::CannotEncode { .. }), "{headers}: {outcome:?}");
    }
    assert_eq!(receiver.received().requests.len(), 0);
}

#[tokio::test]
async fn connections_are_used_again() {
    let body = "x".repeat(2_000);
    let receiver = Receiver::start(move |_| Reply::Full(200, Vec::new(), body.clone())).await;
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    for id in 1..=20 {
        assert_eq!(deliver(&sink, &[held_event(id)]).await, [Outcome::Delivered]);
    }
    let received = receiver.received();
    assert!(received.requests.iter().all(|request| request.connection == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_gets_no_more_requests_at_once_than_allowed() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    receiver.shut();
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    let batches: Vec<Vec<Event>> =
        (0..3).map(|batch| (0..10).map(|n| held_event(batch * 10 + n)).collect()).collect();
    let deliveries = batches.iter().map(|events| deliver(&sink, events));
    let deliveries = futures_util::future::join_all(deliveries);
    let open = async {
        receiver.until("the limit is reached", |received| received.now == 4).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(receiver.received().now, 4, "across all calls");
        receiver.open();
    };
    let (outcomes, ()) = tokio::join!(deliveries, open);
    assert!(outcomes.concat().iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(receiver.received().now_max, 4);
    assert_eq!(receiver.received().requests.len(), 30);
}

#[tokio::test]
async fn wrong_settings_are_refused_by_name() {
    let url = || "http://127.0.0.1/".to_owned();
    for (settings, named) in [
        (HttpSettings { method: "get it".to_owned(), ..settings(url()) }, "get it"),
        (HttpSettings { method: "post".to_owned(), ..settings(url()) }, "post"),
        (settings("ftp://h/hush".to_owned()), "`url` must start with http://"),
        (
            HttpSettings { proxy: Some("hush".to_owned()), ..settings(url()) },
            "`proxy` is not a URL like http://",
        ),
        (
            HttpSettings {
                proxy: Some("http://127.0.0.1:1".to_owned()),
                deny_private_addresses: true,
                ..settings(url())
            },
            "exclude each other",
        ),
        (
            HttpSettings { signing_secrets: vec!["hush".to_owned()], ..settings(url()) },
            "`signing_secrets`: number 1",
        ),
        (HttpSettings { body: Some("{{ x".to_owned()), ..settings(url()) }, "`body`"),
        (
            HttpSettings { headers: vec![("a b".to_owned(), String::new())], ..settings(url()) },
            "a b",
        ),
        (
            HttpSettings {
                headers: vec![("k".to_owned(), "hush\n".to_owned())],
                ..settings(url())
            },
            "`k`",
        ),
    ] {
        let error = HttpSink::new(settings).err().unwrap().to_string();
        assert!(error.contains(named) && error.contains("`api`"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
