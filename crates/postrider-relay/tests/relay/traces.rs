//! Traces, as a collector and a receiver see them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{
    OutboxConfig, Relay, TraceSettings,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::{DlqFilter, Page, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    http::{Receiver, Reply},
    relay::{RunningRelay, ScriptedSink, quick_config, quick_preset},
};
use serde_json::Value;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traced(key: &str, flags: &str) -> NewEvent {
    let parent = format!("00-{TRACE}-{PARENT}-{flags}");
    NewEvent::new("order", key, key, "{}").header("traceparent", parent).header("region", "eu")
}

fn spans(collector: &Receiver) -> Vec<Value> {
    let received = collector.received();
    let bodies = received.requests.iter().map(|request| {
        let body: Value = serde_json::from_str(&request.body).unwrap();
        body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
    });
    bodies.flatten().collect()
}

fn attribute(span: &Value, key: &str) -> String {
    let all = span["attributes"].as_array().unwrap();
    let value = all.iter().find(|a| a["key"] == key).map(|a| a["value"].clone());
    let value = value.unwrap_or_default();
    let text = value["stringValue"].as_str().or(value["intValue"].as_str());
    text.unwrap_or_default().to_owned()
}

async fn open(test: &str) -> TestDb {
    TestDb::open(StoreKind::Sqlite, test).await.unwrap()
}

fn to(collector: &str, ratio: f64) -> TraceSettings {
    let headers = BTreeMap::from([("x-api-key".to_owned(), "hush".to_owned())]);
    TraceSettings::new(collector, headers, ratio).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_is_a_span_of_the_producers_trace_and_the_parent_of_the_receivers() {
    let db = open("each_attempt_is_a_span").await;
    let collector = Receiver::start(|_| Reply::Status(200)).await;
    let target = Receiver::start(|request| match request.target.as_str() {
        "/Bad" => Reply::Status(422),
        _ => Reply::Status(204),
    });
    let target = target.await;
    db.append(&[traced("Good", "01"), traced("Bad", "01"), traced("Unsampled", "00")]).await;
    let settings = HttpSettings::new("api", target.url("/{event_type}"));
    let sink = Arc::new(HttpSink::new(settings).unwrap());
    let folder = TempFolder::new();
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(OutboxConfig::new(db.outbox.clone(), quick_preset(), sink))
        .traces(to(&collector.url(""), 0.0));
    let relay = RunningRelay::start(relay);
    eventually("two spans", async || (spans(&collector).len() >= 2).then_some(())).await;
    target.until("all three are received", |received| received.requests.len() == 3).await;
    relay.stop().await;

    let found = spans(&collector);
    assert_eq!(found.len(), 2, "what the producer does not record is not recorded");
    let of = |name: &str| found.iter().find(|span| span["name"] == name).unwrap();
    let (good, bad) = (of("deliver Good"), of("deliver Bad"));
    for span in [good, bad] {
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&TRACE.into(), &PARENT.into()));
        assert_eq!(attribute(span, "postrider.outbox"), "orders");
        assert_eq!(attribute(span, "postrider.sink"), "api");
        assert_eq!(attribute(span, "postrider.attempt"), "1");
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
    }
    assert_eq!(attribute(good, "postrider.outcome"), "delivered");
    assert_eq!(attribute(bad, "postrider.outcome"), "rejected");
    assert_eq!((&good["status"], &bad["status"]["code"]), (&Value::Null, &2.into()));
    let request = collector.received().requests[0].clone();
    assert_eq!(
        (request.target.as_str(), request.header("x-api-key")),
        ("/v1/traces", vec!["hush"])
    );

    let requests = target.received().requests.clone();
    let sent = |path: &str| {
        let request = requests.iter().find(|request| request.target == path).unwrap();
        assert_eq!(request.header("region"), ["eu"]);
        request.header("traceparent")[0].to_owned()
    };
    let child = good["spanId"].as_str().unwrap();
    assert_eq!(sent("/Good"), format!("00-{TRACE}-{child}-01"));
    assert_eq!(sent("/Unsampled"), format!("00-{TRACE}-{PARENT}-00"), "passed on as it was");
    let page = Page::first(9);
    let dead = db.store.dead_letters(&db.outbox, &DlqFilter::default(), page).await.unwrap();
    let kept = dead.rows[0].headers.clone().unwrap();
    assert!(kept.contains(PARENT), "a dead letter keeps what was appended: {kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_trace_begin_one_and_all_attempts_are_in_it() {
    let db = open("events_without_a_trace").await;
    let collector = Receiver::start(|_| Reply::Status(200)).await;
    db.append_orders(1).await;
    let sink = ScriptedSink::scripted(|_, tries| match tries {
        1 => postrider_testkit::relay::Act::retry("not yet"),
        _ => postrider_testkit::relay::Act::DELIVER,
    });
    let (folder, sink) = (TempFolder::new(), sink.shared());
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(OutboxConfig::new(db.outbox.clone(), quick_preset(), sink))
        .traces(to(&collector.url("/custom/path"), 1.0));
    let relay = RunningRelay::start(relay);
    eventually("two spans", async || (spans(&collector).len() == 2).then_some(())).await;
    relay.stop().await;
    let found = spans(&collector);
    assert_eq!(found[0]["traceId"], found[1]["traceId"]);
    assert_ne!(found[0]["spanId"], found[1]["spanId"]);
    assert!(found.iter().all(|span| span["parentSpanId"].is_null()), "{found:#?}");
    let outcome =
        |span: &Value| (attribute(span, "postrider.attempt"), attribute(span, "postrider.outcome"));
    assert_eq!(outcome(&found[0]), ("1".to_owned(), "retry".to_owned()));
    assert_eq!(outcome(&found[1]), ("2".to_owned(), "delivered".to_owned()));
    assert_eq!(collector.received().requests[0].target, "/custom/path");
}

