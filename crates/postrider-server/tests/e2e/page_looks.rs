//! How the dashboard looks: accessible in light and dark mode, without overflow at any width, and
//! as pictures for the documentation.

use std::path::PathBuf;

use postrider::NewEvent;
use postrider_testkit::{Answer, Browser, Daemon, eventually};

use crate::page::{assert_quiet, at};
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        axe_finds_nothing_on_any_page_in_light_and_dark,
        nothing_sticks_out_at_any_width,
        pictures_for_the_documentation,
    });
}

/// Every page with a text that shows that it has loaded.
const PAGES: [(&str, &str, &str); 8] = [
    ("overview", "/", "p99"),
    ("events", "/events", "shown"),
    ("event", "/events/orders/{waiting}", "Hash verified"),
    ("dead-letters", "/dead-letters", "shown"),
    ("dead-letter", "/dead-letters/orders/1", "Hash verified"),
    ("outboxes", "/outboxes", "Last success"),
    ("alerts", "/alerts", "Resolved"),
    ("audit", "/audit", "dlq.resolve"),
];

/// A busy daemon: delivered, waiting and failed events, dead letters with two errors, an alert, a
/// job, and an entry in the audit trail.
async fn busy(scene: &Scene) -> (Daemon, i64) {
    let settings = Settings::new().relay("monitor_every", "300ms").thresholds("unresolved_at = 2");
    scene.configure(&settings.outbox("backoff_max", "10m").outbox("backoff_first", "10m"));
    scene.target.answer_by(|request| {
        let answer = |status, body: &str| Answer::status(status).body(body);
        match request.body.as_str() {
            body if body.contains("\"article\":13") => answer(422, "article 13 is not for sale"),
            body if body.contains("\"street\":null") => answer(400, "an address needs a street"),
            body if body.contains("\"article\":99") => answer(404, "article 99 is not there yet"),
            _ => Answer::ok(),
        }
    });
    let daemon = scene.site.start().await;
    let event = |number: usize, kind: &str, payload: String| {
        NewEvent::new("order", (4_000 + number).to_string(), kind, payload)
            .request_id(format!("checkout-{number}"))
            .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    };
    let order = |number: usize, article: usize| {
        event(
            number,
            if number.is_multiple_of(3) { "OrderPaid" } else { "OrderPlaced" },
            format!(
                r#"{{"order":{},"article":{article},"amount":"24.90","currency":"EUR"}}"#,
                4_000 + number
            ),
        )
    };
    let mut events: Vec<_> = (0..120).map(|number| order(number, 7)).collect();
    events.extend((120..126).map(|number| order(number, 13)));
    let address = r#"{"customer":81,"street":null,"city":"Bremen"}"#;
    events.extend((126..129).map(|n| event(n, "AddressChanged", address.to_owned())));
    events.extend((129..133).map(|number| order(number, 99)));
    let committed = scene.append(&events).await;
    scene.has_dead_letters(9).await;
    eventually("four events wait for their next attempt", async || {
        (scene.rows("FAILED").await == 4).then_some(())
    })
    .await;
    let post = async |path: &str, body: &str| {
        let answer = daemon.post(path, body).await;
        assert!(answer.status < 300, "{answer:?}");
    };
    post("/api/v1/outboxes/orders/dead-letters/9/resolve", r#"{"note":"the customer called"}"#)
        .await;
    post(
        "/api/v1/outboxes/orders/jobs",
        r#"{"work":{"kind":"dlq_resolve","filter":{"error":"nobody has this"}},"note":"a look"}"#,
    )
    .await;
    post("/api/v1/reconcile", "").await;
    eventually("an alert is active", async || {
        let alerts = daemon.get("/api/v1/alerts").await.unwrap().json();
        (!alerts["active"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    (daemon, committed.last().unwrap().id)
}

async fn visit(browser: &Browser, daemon: &Daemon, path: &str, sign: &str, waiting: i64) {
    browser.go(&at(daemon, &path.replace("{waiting}", &waiting.to_string()))).await;
    browser.says("main", sign).await;
    eventually("nothing is loading", async || {
        let script = "return document.querySelectorAll('.skeleton, main [aria-busy]').length;";
        (browser.script(script, Vec::new()).await == 0).then_some(())
    })
    .await;
}

async fn axe_finds_nothing_on_any_page_in_light_and_dark(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let (daemon, waiting) = busy(&scene).await;
    let mut faults = Vec::new();
    for dark in [false, true] {
        browser.screen(1280, 900, dark).await;
        for (name, path, sign) in PAGES {
            visit(&browser, &daemon, path, sign, waiting).await;
            let found = browser.accessibility_faults().await.into_iter();
            faults.extend(found.map(|fault| format!("{name} (dark: {dark}): {fault}")));
        }
        // A dialog over the last page, and the one of a bulk action.
        browser.go(&at(&daemon, "/dead-letters")).await;
        browser.press("article.group", "Retry all…").await;
        browser.says("dialog", "dry run").await;
        let found = browser.accessibility_faults().await.into_iter();
        faults.extend(found.map(|fault| format!("dialog (dark: {dark}): {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_quiet(&browser, &daemon).await;
    browser.close().await;
    daemon.stop().await;
}

async fn nothing_sticks_out_at_any_width(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let (daemon, waiting) = busy(&scene).await;
    for width in [360, 768, 1024, 1280, 2560] {
        browser.screen(width, 900, false).await;
        for (name, path, sign) in PAGES {
            visit(&browser, &daemon, path, sign, waiting).await;
            let script = "return [document.documentElement.scrollWidth, innerWidth];";
            let found = browser.script(script, Vec::new()).await;
            assert!(found[0].as_u64() <= found[1].as_u64(), "{name} at {width}: {found}");
        }
    }
    browser.close().await;
    daemon.stop().await;
}

/// Sends orders for a minute and a half with an outage in the middle, so that the charts have data.
async fn some_history(scene: &Scene, daemon: &Daemon) {
    for down in [false, true, false] {
        let answer = if down { Answer::status(503).body("closed") } else { Answer::ok() };
        scene.target.answer(answer);
        let path = "/api/v1/outboxes/orders/history";
        let samples = async || daemon.get(path).await.unwrap().json().as_array().unwrap().len();
        let enough = samples().await + 3;
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(250));
        while samples().await < enough {
            pace.tick().await;
            scene.append_orders(4).await;
        }
    }
}

/// `dev/pictures` sets `POSTRIDER_PICTURES` to a folder. Without it, the pictures go to the test's
/// own folder, so that the code runs in every test run.
async fn pictures_for_the_documentation(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let Some(browser) = Browser::open(place.test).await else { return };
    let (daemon, waiting) = busy(&scene).await;
    let folder = std::env::var_os("POSTRIDER_PICTURES").map(PathBuf::from);
    if folder.is_some() {
        some_history(&scene, &daemon).await;
    }
    let folder = folder.unwrap_or_else(|| scene.site.folder().to_owned());
    for (suffix, width, dark) in [("", 1280, false), ("-dark", 1280, true), ("-narrow", 360, false)]
    {
        browser.screen(width, if width < 500 { 780 } else { 900 }, dark).await;
        for (name, path, sign) in PAGES {
            visit(&browser, &daemon, path, sign, waiting).await;
            let file = folder.join(format!("page-{name}{suffix}.png"));
            browser.picture(&file, width > 500).await;
            assert!(file.metadata().unwrap().len() > 10_000, "{}", file.display());
        }
    }
    browser.close().await;
    daemon.stop().await;
}
