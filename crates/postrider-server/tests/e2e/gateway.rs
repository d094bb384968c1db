//! `[[gateway]]` in the real binary: killed at the worst moments, asked the wrong things.

use std::net::SocketAddr;

use postrider::Outbox;
use postrider_testkit::{
    FaultProxy, Installation, TestDb, eventually,
    http::{Receiver, Reply as Says},
    http_client::{Response, send},
    skip,
};
use serde_json::Value;

use crate::scene::{BINARY, Place};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    a_daemon_killed_between_save_and_answer_has_the_call_once_and_repeats_it,
    a_daemon_killed_between_replay_and_cache_write_repeats_the_call,
});

mod on_one_store {
    crate::scene::tests!(sqlite {
        a_daemon_killed_between_call_and_cache_write_asks_again,
        what_is_no_call_is_refused_with_cause_and_cure,
        odd_headers_are_answered_as_http_wants_it,
        who_may_not_append_may_not_call,
        metrics_count_what_callers_got,
        calls_of_callers_count_for_the_availability_and_the_list_of_sinks,
    });
}

/// Saved calls are repeated as soon as the upstream is back.
const AT_ONCE: &str = "replay_after = '0s'";

/// A gateway `nexon` before an upstream, on a database without tables yet.
struct Stage {
    db: TestDb,
    upstream: Receiver,
    site: Installation,
}

impl Stage {
    async fn open(place: Place, upstream: Receiver, settings: &str) -> Option<Self> {
        let db = TestDb::open_empty(place.server, place.test).await?;
        let db = db.with_outbox(Outbox::new("characters").unwrap());
        let stage = Self { site: Installation::new(BINARY, ""), db, upstream };
        stage.configure("", settings);
        let _ = stage.site.run(&["migrate"]).await.exits(0);
        Some(stage)
    }

    fn configure(&self, api: &str, settings: &str) {
        self.site.configure(&format!(
            "[store]\nurl = '{}'\nconnections_max = 4\n\
             [server]\nlisten = '127.0.0.1:0'\n\
             [api]\n{api}\n\
             [relay]\nlease = '3s'\nheartbeat_every = '300ms'\nrecover_every = '1s'\n\
             fold_every = '300ms'\nbackup_folder = 'backup'\n\
             [[outbox]]\nname = 'characters'\npreset = 'api-call'\nsink = 'nexon'\n\
             dedupe = 'open'\nidle_poll = '100ms'\nbackoff_first = '100ms'\n\
             [[gateway]]\nname = 'nexon'\nurl = '{}'\n{settings}\n",
            self.db.url,
            self.upstream.url("/v1"),
        ));
    }

    async fn saved(&self) -> i64 {
        self.db.count("").await
    }

    fn asked(&self) -> usize {
        self.upstream.received().requests.len()
    }
}

async fn get(address: SocketAddr, path: &str) -> Result<Response, String> {
    send(address, "GET", path, &[("host", "localhost")], "").await
}

/// Until then, the upstream says 503.
async fn upstream_that_is_down() -> (Receiver, tokio::sync::watch::Sender<bool>) {
    let (up, is_up) = tokio::sync::watch::channel(false);
    let upstream = Receiver::start(move |request| match *is_up.borrow() {
        true => Says::Full(200, Vec::new(), format!("hello {}", request.target)),
        false => Says::Status(503),
    });
    (upstream.await, up)
}

async fn a_daemon_killed_between_save_and_answer_has_the_call_once_and_repeats_it(place: Place) {
    let (upstream, up) = upstream_that_is_down().await;
    let Some(stage) = Stage::open(place, upstream, AT_ONCE).await else { return };
    let daemon = stage.site.start().await;
    let proxy = FaultProxy::start(&daemon.address().to_string()).await;
    proxy.lose_answer_to(b"GET /gateway");
    let lost = get(proxy.address(), "/gateway/nexon/character/1").await;
    assert!(lost.is_err() && proxy.answers_lost() == 1, "{lost:?}");
    daemon.kill().await;
    assert_eq!(stage.saved().await, 1);

    let daemon = stage.site.start().await;
    let answer = get(daemon.address(), "/gateway/nexon/character/1").await.unwrap();
    assert_eq!((answer.status, &answer.json()["saved"]), (503, &Value::from(true)));
    assert_eq!(answer.headers["retry-after"], "60");
    assert_eq!(stage.saved().await, 1, "the same call, saved once");
    up.send_replace(true);
    eventually("it is repeated", async || (stage.saved().await == 0).then_some(())).await;
    let answer = get(daemon.address(), "/gateway/nexon/character/1").await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello /v1/character/1"));
    assert_eq!(answer.headers["postrider-cache"], "hit");
    daemon.stop().await;
    let ledger = stage.site.run(&["reconcile", "--json"]).await.exits(0).json();
    assert_eq!(ledger[0]["delivered"]["count"], 1, "{ledger:#}");
}

