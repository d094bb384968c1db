//! The cache in Redis: shared by processes, and never in the way.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{
    Sink,
    gateway::{CacheSettings, Call, Gateway, GatewaySettings, GatewaySink, Upstream},
};
use postrider_store::Appender;
use postrider_testkit::{FaultProxy, PrivateServer, TestDb, eventually, http::Reply as Says, skip};

use super::{Scene, header, hello, preset, text};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        processes_share_their_answers_in_redis,
        answers_are_kept_by_a_replica_that_was_promoted,
        calls_go_on_without_a_cache_that_is_down_or_silent,
        an_answer_in_redis_grows_old_and_is_given_while_the_upstream_is_down,
        a_refusal_in_redis_is_given_for_its_own_time_whatever_the_time_of_old_answers,
        redis_keeps_the_newer_of_two_answers,
        a_definite_answer_ends_an_older_one,
        a_definite_answer_ends_an_older_one_in_redis,
        an_answer_in_redis_is_no_longer_stale_than_the_settings_say_now,
        an_answer_from_redis_has_all_its_headers,
        a_cache_that_is_not_there_is_found_by_the_check,
    );
}

/// Sets a name that no other test uses: they share the server.
pub(super) fn named(settings: GatewaySettings, cache: CacheSettings) -> GatewaySettings {
    let name = format!("t{}", &uuid::Uuid::new_v4().simple().to_string()[..16]);
    GatewaySettings { name, cache, ..settings }
}

pub(super) fn redis(test: &str) -> Option<String> {
    let url = std::env::var("REDIS_URL").ok();
    if url.is_none() {
        skip(&format!("gateway::cache::{test}"), "the variable REDIS_URL is not set");
    }
    url
}

pub(super) fn on_redis(url: &str) -> CacheSettings {
    CacheSettings::Redis { url: url.to_owned(), timeout: Duration::from_secs(2) }
}

/// Creates the gateway of another process in front of the same upstream.
pub(super) async fn other_process(scene: &Scene, settings: GatewaySettings) -> Gateway {
    let upstream = Arc::new(Upstream::new(settings, &preset()).unwrap());
    let appender = Appender::connect(&scene.db.url, 1).await.unwrap();
    Gateway::new(upstream, scene.outbox.clone(), appender)
}

async fn processes_share_their_answers_in_redis(db: TestDb) {
    let Some(url) = redis("processes_share_their_answers_in_redis") else { return };
    let scene = Scene::with(db, |settings| named(settings, on_redis(&url))).await;
    assert_eq!(header(&scene.get("/character/1").await, "postrider-cache"), "miss");
    let settings = GatewaySettings {
        name: scene.gateway.name().to_owned(),
        cache: on_redis(&url),
        ..GatewaySettings::new("", scene.server.url("/v1"))
    };
    let other = other_process(&scene, settings).await;
    let answer = other.fetch(Call::get("/character/1").unwrap()).await.into_response();
    assert_eq!(header(&answer, "postrider-cache"), "hit");
    assert_eq!(text(&answer), "hello /v1/character/1");
    assert_eq!(header(&answer, "content-type"), "text/plain");
    assert_eq!(scene.asked().len(), 1);
}

