//! Who gets in: tokens, sessions, pages of other sites, limits.

use postrider_testkit::{
    eventually,
    http_client::{Response, send},
};
use serde_json::json;

use crate::api::assert_problem;
use crate::caller::{Caller, new_token, with_roles, write_tokens};
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        a_wrong_missing_or_expired_token_opens_nothing,
        a_token_that_is_taken_out_of_the_file_stops_working_while_the_daemon_runs,
        a_session_is_a_cookie_that_no_script_reads_and_no_other_site_uses,
        without_a_token_this_machine_is_local_and_pages_of_other_sites_change_nothing,
        a_client_that_asks_too_often_is_told_when_to_come_back,
        what_does_not_fit_is_a_problem_document_and_never_a_fault,
    });
}

async fn a_wrong_missing_or_expired_token_opens_nothing(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (viewer, line) = new_token(&scene, "vera", "viewer").await;
    let (gone, past) = new_token(&scene, "gone", "admin").await;
    let past = format!("{past} 2020-01-01T00:00:00Z");
    let args = ["token", "new", "--name", "ci", "--role", "operator", "--expires", "1h", "--json"];
    let soon = scene.site.run(&args).await.exits(0).json();
    scene
        .site
        .run(&["token", "new", "--name", "a b", "--role", "viewer"])
        .await
        .exits(2)
        .says(&["a b"]);
    write_tokens(&scene, &["# who may", &line, &past, soon["line"].as_str().unwrap()]);
    // Of the two that are configured here, one comes by the environment.
    scene.configure(&Settings::new().api("tokens_file", "tokens").api("tokens", "env:E2E_TOKENS"));
    let (other, other_line) = new_token(&scene, "envy", "viewer").await;
    let daemon = scene.site.launch(&[], &[("E2E_TOKENS", &other_line)]).await;
    daemon.ready().await;
    for (token, status, word) in [
        (None, 401, "Authorization"),
        (Some("postrider_wrong"), 401, "token new"),
        (Some(&viewer[..viewer.len() - 1]), 401, "token new"),
        (Some(gone.as_str()), 401, "expired"),
    ] {
        let answer = Caller { daemon: &daemon, token }.call("GET", "/api/v1/whoami", "").await;
        assert_problem(&answer, status, word, &format!("{token:?}"));
        let scheme = answer.headers.get("www-authenticate").map(String::as_str);
        assert_eq!(scheme, (status == 401).then_some("Bearer realm=\"postrider\""), "{token:?}");
    }
    for (token, name) in
        [(viewer.as_str(), "vera"), (&other, "envy"), (soon["token"].as_str().unwrap(), "ci")]
    {
        let me = Caller::with(&daemon, token).get("/api/v1/whoami").await;
        assert_eq!((&me["name"], &me["way"]), (&name.into(), &"token".into()), "{me}");
    }
    let log = daemon.stop().await;
    assert!(!log.contains(&viewer) && !log.contains(&gone), "tokens are not logged");
}

async fn a_token_that_is_taken_out_of_the_file_stops_working_while_the_daemon_runs(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (old, old_line) = new_token(&scene, "old", "admin").await;
    let (new, new_line) = new_token(&scene, "new", "viewer").await;
    write_tokens(&scene, &[&old_line]);
    let settings = Settings::new().api("sign_in_failures_per_min", 10_000);
    scene.configure(&settings.api("tokens_file", "tokens"));
    let daemon = scene.site.start().await;
    let status = async |token: &str| {
        Caller::with(&daemon, token).call("GET", "/api/v1/whoami", "").await.status
    };
    assert_eq!((status(&old).await, status(&new).await), (200, 401));
    let signed_in = daemon.post("/api/v1/session", &json!({ "token": old }).to_string()).await;
    let cookie = cookie_of(&signed_in);
    let becomes = async |token: &str, expected: u16| {
        let what = format!("{token} is answered {expected}");
        eventually(&what, async || (status(token).await == expected).then_some(())).await;
    };
    write_tokens(&scene, &["a line that cannot be read", &new_line]);
    becomes(&new, 200).await;
    assert_eq!(status(&old).await, 401, "a mistake beside it keeps no token alive");
    assert!(daemon.log().contains("line 1"), "the mistake is told: {}", daemon.log());
    let headers = [("cookie", cookie.as_str())];
    let session = send(daemon.address(), "GET", "/api/v1/whoami", &headers, "").await.unwrap();
    assert_eq!(session.status, 401, "the token takes its sessions along");
    std::fs::remove_file(scene.site.path("tokens")).unwrap();
    becomes(&new, 401).await;
    write_tokens(&scene, &[&new_line]);
    becomes(&new, 200).await;
    daemon.stop().await;
}

/// `name=value` of the cookie that an answer sets.
fn cookie_of(answer: &Response) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = &answer.headers["set-cookie"];
    for word in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(word), "{cookie}");
    }
    cookie.split(';').next().unwrap().to_owned()
}