/// A cache that the daemon reaches through a proxy, and settings that make it wait for it.
async fn slow_cache(test: &str) -> Option<(FaultProxy, String)> {
    let Ok(url) = std::env::var("REDIS_URL") else {
        skip(test, "the variable REDIS_URL is not set");
        return None;
    };
    let (proxy, through) = FaultProxy::in_front_of(&url).await;
    // A database of Redis per test would not be enough for all: a path that no other test asks for
    // is.
    Some((proxy, format!("{AT_ONCE}\ncache = '{through}'\ncache_timeout = '60s'")))
}

async fn a_daemon_killed_between_replay_and_cache_write_repeats_the_call(place: Place) {
    let Some((cache, settings)) = slow_cache(place.test).await else { return };
    let (upstream, up) = upstream_that_is_down().await;
    let Some(stage) = Stage::open(place, upstream, &settings).await else { return };
    let path = format!("/gateway/nexon/{}", uuid::Uuid::new_v4());
    let daemon = stage.site.start().await;
    assert_eq!(get(daemon.address(), &path).await.unwrap().status, 503);
    assert_eq!(stage.saved().await, 1);

    stage.upstream.shut();
    up.send_replace(true);
    let asked = stage.asked();
    stage.upstream.until("the relay repeats it", |all| all.requests.len() > asked).await;
    cache.blackhole();
    stage.upstream.open();
    stage.upstream.until("it is answered", |all| all.now == 0).await;
    daemon.kill().await;
    assert_eq!(stage.saved().await, 1, "the answer is nowhere yet");

    cache.pass();
    let daemon = stage.site.start().await;
    eventually("it is repeated once more", async || (stage.saved().await == 0).then_some(())).await;
    let answer = get(daemon.address(), &path).await.unwrap();
    assert_eq!((answer.status, answer.headers["postrider-cache"].as_str()), (200, "hit"));
    daemon.stop().await;
    assert_eq!(stage.db.count("_dlq").await, 0);
}

async fn a_daemon_killed_between_call_and_cache_write_asks_again(place: Place) {
    let Some((cache, settings)) = slow_cache(place.test).await else { return };
    let (upstream, up) = upstream_that_is_down().await;
    up.send_replace(true);
    let Some(stage) = Stage::open(place, upstream, &settings).await else { return };
    let path = format!("/gateway/nexon/{}", uuid::Uuid::new_v4());
    let daemon = stage.site.start().await;
    stage.upstream.shut();
    let (address, asked_path) = (daemon.address(), path.clone());
    let caller = tokio::spawn(async move { get(address, &asked_path).await });
    stage.upstream.until("it is called", |all| all.requests.len() == 1).await;
    cache.blackhole();
    stage.upstream.open();
    stage.upstream.until("it is answered", |all| all.now == 0).await;
    daemon.kill().await;
    let heard = caller.await.unwrap();
    assert!(heard.is_err(), "nothing was answered that is not in the cache: {heard:?}");

    // A write that the daemon sent before it died is lost with its connection.
    cache.cut();
    cache.pass();
    let daemon = stage.site.start().await;
    for word in ["miss", "hit"] {
        let answer = get(daemon.address(), &path).await.unwrap();
        assert_eq!((answer.status, answer.headers["postrider-cache"].as_str()), (200, word));
    }
    assert_eq!(stage.asked(), 2);
    assert_eq!(stage.saved().await, 0);
    daemon.stop().await;
}