/// The old master keeps the connection and refuses whatever is written.
async fn answers_are_kept_by_a_replica_that_was_promoted(db: TestDb) {
    let test = "gateway::cache::answers_are_kept_by_a_replica_that_was_promoted";
    let Some(old) = PrivateServer::of("redis", "REDIS_URL", test).await else { return };
    let new = PrivateServer::of("redis", "REDIS_URL", test).await.unwrap();
    let (proxy, url) = FaultProxy::in_front_of(&old.url).await;
    let scene = Scene::with(db, |settings| named(settings, on_redis(&url))).await;
    assert_eq!(header(&scene.get("/1").await, "postrider-cache"), "miss");
    assert_eq!(header(&scene.get("/1").await, "postrider-cache"), "hit");
    let address = new.url.trim_start_matches("redis://").trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').unwrap();
    let client = redis::Client::open(old.url.as_str()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg(host).arg(port).exec_async(&mut connection).await.unwrap();
    eventually("the old master is a replica in step", async || {
        let info: String = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection.clone())
            .await
            .ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    proxy.lead_to(address);
    eventually("the new master has an answer", async || {
        (header(&scene.get("/2").await, "postrider-cache") == "hit").then_some(())
    })
    .await;
}

async fn calls_go_on_without_a_cache_that_is_down_or_silent(db: TestDb) {
    let test = "calls_go_on_without_a_cache_that_is_down_or_silent";
    let Some(url) = redis(test) else { return };
    let (proxy, through) = FaultProxy::in_front_of(&url).await;
    let timeout = Duration::from_millis(200);
    let cache = CacheSettings::Redis { url: through, timeout };
    let scene = Scene::with(db, |settings| named(settings, cache)).await;
    let word = async || header(&scene.get("/character/1").await, "postrider-cache").to_owned();
    assert_eq!((word().await, word().await), ("miss".to_owned(), "hit".to_owned()));
    for fail in [FaultProxy::cut, FaultProxy::blackhole] {
        fail(&proxy);
        let answer = tokio::time::timeout(Duration::from_secs(3), scene.get("/character/1")).await;
        let answer = answer.expect("no call waits for the cache");
        assert_eq!((answer.status().as_u16(), header(&answer, "postrider-cache")), (200, "miss"));
        proxy.pass();
        eventually("the cache is used again", async || (word().await == "hit").then_some(())).await;
    }
}

async fn an_answer_in_redis_grows_old_and_is_given_while_the_upstream_is_down(db: TestDb) {
    let test = "an_answer_in_redis_grows_old_and_is_given_while_the_upstream_is_down";
    let Some(url) = redis(test) else { return };
    let (ttl, stale_ttl) = (Duration::from_millis(1), Duration::from_secs(60));
    let scene = Scene::with(db, |settings| {
        named(GatewaySettings { ttl, stale_ttl, ..settings }, on_redis(&url))
    })
    .await;
    assert_eq!(scene.get("/character/1").await.status(), 200);
    scene.says(|_| postrider_testkit::http::Reply::Close);
    eventually("the answer is old", async || {
        (header(&scene.get("/character/1").await, "postrider-cache") == "stale").then_some(())
    })
    .await;
}

async fn a_refusal_in_redis_is_given_for_its_own_time_whatever_the_time_of_old_answers(db: TestDb) {
    let test = "a_refusal_in_redis_is_given_for_its_own_time_whatever_the_time_of_old_answers";
    let Some(url) = redis(test) else { return };
    let (negative_ttl, stale_ttl) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let scene = Scene::with(db, |settings| {
        named(GatewaySettings { negative_ttl, stale_ttl, ..settings }, on_redis(&url))
    })
    .await;
    scene.says(|_| postrider_testkit::http::Reply::Status(404));
    for word in ["miss", "hit"] {
        let answer = scene.get("/character/1").await;
        assert_eq!((answer.status().as_u16(), header(&answer, "postrider-cache")), (404, word));
    }
    let (mut connection, key) = only_key(&scene, &url).await;
    let left_ms: u64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
    assert!(left_ms <= 60_000, "{left_ms}: it does not grow old");
}

/// Returns a connection to the cache, and the key of the only answer in it.
async fn only_key(scene: &Scene, url: &str) -> (redis::aio::MultiplexedConnection, String) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let pattern = format!("postrider:gateway:{}:*", scene.gateway.name());
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(&pattern).query_async(&mut connection).await.unwrap();
    let [key] = <[String; 1]>::try_from(keys).unwrap();
    (connection, key)
}

/// A replay that was asked first and answered last must not undo what a caller got in between.
async fn redis_keeps_the_newer_of_two_answers(db: TestDb) {
    let Some(url) = redis("redis_keeps_the_newer_of_two_answers") else { return };
    let scene = Scene::with(db, |settings| named(settings, on_redis(&url))).await;
    assert_eq!(scene.get("/character/1").await.status(), 200);
    let (mut connection, key) = only_key(&scene, &url).await;
    let kept: Vec<u8> = redis::cmd("GETDEL").arg(&key).query_async(&mut connection).await.unwrap();

    scene.server.shut();
    let slow = scene.get("/character/1");
    let meanwhile = async {
        scene.server.until("the slow call is there", |all| all.requests.len() == 2).await;
        // Another process asked later, and already has its answer.
        let kept = String::from_utf8_lossy(&kept[16..]).replace("hello", "newer");
        let newer = format!("{:016}{kept}", 9_000_000_000_000_u64);
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&newer).arg("PX").arg(60_000);
        set.query_async::<()>(&mut connection).await.unwrap();
        scene.server.open();
    };
    let (answer, ()) = tokio::join!(slow, meanwhile);
    assert_eq!(text(&answer), "hello /v1/character/1", "what this caller asked for");
    assert_eq!(text(&scene.get("/character/1").await), "newer /v1/character/1");
}

