//! Requirements of HTTP for a gateway (RFC 9110).

use http::Method;
use postrider_relay::gateway::{Call, GatewaySettings, Upstream};
use postrider_testkit::{TestDb, http::Reply as Says};

use super::{Scene, header, hello, preset, text};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        an_answer_to_head_has_the_length_of_the_body_that_it_leaves_out,
        headers_named_by_connection_stay_on_their_connection,
        a_message_says_that_it_passed_through,
        a_caller_who_has_the_answer_gets_no_second_one,
        only_headers_on_the_list_reach_callers,
        an_empty_body_has_a_length,
    );
}

fn answering(headers: &'static [(&'static str, &'static str)]) -> Says {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Says::Full(200, headers, "hello".to_owned())
}

async fn an_answer_to_head_has_the_length_of_the_body_that_it_leaves_out(db: TestDb) {
    let scene = Scene::open(db).await;
    for word in ["miss", "hit"] {
        let answer = scene.send(Method::HEAD, "/a", &[]).await;
        assert_eq!((answer.status().as_u16(), header(&answer, "postrider-cache")), (200, word));
        assert_eq!(header(&answer, "content-length"), "hello /v1/a".len().to_string());
        assert_eq!(text(&answer), "");
    }
}

async fn headers_named_by_connection_stay_on_their_connection(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| answering(&[("etag", "\"1\""), ("link", "<x>"), ("connection", "x, ETag")]));
    let headers =
        [("accept", "a/b"), ("accept-language", "ko"), ("connection", "close, Accept-Language")];
    let answer = scene.send(Method::GET, "/a", &headers).await;
    assert_eq!((header(&answer, "etag"), header(&answer, "link")), ("", "<x>"));
    let received = scene.server.received();
    assert_eq!(received.requests[0].header("accept"), ["a/b"]);
    assert!(received.requests[0].header("accept-language").is_empty());
}

async fn a_message_says_that_it_passed_through(db: TestDb) {
    let scene = Scene::open(db).await;
    for word in ["miss", "hit"] {
        let answer = scene.get("/a").await;
        assert_eq!(
            (header(&answer, "postrider-cache"), header(&answer, "via")),
            (word, "1.1 postrider")
        );
    }
    assert_eq!(scene.server.received().requests[0].header("via"), ["1.1 postrider"]);
}

async fn a_caller_who_has_the_answer_gets_no_second_one(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| answering(&[("etag", "W/\"1\""), ("content-type", "x/y"), ("vary", "accept")]));
    for (tags, status) in [("\"0\", \"1\"", 304), ("\"1\"", 304), ("*", 304), ("\"2\"", 200)] {
        let answer = scene.send(Method::GET, "/a", &[("if-none-match", tags)]).await;
        assert_eq!(answer.status(), status, "{tags}");
        assert_eq!((header(&answer, "etag"), header(&answer, "vary")), ("W/\"1\"", "accept"));
        let (body, kind) = if status == 304 { ("", "") } else { ("hello", "x/y") };
        assert_eq!((text(&answer), header(&answer, "content-type")), (body, kind), "{tags}");
    }
    assert_eq!(scene.asked().len(), 1, "all of it from the cache");
    scene.says(|_| Says::Full(404, vec![("etag", "\"1\"".to_owned())], "no".to_owned()));
    let absent = scene.send(Method::GET, "/b", &[("if-none-match", "*")]).await;
    assert_eq!(absent.status(), 404);
}

async fn only_headers_on_the_list_reach_callers(db: TestDb) {
    let scene = Scene::open(db).await;
    scene.says(|_| {
        answering(&[
            ("content-type", "x/y"),
            ("x-powered-by", "x"),
            ("x-request-id", "1"),
            ("access-control-allow-headers", "*"),
            ("content-security-policy-report-only", "x"),
            ("refresh", "0; url=http://elsewhere"),
        ])
    });
    let answer = scene.get("/a").await;
    let mut names: Vec<&str> = answer.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "postrider-cache", "via"]);

    let with = |name: &str| GatewaySettings {
        answer_headers: vec![name.to_owned()],
        ..GatewaySettings::new("nexon", scene.server.url("/v1"))
    };
    for name in ["set-cookie", "Connection", "access-control-allow-origin", "a b"] {
        let error = Upstream::new(with(name), &preset()).err().unwrap().to_string();
        assert!(error.contains("`answer_headers`"), "{error}");
    }
    assert!(Upstream::new(with("X-Request-Id"), &preset()).is_ok());
}

async fn an_empty_body_has_a_length(db: TestDb) {
    let methods = vec!["POST".to_owned(), "DELETE".to_owned()];
    let scene = Scene::with(db, |settings| GatewaySettings { methods, ..settings }).await;
    scene.says(hello);
    for (method, length) in [(Method::POST, vec!["0"]), (Method::DELETE, vec![])] {
        let call = Call::new(method, "/a").unwrap();
        assert_eq!(scene.gateway.fetch(call).await.into_response().status(), 200);
        let received = scene.server.received();
        assert_eq!(received.requests.last().unwrap().header("content-length"), length);
    }
}
