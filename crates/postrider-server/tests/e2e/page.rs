//! The dashboard in a real browser: signing in, what each role sees, and what happens when the
//! server goes away.

use std::process::Stdio;

use postrider_testkit::{Answer, Browser, Daemon, eventually, http_client::send};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::caller::{Caller, with_roles, write_tokens};
use crate::scene::{BINARY, Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        the_shell_is_served_to_anybody_and_its_files_never_change,
        a_viewer_sees_no_button_that_he_may_not_press_and_an_operator_his_own,
        a_page_of_another_site_changes_nothing_although_the_browser_knows_the_session,
        a_session_that_ends_leads_to_the_sign_in_and_back,
        the_server_goes_away_and_comes_back_and_the_page_follows,
        what_events_carry_is_text_and_never_markup,
        a_deeply_nested_payload_is_shown_in_little_room,
        rows_stay_where_they_are_while_new_ones_come,
        keys_lead_everywhere,
        pages_that_were_left_hold_no_connection,
        the_demo_names_its_page_and_the_page_is_alive_within_five_seconds,
    });
}

/// The address of a page.
pub(crate) fn at(daemon: &Daemon, path: &str) -> String {
    format!("http://{}{path}", daemon.address())
}

/// Asserts that the console has no errors and that only this server was asked.
pub(crate) async fn assert_quiet(browser: &Browser, daemon: &Daemon) {
    let console = browser.console().await;
    assert!(console.is_empty(), "the console says {console:#?}");
    let here = at(daemon, "/");
    let foreign = |url: &String| !url.starts_with(&here);
    let foreign: Vec<_> = browser.requests().await.into_iter().filter(foreign).collect();
    assert!(foreign.is_empty(), "asked elsewhere: {foreign:?}");
}

async fn sign_in(browser: &Browser, daemon: &Daemon, token: &str) {
    browser.go(&at(daemon, "/")).await;
    browser.says("main", "Sign in").await;
    browser.fill("input[name=token]", token).await;
    browser.press("form", "Sign in").await;
    browser.says("h1", "Overview").await;
    // The browser logs the 401 by which the dashboard learns that it is not signed in.
    browser.console().await.iter().for_each(|line| assert!(line.contains("401"), "{line}"));
}

async fn the_shell_is_served_to_anybody_and_its_files_never_change(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    for path in [
        "/",
        "/events",
        "/events/orders/1",
        "/dead-letters",
        "/dead-letters/orders/1",
        "/outboxes",
        "/alerts",
        "/audit",
    ] {
        let shell = daemon.get(path).await.unwrap();
        assert_eq!(shell.status, 200, "{path}");
        assert!(shell.headers["content-type"].starts_with("text/html"), "{path}");
        let policy = &shell.headers["content-security-policy"];
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(shell.headers["cache-control"], "no-cache");
    }
    let shell = daemon.get("/").await.unwrap();
    let tag = shell.headers["etag"].clone();
    let other = "\"other\"";
    for tags in [tag.clone(), format!("W/{tag}"), format!("{other}, {tag}"), "*".to_owned()] {
        let asked = [("if-none-match", tags.as_str())];
        let again = send(daemon.address(), "GET", "/", &asked, "").await.unwrap();
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{tags}");
    }
    let new = send(daemon.address(), "GET", "/", &[("if-none-match", other)], "").await.unwrap();
    assert_eq!(new.status, 200);
    let files = shell.body.split("=\"/page/").skip(1).filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for file in files {
        let found = daemon.get(&format!("/page/{file}")).await.unwrap();
        assert_eq!(found.status, 200, "{file}");
        assert!(found.headers["cache-control"].contains("immutable"), "{file}");
        count += 1;
    }
    assert!(count > 20, "{count} files in {}", shell.body);
    let old = daemon.get("/page/0000/main.js").await.unwrap();
    assert_eq!(old.status, 404);
    assert!(old.body.contains("reload the dashboard"), "{}", old.body);
    daemon.stop().await;
}