async fn a_session_is_a_cookie_that_no_script_reads_and_no_other_site_uses(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let [viewer, operator, _] = with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    let wrong = daemon.post("/api/v1/session", r#"{"token":"postrider_guess"}"#).await;
    assert_problem(&wrong, 401, "token", "a wrong token");
    let body = json!({ "token": operator }).to_string();
    let json_type = ("content-type", "application/json");
    let cross = [json_type, ("sec-fetch-site", "cross-site")];
    let crossed = send(daemon.address(), "POST", "/api/v1/session", &cross, body.clone()).await;
    assert_problem(&crossed.unwrap(), 403, "another site", "signing in from elsewhere");
    let tls = [json_type, ("x-forwarded-proto", "https")];
    let secure = send(daemon.address(), "POST", "/api/v1/session", &tls, body.clone()).await;
    assert!(secure.unwrap().headers["set-cookie"].contains("; Secure"));

    let signed_in = daemon.post("/api/v1/session", &body).await;
    let cookie = cookie_of(&signed_in);
    assert_eq!(signed_in.json()["name"], "otto");
    assert!(!signed_in.body.contains(&operator) && !cookie.contains(&operator));
    let pause = "/api/v1/outboxes/orders/pause";
    let (cookie, page) = (("cookie", cookie.as_str()), ("x-postrider", "1"));
    for (method, path, more, status) in [
        ("GET", "/api/v1/whoami", vec![], 200),
        ("POST", pause, vec![], 403),
        ("POST", pause, vec![page, ("origin", "https://evil.example")], 403),
        ("POST", pause, vec![page, ("sec-fetch-site", "cross-site")], 403),
        ("POST", pause, vec![page, ("sec-fetch-site", "same-site")], 403),
        ("POST", pause, vec![page, ("sec-fetch-site", "same-origin")], 200),
        ("POST", pause, vec![page], 200),
    ] {
        let headers = [&[cookie, json_type][..], &more].concat();
        let answer = send(daemon.address(), method, path, &headers, "{}").await.unwrap();
        assert_eq!(answer.status, status, "{method} {path} {more:?}: {answer:?}");
    }
    let viewer = Caller::with(&daemon, &viewer);
    let audit = viewer.get("/api/v1/audit?action=outbox.pause").await;
    assert_eq!(audit["rows"][0]["operator"], "otto", "{audit:#}");
    assert_eq!(audit["rows"].as_array().unwrap().len(), 1, "the second pause changed nothing");

    let headers = [cookie, page];
    let out = send(daemon.address(), "DELETE", "/api/v1/session", &headers, "").await.unwrap();
    assert_eq!((out.status, out.headers["set-cookie"].contains("Max-Age=0")), (204, true));
    let after = send(daemon.address(), "GET", "/api/v1/whoami", &[cookie], "").await.unwrap();
    assert_problem(&after, 401, "session is over", "after signing out");
    daemon.stop().await;
}

async fn without_a_token_this_machine_is_local_and_pages_of_other_sites_change_nothing(
    place: Place,
) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    let me = Caller::anonymous(&daemon).get("/api/v1/whoami").await;
    assert_eq!((&me["name"], &me["role"]), (&"local".into(), &"admin".into()));
    let sign_in = daemon.post("/api/v1/session", r#"{"token":"x"}"#).await;
    assert_problem(&sign_in, 409, "no tokens", "signing in");
    let (pause, json_type) =
        ("/api/v1/outboxes/orders/pause", ("content-type", "application/json"));
    for (headers, word) in [
        (vec![json_type, ("host", "evil.example")], "loopback"),
        (vec![json_type, ("origin", "http://evil.example")], "another site"),
        (vec![json_type, ("sec-fetch-site", "cross-site")], "another site"),
    ] {
        let answer = send(daemon.address(), "POST", pause, &headers, "{}").await.unwrap();
        assert_problem(&answer, 403, word, &format!("{headers:?}"));
    }
    let state = Caller::anonymous(&daemon).get("/api/v1/outboxes/orders").await;
    assert!(state["paused"].is_null(), "{state:#}");
    let answer = daemon.get("/api/v1/whoami").await.unwrap();
    let header = |name: &str| answer.headers.get(name).cloned().unwrap_or_default();
    assert!(header("content-security-policy").contains("default-src 'none'"), "{answer:?}");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(
        (header("x-frame-options"), header("cache-control")),
        ("DENY".into(), "no-store".into())
    );
    daemon.stop().await;
}

async fn a_client_that_asks_too_often_is_told_when_to_come_back(place: Place) {
    let settings = Settings::new().api("requests_per_s", 5).api("sign_in_failures_per_min", 3);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let me = Caller::anonymous(&daemon);
    let refused = eventually("one request too many", async || {
        let answer = me.call("GET", "/api/v1/whoami", "").await;
        (answer.status != 200).then_some(answer)
    });
    let refused = refused.await;
    assert_problem(&refused, 429, "too many", "a request too many");
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1, "{refused:?}");
    let event = r#"{"aggregate_type":"a","aggregate_id":"1","event_type":"E","payload":1}"#;
    for _ in 0..20 {
        let appended = me.call("POST", "/api/v1/outboxes/orders/events", event).await;
        assert_eq!(appended.status, 201, "appending is not counted");
    }
    scene.drained().await;
    daemon.stop().await;

    let (token, line) = new_token(&scene, "vera", "viewer").await;
    write_tokens(&scene, &[&line]);
    let settings = settings.api("tokens_file", "tokens").api("requests_per_s", 1_000);
    scene.configure(&settings.server("token", "chosen-by-somebody"));
    let daemon = scene.site.start().await;
    let status = async |token: &str| {
        Caller::with(&daemon, token).call("GET", "/api/v1/whoami", "").await.status
    };
    assert_eq!(status("chosen-by-somebody").await, 200);
    let mut guesses = Vec::new();
    for guess in 0..5 {
        guesses.push(status(&format!("chosen-by-{guess}")).await);
    }
    assert_eq!(guesses, [401, 401, 401, 429, 429]);
    assert_eq!(status("chosen-by-somebody").await, 429, "what can be guessed is not looked at");
    assert_eq!(status(&token).await, 200, "a real token is never locked out");
    daemon.stop().await;
}

