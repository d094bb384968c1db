//! Replies to callers.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use postrider_relay::gateway::{Call, GatewaySettings, Upstream};
use postrider_testkit::{TestDb, http::Reply as Says};

use super::{Scene, header, preset, problem, text};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        an_answer_is_asked_for_once_and_given_again_until_its_time_is_over,
        a_stampede_on_one_key_makes_one_call,
        callers_that_change_something_without_a_key_share_nothing,
        definite_refusals_go_to_the_caller_and_are_not_saved,
        refusals_are_cached_where_that_is_asked_for,
        an_answer_that_is_too_large_is_a_clear_502,
        what_is_no_call_of_this_upstream_is_refused_without_asking_it,
        credentials_come_from_the_settings_and_no_caller_replaces_them,
        an_answer_for_one_caller_is_given_to_no_other,
    );
}

async fn an_answer_is_asked_for_once_and_given_again_until_its_time_is_over(db: TestDb) {
    let short = Duration::from_millis(300);
    let scene = Scene::with(db, |settings| GatewaySettings { ttl: short, ..settings }).await;
    let first = scene.get("/character/42?world=1").await;
    assert_eq!((first.status().as_u16(), header(&first, "postrider-cache")), (200, "miss"));
    assert_eq!(text(&first), "hello /v1/character/42?world=1");
    let again = scene.get("/character/42?world=1").await;
    assert_eq!((again.status().as_u16(), header(&again, "postrider-cache")), (200, "hit"));
    assert_eq!((text(&again), header(&again, "content-type")), (text(&first), "text/plain"));
    assert_eq!(scene.asked().len(), 1);
    postrider_testkit::eventually("the answer is too old", async || {
        let later = scene.get("/character/42?world=1").await;
        (header(&later, "postrider-cache") == "miss").then_some(())
    })
    .await;
    assert_eq!(scene.asked().len(), 2);
    assert_eq!(scene.db.count("").await, 0, "nothing is saved");
}

async fn a_stampede_on_one_key_makes_one_call(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.server.shut();
    let callers = join_all((0..100).map(|_| scene.get("/character/1")));
    let opening = async {
        scene.server.until("the call is there", |all| !all.requests.is_empty()).await;
        scene.server.open();
    };
    let (answers, ()) = tokio::join!(callers, opening);
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!(scene.asked().len(), 1);
}

async fn callers_that_change_something_without_a_key_share_nothing(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    let callers = join_all((0..5).map(|_| scene.send(Method::POST, "/points", &[])));
    assert!(callers.await.iter().all(|answer| answer.status() == 200));
    assert_eq!(scene.asked().len(), 5, "each is an order of its own");
    let key = [("idempotency-key", "order-1")];
    for word in ["miss", "hit"] {
        let answer = scene.send(Method::POST, "/points", &key).await;
        assert_eq!(header(&answer, "postrider-cache"), word);
    }
    assert_eq!(scene.asked().len(), 6);
}

async fn definite_refusals_go_to_the_caller_and_are_not_saved(db: TestDb) {
    let scene = Scene::open(db).await;
    for status in [400, 404, 409, 410, 422, 451] {
        scene.says(move |_| Says::Full(status, Vec::new(), "no".to_owned()));
        for _ in 0..2 {
            let answer = scene.get(&format!("/{status}")).await;
            assert_eq!((answer.status().as_u16(), text(&answer)), (status, "no"));
        }
    }
    assert_eq!(scene.asked().len(), 12, "none is cached");
    assert_eq!(scene.db.count("").await, 0);
}

async fn refusals_are_cached_where_that_is_asked_for(db: TestDb) {
    let negative_ttl = Duration::from_secs(60);
    let scene = Scene::with(db, |settings| GatewaySettings { negative_ttl, ..settings }).await;
    for (status, asked) in [(404, 1), (410, 2), (400, 4)] {
        scene.says(move |_| Says::Status(status));
        for _ in 0..2 {
            assert_eq!(scene.get(&format!("/{status}")).await.status(), status);
        }
        assert_eq!(scene.asked().len(), asked, "{status}");
    }
}