/// What each role sees of a scene with dead letters, a job, and outboxes and sinks to pause.
async fn a_viewer_sees_no_button_that_he_may_not_press_and_an_operator_his_own(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    let [viewer, operator, admin] = with_roles(&scene, Settings::new()).await;
    scene.append_orders(2).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;
    let work = json!({ "work": { "kind": "dlq_retry", "filter": { "error": "none has this" } } });
    let boss = Caller::with(&daemon, &admin);
    boss.expect("POST", "/api/v1/outboxes/orders/jobs", work.to_string(), 201).await;

    browser.go(&at(&daemon, "/")).await;
    browser.says("main", "Sign in").await;
    browser.fill("input[name=token]", "pr_wrong").await;
    browser.press("form", "Sign in").await;
    browser.says("form", "Invalid or expired token").await;
    for dark in [false, true] {
        browser.screen(1280, 900, dark).await;
        let faults = browser.accessibility_faults().await;
        assert!(faults.is_empty(), "sign-in, dark: {dark}: {faults:?}");
    }

    let operators = [
        "Verify ledger",
        "Retry all…",
        "Resolve all…",
        "Select page",
        "Retry all matching…",
        "Retry…",
        "Resolve…",
        "Edit and resend…",
        "Pause…",
    ];
    for (role, token) in [("viewer", &viewer), ("operator", &operator), ("admin", &admin)] {
        sign_in(&browser, &daemon, token).await;
        let mut buttons = Vec::new();
        for (path, sign) in [
            ("/", "Not verified since"),
            ("/events", "No undelivered events"),
            ("/dead-letters", "2 shown"),
            ("/dead-letters/orders/1", "Awaiting action"),
            ("/outboxes", "no rate limit"),
            ("/alerts", "Resolved"),
            ("/audit", "Note or outcome"),
        ] {
            browser.go(&at(&daemon, path)).await;
            browser.says("main", sign).await;
            buttons.extend(browser.all_words("button, a.button").await);
        }
        for button in operators {
            let shown = buttons.iter().any(|words| words == button);
            assert_eq!(shown, role != "viewer", "`{button}` for {role}: {buttons:?}");
        }
        let shown = buttons.iter().any(|words| words == "Claim mode…");
        assert_eq!(shown, role == "admin", "for {role}: {buttons:?}");
        browser.press("header", "Sign out").await;
        browser.says("main", "Sign in").await;
        let left = browser.script("return document.cookie;", Vec::new()).await;
        assert_eq!(left, "", "scripts cannot read the cookie");
    }
    browser.close().await;
    daemon.stop().await;
}

async fn a_page_of_another_site_changes_nothing_although_the_browser_knows_the_session(
    place: Place,
) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let [_, operator, _] = with_roles(&scene, Settings::new()).await;
    let daemon = scene.site.start().await;
    sign_in(&browser, &daemon, &operator).await;
    let pause = at(&daemon, "/api/v1/outboxes/orders/pause");
    // The dashboard itself, without the header that a form cannot send.
    let script = "const done = arguments[1]; \
        fetch(arguments[0], { method: 'POST', body: '{}', \
            headers: { 'content-type': 'application/json' } }) \
            .then((answer) => done(answer.status));";
    let status = browser.later(script, vec![Value::from(pause.clone())]).await;
    assert_eq!(status, 403);
    // Another origin on the same host: the cookie goes along, and the browser says who asks.
    scene.target.answer(Answer::status(200).body("<h1>evil</h1>"));
    browser.go(&scene.target.url()).await;
    let script = "const done = arguments[1]; \
        fetch(arguments[0], { method: 'POST', body: '{}', mode: 'no-cors', \
            credentials: 'include' }) \
            .then(() => done('sent'), () => done('refused'));";
    browser.later(script, vec![Value::from(pause)]).await;
    let outbox = Caller::with(&daemon, &operator).get("/api/v1/outboxes/orders").await;
    assert_eq!(outbox["paused"], Value::Null, "{outbox:#}");
    browser.close().await;
    daemon.stop().await;
}

