//! How the HTTP sink interprets responses, and missing ones.

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

use crate::http_sink::{deliver, settings};

fn events(count: i64) -> Vec<Event> {
    (1..=count).map(held_event).collect()
}

fn is_down(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Down { .. })
}

async fn one(reply: Reply) -> Outcome {
    let receiver = Receiver::start(move |_| reply.clone()).await;
    let timeout = Duration::from_millis(300);
    let sink = HttpSink::new(HttpSettings { timeout, ..settings(receiver.url("/")) }).unwrap();
    deliver(&sink, &events(1)).await.remove(0)
}

#[tokio::test]
async fn answers_mean_what_the_specification_says() {
    for status in [200, 201, 204, 299] {
        assert_eq!(one(Reply::Status(status)).await, Outcome::Delivered, "{status}");
    }
    for status in [400, 409, 410, 413, 415, 422] {
        let reply = Reply::Full(status, Vec::new(), "why not".to_owned());
        match one(reply).await {
            Outcome::Rejected { error, detail } => {
                assert!(error.contains(&status.to_string()), "{error}");
                assert_eq!(detail.as_deref(), Some("why not"));
            }
            other => panic!("{status}: {other:?}"),
        }
    }
    for status in [404, 405, 418] {
        assert!(matches!(one(Reply::Status(status)).await, Outcome::Retry { .. }), "{status}");
    }
    for status in [408, 425, 429, 500, 503, 599] {
        let outcome = one(Reply::Status(status)).await;
        assert!(matches!(outcome, Outcome::Down { credentials: false, .. }), "{outcome:?}");
    }
    for status in [401, 403, 407] {
        let outcome = one(Reply::Status(status)).await;
        assert!(matches!(outcome, Outcome::Down { credentials: true, .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Receiver::start(|_| Reply::Status(200)).await;
    let location = vec![("location", other.url("/elsewhere"))];
    for status in [301, 302, 307, 308] {
        let outcome = one(Reply::Full(status, location.clone(), String::new())).await;
        assert!(matches!(outcome, Outcome::Retry { .. }), "{status}: {outcome:?}");
    }
    assert_eq!(other.received().requests.len(), 0);
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms() {
    let asked = async |value: String| match one(Reply::Full(
        503,
        vec![("retry-after", value)],
        String::new(),
    ))
    .await
    {
        Outcome::Down { retry_after, .. } => retry_after,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked("120".to_owned()).await, Some(Duration::from_secs(120)));
    let date = (chrono::Utc::now() + Duration::from_secs(90)).to_rfc2822();
    let wait = asked(date.replace("+0000", "GMT")).await.unwrap();
    assert!((80..=90).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(asked("soon".to_owned()).await, None);
    assert_eq!(asked("-5".to_owned()).await, None);
    assert_eq!(asked("+5".to_owned()).await, None);
    assert_eq!(asked("99999999999999999999999x".to_owned()).await, None);
    let longest = Some(Duration::from_secs(u64::MAX));
    assert_eq!(asked("99999999999999999999999".to_owned()).await, longest, "the policy limits it");
}

#[tokio::test]
async fn no_answer_is_an_outage_and_no_secret_is_in_its_words() {
    for reply in [Reply::Close, Reply::Silence] {
        let outcome = one(reply.clone()).await;
        assert!(is_down(&outcome), "{reply:?}: {outcome:?}");
    }
    let url = "http://127.0.0.1:1/?token=hush".to_owned();
    let sink = HttpSink::new(settings(url)).unwrap();
    let outcome = deliver(&sink, &events(1)).await.remove(0);
    assert!(is_down(&outcome) && !format!("{outcome:?}").contains("hush"), "{outcome:?}");
}

/// The destination said that it accepted the event; the rest of the response does not matter.
#[tokio::test]
async fn a_body_that_is_slow_or_huge_is_cut_off() {
    assert_eq!(one(Reply::SlowBody).await, Outcome::Delivered);
    let receiver = Receiver::start(|_| Reply::Flood(1 << 30)).await;
    let sink = HttpSink::new(settings(receiver.url("/"))).unwrap();
    assert_eq!(deliver(&sink, &events(1)).await, [Outcome::Delivered]);
    let taken = receiver.received().bytes_sent;
    assert!(taken < 64 << 20, "{taken} bytes of 1 GiB were taken");
    let long = Reply::Full(422, Vec::new(), "é".repeat(100_000));
    match one(long).await {
        Outcome::Rejected { detail: Some(detail), .. } => assert!(detail.len() < 10_000),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn five_downs_stop_the_rest_of_the_call() {
    let receiver = Receiver::start(|_| Reply::Status(503)).await;
    let settings = HttpSettings { host_concurrency_max: 1, ..settings(receiver.url("/")) };
    let sink = HttpSink::new(settings).unwrap();
    let outcomes = deliver(&sink, &events(20)).await;
    assert_eq!(outcomes.iter().filter(|outcome| is_down(outcome)).count(), 5);
    assert_eq!(outcomes[5..], vec![Outcome::Untried; 15]);
    assert_eq!(receiver.received().requests.len(), 5);
    let again = deliver(&sink, &events(1)).await;
    assert!(is_down(&again[0]), "the next call tries again");
}

/// A host that is down does not delay the events of the others.
#[tokio::test]
async fn hosts_do_not_share_their_fate() {
    let (up, down) = (
        Receiver::start(|_| Reply::Status(200)).await,
        Receiver::start(|_| Reply::Status(503)).await,
    );
    let host = |receiver: &Receiver| receiver.url("").split("://").nth(1).unwrap().to_owned();
    let (up, down) = (host(&up), host(&down));
    let port = |host: &str| host.split(':').nth(1).unwrap().to_owned();
    // A port that an event names is part of the destination.
    let sink = HttpSink::new(settings("http://127.0.0.1:{aggregate_id}/".to_owned())).unwrap();
    let events: Vec<_> = (1..=40)
        .map(|id| Event {
            aggregate_id: port(if id % 2 == 0 { &up } else { &down }),
            ..held_event(id)
        })
        .collect();
    assert_ne!(sink.destination(&events[0]), sink.destination(&events[1]));
    let outcomes = deliver(&sink, &events).await;
    for (event, outcome) in events.iter().zip(outcomes) {
        assert_eq!(outcome == Outcome::Delivered, event.id % 2 == 0, "{outcome:?}");
    }
}

/// A request must not outlive the call: the relay would consider all of its outcomes lost.
#[tokio::test]
async fn no_request_goes_on_beyond_the_deadline_of_the_call() {
    let receiver = Receiver::start(|request| match request.body.contains("\"order\":1}") {
        true => Reply::Status(200),
        false => Reply::Silence,
    })
    .await;
    let timeout = Duration::from_secs(60);
    let settings = HttpSettings { timeout, host_concurrency_max: 2, ..settings(receiver.url("/")) };
    let sink = HttpSink::new(settings).unwrap();
    let (started, time) = (Instant::now(), Duration::from_millis(300));
    let events = events(5);
    let outcomes = sink.deliver(Batch::new(&events, started + time)).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert!(is_down(&outcomes[1]) && is_down(&outcomes[2]), "{outcomes:?}");
    assert_eq!(outcomes[3..], [Outcome::Untried, Outcome::Untried]);
}

#[tokio::test]
async fn a_check_says_whether_the_host_can_be_reached() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    HttpSink::new(settings(receiver.url("/"))).unwrap().check().await.unwrap();
    let sink = HttpSink::new(settings("http://127.0.0.1:1/".to_owned())).unwrap();
    let error = sink.check().await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && error.contains("`url`"), "{error}");
}
