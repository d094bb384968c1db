//! The HTTP endpoints.

use postrider_testkit::{
    Daemon, eventually,
    http_client::{Response, send},
};

use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    events_are_appended_over_http_and_delivered,
    a_bad_request_is_refused_with_its_reason_and_appends_nothing,
    overlapping_batches_of_several_keys_are_all_taken,
});
mod on_one_store {
    crate::scene::tests!(sqlite {
        only_the_token_opens_a_guarded_endpoint,
        an_outbox_that_cannot_be_worked_on_makes_readiness_fail,
        health_readiness_and_metrics_are_served,
    });
}

const EVENTS: &str = "/api/v1/outboxes/orders/events";

fn event(number: u64, more: &str) -> String {
    format!(
        r#"{{"aggregate_type":"order","aggregate_id":"{number}","event_type":"OrderPlaced"{more}}}"#
    )
}

async fn events_are_appended_over_http_and_delivered(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    let single =
        event(1, r#","payload":{"a" : [1, 2.50]},"request_id":"r1","headers":{"x-a":"b"}"#);
    let first = daemon.post(EVENTS, &single).await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = daemon.post(EVENTS, &single).await;
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &true.into()), "{again:?}");
    assert_eq!(again.json()["id"], first.json()["id"]);

    let list = format!(
        "[{},{},{}]",
        event(2, r#","payload":null"#),
        event(3, r#","payload_text":"not JSON","max_retries":2,"expires_after":"1h""#),
        single
    );
    let many = daemon.post(EVENTS, &list).await;
    assert_eq!(many.status, 201, "{many:?}");
    let many = many.json();
    let duplicates: Vec<_> =
        many.as_array().unwrap().iter().map(|a| a["duplicate"].clone()).collect();
    assert_eq!(duplicates, [false, false, true], "in the order given");

    let committed: Vec<Committed> = [&first.json(), &many[0], &many[1]]
        .map(|answer| Committed {
            id: answer["id"].as_i64().unwrap(),
            event_id: answer["event_id"].as_str().unwrap().to_owned(),
        })
        .into();
    scene.received(&committed).await;
    let body = |n: usize| scene.target.calls(&committed[n].event_id)[0].body.clone();
    assert_eq!(body(0), r#"{"a" : [1, 2.50]}"#, "kept as it was written");
    assert_eq!((body(1), body(2)), ("null".to_owned(), "not JSON".to_owned()));
    assert_eq!(scene.target.calls(&committed[0].event_id)[0].header("x-a"), "b");
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&committed, 0).await;
}

/// Callers that send parts of the same batches in another order wait for one another; none is sent
/// away, and an append that has nothing to do with them is taken meanwhile.
async fn overlapping_batches_of_several_keys_are_all_taken(place: Place) {
    const CALLERS: u64 = 20;
    const OWN: u64 = 100;
    let Some(scene) = Scene::open(place, &Settings::new().api("requests_per_s", 100_000)).await
    else {
        return;
    };
    let daemon = scene.site.start().await;
    for round in 0..3 {
        let part = |key: u64, request: &str| {
            event(key, &format!(r#","payload":1,"request_id":"{request}-{round}""#))
        };
        let own = |key: u64, caller: u64| {
            (0..OWN).map(move |number| (key, format!("{key}5-{caller}-{number}")))
        };
        // Of some, the smallest request id of a key is another one than of the others. What is
        // between those that all share takes time.
        let shared = |key: u64, request: &str| (key, request.to_owned());
        let batch = |caller: u64| {
            let events: Vec<(u64, String)> = match caller % 2 {
                0 => {
                    let first = [shared(9, "1"), shared(9, "9")].into_iter();
                    first.chain(own(9, caller)).chain([shared(5, "5")]).collect()
                }
                _ => {
                    let first = [shared(5, "5")].into_iter();
                    first.chain(own(5, caller)).chain([shared(9, "9")]).collect()
                }
            };
            let events: Vec<_> = events.iter().map(|(key, id)| part(*key, id)).collect();
            format!("[{}]", events.join(","))
        };
        let address = daemon.address();
        let json = [("content-type", "application/json")];
        let calls = (0..CALLERS).map(|caller| {
            let body = match caller {
                0 => event(99, r#","payload":1"#),
                _ => batch(caller),
            };
            tokio::spawn(async move { send(address, "POST", EVENTS, &json, body).await.unwrap() })
        });
        for call in calls.collect::<Vec<_>>() {
            let answer = call.await.unwrap();
            assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        }
    }
    let new = i64::try_from(3 * (1 + 3 + OWN * (CALLERS - 1))).unwrap();
    eventually("all are counted", async || {
        let statistics = scene.db.store.statistics(&scene.db.outbox).await.unwrap();
        (statistics.appended == new).then_some(())
    })
    .await;
    daemon.stop().await;
}

async fn a_bad_request_is_refused_with_its_reason_and_appends_nothing(place: Place) {
    let settings = Settings::new().server("body_bytes_max", 6_000_000);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let good = event(1, r#","payload":{}"#);
    let missing = r#"{"aggregate_type":"order","event_type":"OrderPlaced","payload":{}}"#;
    let large = event(1, &format!(r#","payload_text":"{}""#, "x".repeat(4 * 1024 * 1024 + 1)));
    let huge = event(1, &format!(r#","payload_text":"{}""#, "x".repeat(6_000_000)));
    let elsewhere = "/api/v1/outboxes/nowhere/events";
    for (path, body, status, word) in [
        (EVENTS, "{not json", 400, "not valid JSON"),
        (EVENTS, "", 400, "not valid JSON"),
        (EVENTS, missing, 422, "aggregate_id"),
        (EVENTS, &event(1, r#","payload":{},"priority":1"#), 422, "priority"),
        (EVENTS, &event(1, ""), 422, "payload"),
        (EVENTS, &event(1, r#","payload":{},"payload_text":"x""#), 422, "payload_text"),
        (EVENTS, &event(1, r#","payload":{},"deliver_after":"soon""#), 422, "soon"),
        (EVENTS, &event(1, r#","payload":{},"max_retries":0"#), 422, "max_retries"),
        (EVENTS, &event(1, r#","payload_text":"a\u0000b""#), 422, "NUL"),
        (EVENTS, &event(1, r#","payload":{},"request_id":"""#), 422, "request_id"),
        (EVENTS, "[]", 422, "1 to"),
        (EVENTS, &large, 422, "4194304"),
        (EVENTS, &huge, 413, "6000000"),
        // The last one of a list is bad: none of it is appended.
        (EVENTS, &format!("[{good},{good},{missing}]"), 422, "aggregate_id"),
        (EVENTS, &format!("[{good},{}]", event(2, "")), 422, "event 1"),
        (elsewhere, &good, 404, "orders"),
        ("/api/v2", &good, 404, "nothing at this path"),
    ] {
        let start: String = body.chars().take(80).collect();
        let answer = daemon.post(path, body).await;
        assert_problem(&answer, status, word, &start);
    }
    let address = daemon.address();
    let form = send(address, "POST", EVENTS, &[("content-type", "text/plain")], good.clone()).await;
    assert_problem(&form.unwrap(), 415, "application/json", "wrong type");
    let foreign = [("content-type", "application/json"), ("host", "evil.example")];
    let rebound = send(address, "POST", EVENTS, &foreign, good).await;
    assert_problem(&rebound.unwrap(), 403, "token", "foreign host");
    let put = send(address, "PUT", EVENTS, &[], "").await.unwrap();
    assert_problem(&put, 405, "openapi.json", "a method that is not there");

    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
    assert_eq!(scene.db.count("").await, 0, "nothing was appended");
    scene.settle_up(&[], 0).await;
}

pub(crate) fn assert_problem(answer: &Response, status: u16, word: &str, request: &str) {
    assert_eq!(answer.status, status, "{request}: {answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{request}: {answer:?}");
    let problem = answer.json();
    assert_eq!(problem["status"], status);
    assert!(problem["detail"].as_str().unwrap().contains(word), "{request}: `{word}`: {problem:#}");
}

async fn only_the_token_opens_a_guarded_endpoint(place: Place) {
    let token = "correct-horse-battery";
    let settings = Settings::new().server("token", "env:E2E_TOKEN");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon: Daemon = scene.site.launch(&[], &[("E2E_TOKEN", token)]).await;
    daemon.ready().await;
    let (address, body) = (daemon.address(), event(1, r#","payload":{}"#));
    let bearer = format!("Bearer {token}");
    for (authorization, status) in
        [("", 401), ("Bearer wrong", 401), ("Basic correct-horse-battery", 401), (&bearer, 201)]
    {
        let json = ("content-type", "application/json");
        // With a token, any name of this machine will do.
        let headers = [json, ("host", "relay.example"), ("authorization", authorization)];
        let answer = send(address, "POST", EVENTS, &headers, body.clone()).await.unwrap();
        assert_eq!(answer.status, status, "{authorization}: {answer:?}");
    }
    assert_eq!(daemon.get("/metrics").await.unwrap().status, 401);
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(send(address, "GET", "/metrics", &headers, "").await.unwrap().status, 200);
    assert_eq!(daemon.get("/healthz").await.unwrap().status, 200, "probes need no token");
    scene.drained().await;
    let log = daemon.stop().await;
    assert!(!log.contains(token), "the token is not logged");
    scene.configure(&Settings::new());
    scene.reconcile().await;
}

async fn an_outbox_that_cannot_be_worked_on_makes_readiness_fail(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    assert_eq!(daemon.get("/readyz").await.unwrap().status, 200);
    scene.db.execute("ALTER TABLE orders_outbox RENAME COLUMN headers TO mislaid").await;
    let unready = eventually("the daemon is not ready", async || {
        let answer = daemon.get("/readyz").await.unwrap();
        (answer.status != 200).then_some(answer)
    });
    let unready = unready.await;
    assert_eq!(unready.status, 503, "{unready:?}");
    let detail = unready.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("outbox orders"), "{detail}");
    eventually("doctor names the relay", async || {
        let doctor = scene.site.run(&["doctor"]).await;
        (doctor.code == Some(1) && doctor.stdout.contains("makes no progress")).then_some(())
    })
    .await;
    scene.db.execute("ALTER TABLE orders_outbox RENAME COLUMN mislaid TO headers").await;
    daemon.ready().await;
    let events = scene.append_orders(3).await;
    scene.received(&events).await;
    daemon.stop().await;
}

async fn health_readiness_and_metrics_are_served(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    assert_eq!(daemon.get("/healthz").await.unwrap().body, "ok\n");
    assert_eq!(daemon.get("/readyz").await.unwrap().body, "ready\n");
    let events = scene.append_orders(3).await;
    scene.received(&events).await;
    scene.drained().await;
    let raw = daemon.get("/metrics").await.unwrap();
    assert!(raw.body.contains("# HELP postrider_outbox_processed_total"), "{}", raw.body);
    daemon.reaches("postrider_outbox_processed_total", 3.0).await;
    let metrics = eventually("the gauges are there", async || {
        let metrics = daemon.metrics().await;
        metrics.names().contains("postrider_outbox_pending").then_some(metrics)
    });
    let metrics = metrics.await;
    for name in [
        "postrider_outbox_pending",
        "postrider_outbox_dlq_unresolved",
        "postrider_outbox_oldest_age_seconds",
        "postrider_outbox_claimed_total",
        "postrider_relay_lease_held",
        "postrider_claim_seconds_bucket",
        "postrider_deliver_seconds_count",
        "postrider_settle_seconds_sum",
    ] {
        assert!(metrics.names().contains(name), "{name} in {:?}", metrics.names());
    }
    assert_eq!(metrics.sum("postrider_relay_lease_held", &[]), 1.0);
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}