async fn a_session_that_ends_leads_to_the_sign_in_and_back(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let [_, operator, _] = with_roles(&scene, Settings::new()).await;
    let lines = std::fs::read_to_string(scene.site.path("tokens")).unwrap();
    let daemon = scene.site.start().await;
    sign_in(&browser, &daemon, &operator).await;
    browser.go(&at(&daemon, "/audit")).await;
    browser.says("main", "No activity yet").await;
    write_tokens(&scene, &[lines.lines().next().unwrap()]);
    browser.says("main", "Your session has ended").await;
    write_tokens(&scene, &lines.lines().collect::<Vec<_>>());
    browser.fill("input[name=token]", &operator).await;
    eventually("the token works again", async || {
        let press = "document.querySelector('form.sign-in button')?.click();";
        browser.script(press, Vec::new()).await;
        browser.words().await.contains("No activity yet").then_some(())
    })
    .await;
    browser.close().await;
    daemon.stop().await;
}

/// The daemon is killed and started again: the dashboard says so, reconnects, and shows new data.
async fn the_server_goes_away_and_comes_back_and_the_page_follows(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    let address = daemon.address().to_string();
    browser.go(&at(&daemon, "/")).await;
    browser.says("header", "Live").await;
    assert_quiet(&browser, &daemon).await;
    daemon.kill().await;
    browser.says("body", "Connection lost.").await;
    browser.says("header", "Offline").await;
    browser.press("header", "Audit").await;
    browser.says("main", "No connection").await;
    let events = scene.append_orders(3).await;
    scene.configure(&Settings::new().server("listen", address));
    let daemon = scene.site.start().await;
    scene.received(&events).await;
    browser.says("header", "Live").await;
    browser.press("main", "Try again").await;
    browser.says("main", "No activity yet").await;
    assert!(!browser.words().await.contains("Connection lost"));
    browser.press("header", "Overview").await;
    browser.says("article.line", "orders").await;
    browser.close().await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
}

async fn what_events_carry_is_text_and_never_markup(place: Place) {
    let settings = Settings::new();
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let evil = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>";
    scene.target.answer(Answer::status(422).body(evil));
    let payload = json!({ "name": evil }).to_string();
    let event = postrider::NewEvent::new("order", evil, evil, payload);
    scene.append_one(event.header("note", evil)).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(1).await;
    for path in ["/", "/dead-letters", "/dead-letters/orders/1", "/outboxes", "/alerts"] {
        browser.go(&at(&daemon, path)).await;
        browser.says("header", "Live").await;
        eventually("it is shown as text", async || {
            browser
                .words()
                .await
                .contains(if path == "/" { "orders" } else { "onerror" })
                .then_some(())
        })
        .await;
        let hacked = browser.script("return window.hacked ?? null;", Vec::new()).await;
        assert_eq!(hacked, Value::Null, "{path}");
    }
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
}

/// With two more spaces for each level, 15,000 levels of a payload of 30 KB were 450 MB.
async fn a_deeply_nested_payload_is_shown_in_little_room(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    browser.go(&at(&daemon, "/")).await;
    browser.says("h1", "Overview").await;
    let script = "const done = arguments[1];
        const file = document.querySelector('[href*=\"story.js\"], [src*=\"story.js\"]');
        import(file.href ?? file.src).then(({ pretty }) => {
          const nested = '['.repeat(arguments[0]) + ']'.repeat(arguments[0]);
          done([pretty('{\"a\":[1]}'), pretty(nested).length]);
        });";
    let levels = 2_000;
    let shown = browser.later(script, vec![json!(levels)]).await;
    assert_eq!(shown[0], "{\n  \"a\": [\n    1\n  ]\n}");
    let length = shown[1].as_u64().unwrap();
    assert!(length < 200 * levels, "{length} characters for {levels} levels");
    assert_quiet(&browser, &daemon).await;
    daemon.stop().await;
}