async fn what_does_not_fit_is_a_problem_document_and_never_a_fault(place: Place) {
    let settings = Settings::new().server("body_bytes_max", 2_000);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let events = scene.append_orders(2).await;
    let daemon = scene.site.start().await;
    scene.received(&events).await;
    scene.drained().await;
    let me = Caller::anonymous(&daemon);
    let large = format!(r#"{{"note":"{}"}}"#, "x".repeat(3_000));
    let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(1_500));
    let (list, retry) =
        ("/api/v1/outboxes/orders/events", "/api/v1/outboxes/orders/dead-letters/1/retry");
    for (method, path, body, status, word) in [
        ("POST", retry, large.as_str(), 413, "2000"),
        ("POST", retry, &long, 422, "note"),
        ("POST", retry, "{", 400, "JSON"),
        ("POST", retry, r#"{"operator":"somebody else"}"#, 422, "operator"),
        ("POST", retry, "{}", 404, "no dead letter 1"),
        ("PUT", retry, "{}", 405, "openapi"),
        ("GET", "/api/v1/outboxes/nowhere/events", "", 404, "orders"),
        ("GET", "/api/v1/outboxes/orders/events/first", "", 400, "path"),
        ("GET", "/api/v1/outboxes/orders/events/99999999999999999999", "", 400, "path"),
        ("GET", "/api/v1/outboxes/..%2f..%2fetc/events", "", 404, "orders"),
        ("GET", "/api/v1/outboxes/orders%00/events", "", 404, "orders"),
        ("GET", "/api/v1/outboxes/orders_outbox_dlq/events", "", 404, "orders"),
        ("GET", "/api/v1/../../etc/passwd", "", 404, "nothing"),
        ("GET", "//api/v1/outboxes", "", 404, "nothing"),
        ("GET", &format!("{list}?evnt_type=x"), "", 400, "evnt_type"),
        ("GET", &format!("{list}?limit=0"), "", 400, "1 to 500"),
        ("GET", &format!("{list}?limit=501"), "", 400, "1 to 500"),
        ("GET", &format!("{list}?before=x"), "", 400, "before"),
        ("GET", &format!("{list}?status=LOST"), "", 400, "PENDING"),
        ("GET", &format!("{list}?event_type=%00"), "", 400, "NUL"),
        ("GET", &format!("{list}?event_id=%C3%A4"), "", 400, "ASCII"),
        ("GET", &format!("{list}?event_type=%ff"), "", 400, "UTF-8"),
        ("GET", "/api/v1/audit?operator=%ff", "", 400, "UTF-8"),
        ("GET", &format!("{list}?created_since=yesterday"), "", 400, "query"),
        ("GET", &format!("{list}?created_since=%2B20000-01-01T00:00:00Z"), "", 400, "9999"),
    ] {
        let answer = me.call(method, path, body).await;
        assert_problem(&answer, status, word, &format!("{method} {path}"));
    }
    for sql in ["'", "' OR '1'='1", "x'; DROP TABLE orders_outbox; --", "%", "_", "\\", "\""] {
        let sql: String = sql.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for field in
            ["event_type", "aggregate_type", "aggregate_id", "event_id", "request_id", "error"]
        {
            for status in ["COMPLETED", "PENDING"] {
                let path = format!("{list}?status={status}&{field}={sql}");
                let found = me.get(&path).await;
                assert_eq!(found["rows"], json!([]), "{path}");
            }
        }
    }
    let all = me.get(&format!("{list}?status=COMPLETED")).await;
    assert_eq!(all["rows"].as_array().unwrap().len(), 2, "nothing was dropped");
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.stop().await;
}