async fn what_is_no_call_is_refused_with_cause_and_cure(place: Place) {
    let upstream = Receiver::start(|request| match request.target.as_str() {
        "/v1/large" => Says::Full(200, Vec::new(), "x".repeat(200)),
        target => Says::Full(200, vec![("content-security-policy", "x".into())], target.to_owned()),
    })
    .await;
    let Some(stage) = Stage::open(place, upstream, "answer_bytes_max = 100").await else { return };
    let daemon = stage.site.start().await;
    let at = daemon.address();
    let local = [("host", "localhost")];
    for (method, path, status, words) in [
        ("GET", "/gateway/nexn/a", 404, vec!["`nexn`", "nexon"]),
        ("GET", "/gateway/nexon/a/../../admin", 400, vec!["malformed path", ".."]),
        ("GET", "/gateway/nexon/%2e%2e/admin", 400, vec!["malformed path"]),
        ("GET", "/gateway/nexon/..%2fadmin", 400, vec!["malformed path"]),
        ("GET", "/gateway/nexon/a/..%5Cadmin", 400, vec!["malformed path"]),
        ("GET", "/gateway/nexon/..;a=b/admin", 400, vec!["malformed path"]),
        ("GET", "/gateway/nexon/%252e%252e/admin", 400, vec!["malformed path"]),
        ("GET", "/gateway/nexon/a%zz", 400, vec!["malformed path", "%"]),
        ("DELETE", "/gateway/nexon/a", 405, vec!["GET, HEAD", "methods"]),
        ("TRACE", "/gateway/nexon/a", 405, vec!["GET, HEAD"]),
        ("GET", "/gateway/nexon/large", 502, vec!["answer_bytes_max", "100 bytes"]),
    ] {
        let answer = send(at, method, path, &local, "").await.unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let problem = answer.json();
        assert_eq!(problem["status"], status);
        for word in words {
            assert!(problem["detail"].as_str().unwrap().contains(word), "`{word}`: {problem}");
        }
    }
    for (path, target) in [
        ("/gateway/nexon", "/v1/"),
        ("/gateway/nexon/", "/v1/"),
        ("/gateway/nexon/a/b?c=d%20e", "/v1/a/b?c=d%20e"),
    ] {
        let answer = get(at, path).await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, target));
        let policy = &answer.headers["content-security-policy"];
        assert!(policy.contains("sandbox"), "a page of the upstream is none of ours: {policy}");
    }
    assert_eq!(stage.saved().await, 0);
    daemon.stop().await;
}

/// As `curl` would send them.
async fn odd_headers_are_answered_as_http_wants_it(place: Place) {
    let upstream = Receiver::start(|request| {
        let headers = vec![
            ("etag", "\"1\"".to_owned()),
            ("connection", "x-hop".to_owned()),
            ("x-hop", "1".to_owned()),
            ("set-cookie", "a=b".to_owned()),
        ];
        Says::Full(200, headers, request.target.clone())
    })
    .await;
    let Some(stage) = Stage::open(place, upstream, "answer_headers = ['etag', 'x-hop']").await
    else {
        return;
    };
    let daemon = stage.site.start().await;
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let headers = [&[("host", "localhost")][..], headers].concat();
        send(daemon.address(), method, path, &headers, "").await.unwrap()
    };
    for word in ["miss", "hit"] {
        let head = ask("HEAD", "/gateway/nexon/a", &[]).await;
        assert_eq!((head.status, head.headers["postrider-cache"].as_str()), (200, word));
        assert_eq!(head.headers["content-length"], "5", "/v1/a");
        assert_eq!(head.headers["via"], "1.1 postrider");
        assert!(!head.headers.contains_key("x-hop") && !head.headers.contains_key("set-cookie"));
    }
    let same = ask("GET", "/gateway/nexon/a", &[("if-none-match", "\"0\", W/\"1\"")]).await;
    assert_eq!((same.status, same.body.as_str()), (304, ""));
    assert!(!same.headers.contains_key("content-length"), "{same:?}");
    let hostile = [
        ("connection", "close, accept-language"),
        ("accept-language", "ko"),
        ("te", "trailers"),
        ("x-http-method-override", "DELETE"),
        ("expect", "something"),
        ("range", "bytes=0-1"),
        ("accept", "text/plain"),
    ];
    let answer = ask("GET", "/gateway/nexon/b", &hostile).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "/v1/b"));
    let received = stage.upstream.received();
    let request = received.requests.last().unwrap();
    assert_eq!(request.header("accept"), ["text/plain"]);
    for name in ["accept-language", "te", "x-http-method-override", "expect", "range", "connection"]
    {
        assert!(request.header(name).is_empty(), "{name}: {request:?}");
    }
    drop(received);
    daemon.stop().await;
}