async fn rows_stay_where_they_are_while_new_ones_come(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    scene.append_orders(3).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(3).await;
    browser.go(&at(&daemon, "/dead-letters")).await;
    browser.says("main", "3 shown").await;
    let place_of = "return document.querySelector('tbody tr').getBoundingClientRect().top;";
    let before = browser.script(place_of, Vec::new()).await;
    scene.append_orders(2).await;
    scene.has_dead_letters(5).await;
    browser.says(".fresh", "2 new").await;
    assert_eq!(browser.script(place_of, Vec::new()).await, before, "nothing moved");
    assert!(browser.words_of("tbody tr").await.contains("#3"), "the first row is the same");
    browser.press(".fresh", "2 new").await;
    browser.says("tbody tr", "#5").await;
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
}

/// A browser opens six connections to a server. Pages kept for the Back button would use them up.
async fn pages_that_were_left_hold_no_connection(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    for number in 0..10 {
        browser.go(&at(&daemon, &format!("/alerts?{number}"))).await;
        browser.says("header", "Live").await;
        let waited = "return performance.getEntriesByType('navigation')[0].requestStart;";
        let waited_ms = browser.script(waited, Vec::new()).await.as_f64().unwrap();
        assert!(waited_ms < 10_000.0, "load {number} waited {waited_ms} ms for a connection");
    }
    browser.close().await;
    daemon.stop().await;
}

async fn keys_lead_everywhere(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let daemon = scene.site.start().await;
    browser.go(&at(&daemon, "/")).await;
    browser.says("h1", "Overview").await;
    browser.keys("?").await;
    browser.says("dialog", "Keyboard shortcuts").await;
    browser.keys("\u{e00c}").await;
    eventually("Escape closes it", async || {
        browser.words_of("dialog").await.is_empty().then_some(())
    })
    .await;
    for (keys, title) in [
        ("ge", "Events"),
        ("gd", "Dead letters"),
        ("gs", "Outboxes and sinks"),
        ("ga", "Alerts"),
        ("gu", "Audit"),
        ("go", "Overview"),
        ("ge", "Events"),
    ] {
        browser.keys(keys).await;
        browser.says("h1", title).await;
    }
    browser.keys("/").await;
    let focused = "return document.activeElement.name;";
    assert_eq!(browser.script(focused, Vec::new()).await, "q");
    // The first Tab stop leads past the navigation.
    browser.go(&at(&daemon, "/events")).await;
    browser.says("h1", "Events").await;
    browser.keys("\u{e004}").await;
    let focused = "return document.activeElement.className;";
    assert_eq!(browser.script(focused, Vec::new()).await, "skip");
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
}

/// "Alive" is a chart with a line, which needs two points, and a rate above zero.
async fn the_demo_names_its_page_and_the_page_is_alive_within_five_seconds(place: Place) {
    let Some(browser) = Browser::open(place.test).await else { return };
    let folder = postrider_testkit::TempFolder::new();
    let mut demo = tokio::process::Command::new(BINARY);
    demo.args(["demo", "--seconds", "60"]).current_dir(folder.path());
    let mut demo = demo.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let url = loop {
        let line = lines.next_line().await.unwrap().expect("the demo goes on");
        if let Some((_, url)) = line.split_once("See the mail move:") {
            break url.trim().to_owned();
        }
    };
    tokio::spawn(async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} });
    browser.go(&url).await;
    let script = "const done = arguments[0]; const look = () => { \
        const line = document.querySelector('.charts .line.accent'); \
        const rate = document.querySelector('article.line .figure:nth-child(3) .figure-value'); \
        if (line && Number(rate?.textContent) > 0) return done(performance.now()); \
        requestAnimationFrame(look); }; look();";
    let alive_ms = browser.later(script, Vec::new()).await.as_f64().unwrap();
    assert!(alive_ms < 5_000.0, "alive after {alive_ms} ms");
    browser.close().await;
    demo.kill().await.unwrap();
}