/// As W3C Trace Context requires: an invalid context is not passed on, and the trace starts anew.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_context_restarts_the_trace_and_a_valid_state_is_kept() {
    let db = open("an_invalid_context_restarts_the_trace").await;
    let collector = Receiver::start(|_| Reply::Status(200)).await;
    let target = Receiver::start(|_| Reply::Status(204)).await;
    let state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    let with = |key: &str, parent: &str| {
        let event = NewEvent::new("order", key, key, "{}").header("TraceParent", parent);
        event.header("tracestate", state)
    };
    db.append(&[
        with("Good", &format!("00-{TRACE}-{PARENT}-01")),
        with("Bad", &format!("00-{TRACE}-{PARENT}")),
        with("Zero", &format!("00-{}-{PARENT}-01", "0".repeat(32))),
        NewEvent::new("order", "Alone", "Alone", "{}").header("tracestate", state),
    ])
    .await;
    let settings = HttpSettings::new("api", target.url("/{event_type}"));
    let sink = Arc::new(HttpSink::new(settings).unwrap());
    let folder = TempFolder::new();
    let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
        .outbox(OutboxConfig::new(db.outbox.clone(), quick_preset(), sink))
        .traces(to(&collector.url(""), 1.0));
    let relay = RunningRelay::start(relay);
    eventually("each event has a span", async || (spans(&collector).len() == 4).then_some(()))
        .await;
    relay.stop().await;

    let (found, requests) = (spans(&collector), target.received().requests.clone());
    for name in ["Good", "Bad", "Zero", "Alone"] {
        let span = found.iter().find(|span| span["name"] == format!("deliver {name}")).unwrap();
        let sent = requests.iter().find(|request| request.target == format!("/{name}")).unwrap();
        let (trace, id) = (span["traceId"].as_str().unwrap(), span["spanId"].as_str().unwrap());
        assert_eq!(sent.header("traceparent"), [format!("00-{trace}-{id}-01")], "{name}");
        if name == "Good" {
            assert_eq!((trace, span["parentSpanId"].as_str()), (TRACE, Some(PARENT)));
            assert_eq!(span["traceState"], state, "{span:#}");
            assert_eq!(sent.header("tracestate"), [state]);
        } else {
            assert!(trace != TRACE && span["parentSpanId"].is_null(), "{name}: {span:#}");
            assert!(span["traceState"].as_str().unwrap_or_default().is_empty(), "{name}: {span:#}");
            assert!(sent.header("tracestate").is_empty(), "it belongs to the old trace: {sent:?}");
        }
    }
}

/// The collector is unreachable, then silent: deliveries are not affected, and the stop ends in
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_slows_nothing() {
    let db = open("a_collector_that_is_away").await;
    let silent = Receiver::start(|_| Reply::Silence).await;
    for endpoint in ["http://127.0.0.1:1".to_owned(), silent.url("")] {
        db.append_orders(500).await;
        let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
        let relay = Relay::new(Arc::clone(&db.store), quick_config(&folder))
            .outbox(OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone()))
            .traces(to(&endpoint, 1.0));
        let relay = RunningRelay::start(relay);
        sink.until_delivered(500).await;
        let stopped = tokio::time::timeout(Duration::from_secs(20), relay.stop()).await;
        assert!(stopped.is_ok(), "{endpoint}: the stop waits for the collector");
        db.assert_balanced().await;
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let settings = |endpoint: &str, ratio| TraceSettings::new(endpoint, BTreeMap::new(), ratio);
    for (endpoint, ratio, word) in [
        ("localhost:4318", 1.0, "otlp_endpoint"),
        ("ftp://localhost", 1.0, "otlp_endpoint"),
        ("http://localhost:4318", 1.5, "trace_ratio"),
    ] {
        let error = settings(endpoint, ratio).err().unwrap();
        assert!(error.contains(word), "{error}");
    }
}