async fn who_may_not_append_may_not_call(place: Place) {
    let upstream = Receiver::start(|_| Says::Status(200)).await;
    let Some(stage) = Stage::open(place, upstream, "").await else { return };
    let new_token = async |role: &str| {
        let args = ["token", "new", "--name", role, "--role", role, "--json"];
        let made = stage.site.run(&args).await.exits(0).json();
        ["token", "line"].map(|key| made[key].as_str().unwrap().to_owned())
    };
    let [viewer, first] = new_token("viewer").await;
    let [operator, second] = new_token("operator").await;
    std::fs::write(stage.site.path("tokens"), format!("{first}\n{second}")).unwrap();
    stage.configure("requests_per_s = 1\ntokens_file = 'tokens'", "");
    let daemon = stage.site.start().await;
    let path = "/gateway/nexon/a";
    let call = async |token: Option<&str>| {
        let bearer = format!("Bearer {}", token.unwrap_or_default());
        let headers = [("host", "localhost"), ("authorization", bearer.as_str())];
        let headers = if token.is_some() { &headers[..] } else { &headers[..1] };
        send(daemon.address(), "GET", path, headers, "").await.unwrap().status
    };
    assert_eq!((call(None).await, call(Some(&viewer)).await), (401, 403));
    assert_eq!(stage.asked(), 0);
    for _ in 0..10 {
        assert_eq!(call(Some(&operator)).await, 200, "calls are what a gateway is for: no limit");
    }
    assert!(stage.upstream.received().requests[0].header("authorization").is_empty());
    daemon.stop().await;
}

async fn metrics_count_what_callers_got(place: Place) {
    let (upstream, up) = upstream_that_is_down().await;
    let Some(stage) = Stage::open(place, upstream, AT_ONCE).await else { return };
    let daemon = stage.site.start().await;
    let nexon = [("gateway", "nexon")];
    daemon.shows("postrider_gateway_hits_total", &nexon, 0.0).await;
    let status = async |path: &str| get(daemon.address(), path).await.unwrap().status;
    assert_eq!((status("/gateway/nexon/a").await, status("/gateway/nexon/a").await), (503, 503));
    daemon.shows("postrider_gateway_unavailable_total", &nexon, 2.0).await;
    daemon.shows("postrider_gateway_saved_total", &nexon, 1.0).await;
    daemon.shows("postrider_gateway_repeats_total", &nexon, 1.0).await;
    up.send_replace(true);
    eventually("it is repeated", async || (stage.saved().await == 0).then_some(())).await;
    daemon.reaches("postrider_gateway_replays_total", 1.0).await;
    for path in ["/gateway/nexon/a", "/gateway/nexon/b", "/gateway/nexon/b"] {
        assert_eq!(status(path).await, 200);
    }
    daemon.shows("postrider_gateway_hits_total", &nexon, 2.0).await;
    daemon.shows("postrider_gateway_misses_total", &nexon, 3.0).await;
    daemon.stop().await;
}

/// Nothing is repeated within this test: whatever is known of the upstream, callers found out.
async fn calls_of_callers_count_for_the_availability_and_the_list_of_sinks(place: Place) {
    let (upstream, up) = upstream_that_is_down().await;
    let settings = "replay_after = '1h'";
    let Some(stage) = Stage::open(place, upstream, settings).await else { return };
    let daemon = stage.site.start().await;
    for number in 0..5 {
        let path = format!("/gateway/nexon/{number}");
        assert_eq!(get(daemon.address(), &path).await.unwrap().status, 503);
    }
    let sink = [("sink", "nexon")];
    eventually("the availability is known", async || {
        let metrics = daemon.metrics().await;
        (metrics.sum("postrider_destination_availability", &sink) < 1.0).then_some(())
    })
    .await;
    daemon.shows("postrider_destination_open", &sink, 1.0).await;
    daemon.shows("postrider_destination_opened_total", &sink, 1.0).await;
    let sinks = daemon.get("/api/v1/sinks").await.unwrap().json();
    assert_eq!((&sinks[0]["name"], &sinks[0]["up"]), (&"nexon".into(), &false.into()), "{sinks}");
    up.send_replace(true);
    eventually("a caller finds out that it is back", async || {
        let answer = get(daemon.address(), "/gateway/nexon/back").await.unwrap();
        (answer.status == 200).then_some(())
    })
    .await;
    daemon.shows("postrider_destination_open", &sink, 0.0).await;
    daemon.stop().await;
}