async fn a_cache_that_is_not_there_is_found_by_the_check(db: TestDb) {
    let cache = CacheSettings::Redis {
        url: "redis://user:hush@127.0.0.1:1".to_owned(),
        timeout: Duration::from_secs(2),
    };
    let scene = Scene::with(db, |settings| named(settings, cache)).await;
    let error =
        GatewaySink::new(Arc::clone(&scene.upstream)).check().await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1") && !error.contains("hush"), "{error}");
    assert_eq!(scene.get("/character/1").await.status(), 200, "and calls go on without it");
    let wrong = CacheSettings::Redis { url: "hush".to_owned(), timeout: Duration::from_secs(1) };
    let settings = GatewaySettings { cache: wrong, ..GatewaySettings::new("a", "http://h") };
    let error = Upstream::new(settings, &preset()).err().unwrap().to_string();
    assert!(error.contains("`cache`") && !error.contains("hush"), "{error}");
}

async fn a_definite_answer_ends_an_older_one(db: TestDb) {
    definite_answers_end_an_older_one(db, |settings| settings).await;
}

async fn a_definite_answer_ends_an_older_one_in_redis(db: TestDb) {
    let Some(url) = redis("a_definite_answer_ends_an_older_one_in_redis") else { return };
    definite_answers_end_an_older_one(db, |settings| named(settings, on_redis(&url))).await;
}

/// A success that no longer holds must not come back as a stale answer when the upstream is down.
async fn definite_answers_end_an_older_one(
    db: TestDb,
    cached: impl FnOnce(GatewaySettings) -> GatewaySettings,
) {
    let (ttl, stale_ttl) = (Duration::from_millis(1), Duration::from_secs(60));
    let scene =
        Scene::with(db, |settings| cached(GatewaySettings { ttl, stale_ttl, ..settings })).await;
    let no_store = || vec![("cache-control", "no-store".to_owned())];
    let definite = [Says::Status(404), Says::Full(200, no_store(), "for one".to_owned())];
    for (number, says) in definite.into_iter().enumerate() {
        let target = format!("/character/{number}");
        scene.says(hello);
        assert_eq!(scene.get(&target).await.status(), 200);
        scene.says(move |_| says.clone());
        eventually("the definite answer is there", async || {
            (!text(&scene.get(&target).await).starts_with("hello")).then_some(())
        })
        .await;
        scene.says(|_| Says::Close);
        let answer = scene.get(&target).await;
        assert_eq!(answer.status(), 503, "{number}: {}", text(&answer));
    }
}

async fn an_answer_in_redis_is_no_longer_stale_than_the_settings_say_now(db: TestDb) {
    let test = "an_answer_in_redis_is_no_longer_stale_than_the_settings_say_now";
    let Some(url) = redis(test) else { return };
    let (ttl, stale_ttl) = (Duration::from_millis(1), Duration::from_secs(3_600));
    let scene = Scene::with(db, |settings| {
        named(GatewaySettings { ttl, stale_ttl, ..settings }, on_redis(&url))
    })
    .await;
    assert_eq!(scene.get("/character/1").await.status(), 200);
    let settings = GatewaySettings {
        name: scene.gateway.name().to_owned(),
        cache: on_redis(&url),
        ttl,
        ..GatewaySettings::new("", scene.server.url("/v1"))
    };
    let other = other_process(&scene, settings).await;
    let ask = async || other.fetch(Call::get("/character/1").unwrap()).await.into_response();
    eventually("the answer is old", async || {
        (header(&ask().await, "postrider-cache") == "miss").then_some(())
    })
    .await;
    assert_eq!(scene.get("/character/1").await.status(), 200, "kept for an hour once more");
    scene.says(|_| Says::Close);
    eventually("it is not given any more", async || (ask().await.status() == 503).then_some(()))
        .await;
}

async fn an_answer_from_redis_has_all_its_headers(db: TestDb) {
    let Some(url) = redis("an_answer_from_redis_has_all_its_headers") else { return };
    let scene = Scene::with(db, |settings| named(settings, on_redis(&url))).await;
    let name = "attachment; filename=\"r\u{e9}sum\u{e9}.txt\"";
    scene.says(move |_| {
        Says::Full(200, vec![("content-disposition", name.to_owned())], "x".to_owned())
    });
    for word in ["miss", "hit"] {
        let answer = scene.get("/a").await;
        assert_eq!(header(&answer, "postrider-cache"), word);
        let value = answer.headers().get("content-disposition").map(http::HeaderValue::as_bytes);
        assert_eq!(value, Some(name.as_bytes()), "{word}");
    }
}