async fn an_answer_that_is_too_large_is_a_clear_502(db: TestDb) {
    let scene =
        Scene::with(db, |settings| GatewaySettings { answer_bytes_max: 10, ..settings }).await;
    scene.says(|request| match request.target.as_str() {
        "/v1/fits" => Says::Full(200, Vec::new(), "x".repeat(10)),
        "/v1/says-so" => Says::Full(200, Vec::new(), "x".repeat(11)),
        // The announced length is far beyond the limit.
        _ => Says::Flood(100_000_000),
    });
    assert_eq!(scene.get("/fits").await.status(), 200);
    for target in ["/says-so", "/flood"] {
        let answer = scene.get(target).await;
        assert_eq!(answer.status(), 502);
        let detail = problem(&answer)["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("answer_bytes_max") && detail.contains("10 bytes"), "{detail}");
    }
    assert_eq!(scene.db.count("").await, 0, "another call would be as large");
}

async fn what_is_no_call_of_this_upstream_is_refused_without_asking_it(db: TestDb) {
    let scene = Scene::open(db).await;
    let refused = scene.send(Method::DELETE, "/a", &[]).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "allow")), (405, "GET, HEAD"));
    assert!(problem(&refused)["detail"].as_str().unwrap().contains("methods"));
    for target in ["a", "/../admin", "/%2e%2e/admin", "/a%2", "/a b", "http://elsewhere/"] {
        let refused = scene.send(Method::GET, target, &[]).await;
        assert_eq!(refused.status(), 400, "{target}");
        assert!(text(&refused).contains("malformed path"), "{target}: {}", text(&refused));
    }
    let key = |value| ("idempotency-key", value);
    for keys in [&[key("")][..], &[key("a"), key("b")], &[key("a"), key("a")]] {
        let refused = scene.send(Method::GET, "/a", keys).await;
        assert_eq!(refused.status(), 400, "{keys:?}");
        assert!(text(&refused).contains("Idempotency-Key"), "{}", text(&refused));
    }
    assert!(scene.asked().is_empty());
}

async fn credentials_come_from_the_settings_and_no_caller_replaces_them(db: TestDb) {
    let scene = Scene::open(db).await;
    let headers = [
        ("authorization", "Bearer of-the-caller"),
        ("x-api-key", "of the caller"),
        ("cookie", "a=b"),
        ("accept-language", "ko"),
    ];
    assert_eq!(scene.send(Method::GET, "/a", &headers).await.status(), 200);
    let other = [("accept-language", "en")];
    assert_eq!(scene.send(Method::GET, "/a", &other).await.status(), 200);
    let received = scene.server.received();
    assert_eq!(received.requests.len(), 2, "another language is another call");
    let request = &received.requests[0];
    assert_eq!(request.header("x-api-key"), ["of the settings"]);
    assert_eq!(request.header("accept-language"), ["ko"]);
    assert!(request.header("authorization").is_empty() && request.header("cookie").is_empty());
    drop(received);
    for name in ["authorization", "Cookie", "x-api-key", "ho st"] {
        let settings = GatewaySettings {
            headers: vec![("x-api-key".to_owned(), "1".to_owned())],
            forward_headers: vec![name.to_owned()],
            ..GatewaySettings::new("nexon", "http://h")
        };
        let error = Upstream::new(settings, &preset()).err().unwrap().to_string();
        assert!(error.contains("`nexon`") && error.contains("forward_headers"), "{error}");
    }
}

async fn an_answer_for_one_caller_is_given_to_no_other(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| {
        let headers = vec![("cache-control", "private".to_owned()), ("set-cookie", "a=b".into())];
        Says::Full(200, headers, "mine".to_owned())
    });
    for _ in 0..2 {
        let answer = scene.gateway.fetch(Call::get("/me").unwrap()).await.into_response();
        assert_eq!((text(&answer), header(&answer, "set-cookie")), ("mine", ""));
    }
    assert_eq!(scene.asked().len(), 2);
}
