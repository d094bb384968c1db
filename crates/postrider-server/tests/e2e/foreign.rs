//! Programs that others made to the same standards: they understand what Postrider sends, and
//! Postrider understands them.

use std::process::Stdio;

use postrider::NewEvent;
use postrider_testkit::{
    Answer,
    http::{Receiver, Reply},
    skip,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::caller::with_roles;
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        standard_webhooks_and_cloudevents_kits_take_deliveries,
        a_client_made_from_the_document_understands_every_answer,
        promtool_finds_no_fault_in_rules_and_metrics,
        curl_gets_standard_responses,
        curl_is_answered_by_the_gateway_as_by_its_upstream,
    });
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign");
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A program that a variable names. `None`, noted as skipped, where there is none.
fn program(place: Place, variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        skip(place.test, &format!("{variable} is not set; dev/test provides it"));
    }
    found
}

/// The receiver of `receiver.py`, and what it says.
struct Kits {
    _process: Child,
    port: u16,
    said: Lines<BufReader<ChildStdout>>,
}

impl Kits {
    async fn start(python: &str) -> Self {
        let mut process = Command::new(python)
            .args([&format!("{FOLDER}/receiver.py"), SECRET])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = said.next_line().await.unwrap().expect("its port").parse().unwrap();
        Self { _process: process, port, said }
    }

    /// What it made of the next request.
    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(postrider_testkit::PATIENCE, self.said.next_line()).await;
        serde_json::from_str(&line.expect("a request").unwrap().unwrap()).unwrap()
    }
}

async fn standard_webhooks_and_cloudevents_kits_take_deliveries(place: Place) {
    let Some(python) = program(place, "FOREIGN_PYTHON") else { return };
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let mut kits = Kits::start(&python).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for form in ["cloudevents-binary", "cloudevents-structured"] {
        let settings = Settings::new().sink("form", form).sink("signing_secrets", vec![SECRET]);
        scene.configure(&settings.sink("url", format!("http://127.0.0.1:{}/", kits.port)));
        let event = NewEvent::new("order", "größe 100%/\"1\"", "Bestellt €", r#"{"amount":5}"#);
        let committed = scene.append_one(event.header("traceparent", trace)).await;
        let daemon = scene.site.start().await;
        let took = kits.next().await;
        scene.drained().await;
        daemon.stop().await;
        let attributes = &took["attributes"];
        assert_eq!(attributes["id"], committed.event_id.as_str(), "{form}: {took:#}");
        assert_eq!(attributes["type"], "Bestellt €", "{form}: {took:#}");
        assert_eq!(attributes["subject"], "größe 100%/\"1\"", "{form}: {took:#}");
        assert_eq!(attributes["datacontenttype"], "application/json", "{form}: {took:#}");
        assert_eq!(attributes["traceparent"], trace, "{form}: {took:#}");
        assert_eq!(took["data"]["amount"], 5, "{form}: {took:#}");
    }
    assert!(scene.dead_letters().await.is_empty());
}

async fn a_client_made_from_the_document_understands_every_answer(place: Place) {
    let Some(python) = program(place, "FOREIGN_PYTHON") else { return };
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    let [_, _, admin] = with_roles(&scene, Settings::new()).await;
    scene.append_orders(2).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;
    scene.target.answer(Answer::ok());
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let make = ["-m", "openapi_python_client", "generate", "--path", document, "--meta", "none"];
    std::fs::create_dir(scene.site.path("client")).unwrap();
    let folder = scene.site.path("client/postrider_api");
    let made = Command::new(&python).args(make).arg("--output-path").arg(folder).output();
    let made = made.await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    let mut work = Command::new(&python);
    work.arg(format!("{FOLDER}/client.py")).arg(scene.site.path("client"));
    work.arg(format!("http://{}", daemon.address())).arg(admin);
    let worked = work.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&worked.stdout);
    assert!(said.contains("all understood"), "{said}{}", String::from_utf8_lossy(&worked.stderr));
    daemon.stop().await;
}

async fn promtool_finds_no_fault_in_rules_and_metrics(place: Place) {
    let Some(promtool) = program(place, "PROMTOOL") else { return };
    let run = async |args: &[&str], input: String| {
        let mut command = Command::new(&promtool);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.kill_on_drop(true).spawn().unwrap();
        let mut stdin = running.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let ran = running.wait_with_output().await.unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "promtool {args:?}: {out}{err}");
    };
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../grafana/alerts.yml");
    run(&["check", "rules", "--lint=all", "--lint-fatal", rules], String::new()).await;

    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::status(422).body("no"));
    scene.append_orders(3).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(3).await;
    daemon.shows("postrider_outbox_failed_total", &[("outbox", "orders")], 3.0).await;
    let metrics = daemon.get("/metrics").await.unwrap().body;
    run(&["check", "metrics"], metrics).await;
    daemon.stop().await;
}

/// What curl got: the status line, the headers in lower case, the body.
async fn curl(args: &[&str]) -> (u16, String, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--include", "--max-time", "20"]).args(args);
    let ran = command.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let error = String::from_utf8_lossy(&ran.stderr);
    // An interim answer has a head of its own.
    let said = said.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&said);
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{said}{error}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn has_curl(place: Place) -> bool {
    let there = std::process::Command::new("curl").arg("--version").output().is_ok();
    if !there {
        skip(place.test, "there is no curl");
    }
    there
}

async fn curl_gets_standard_responses(place: Place) {
    if !has_curl(place) {
        return;
    }
    let settings = Settings::new().server("body_bytes_max", 2_000);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let open = scene.site.start().await;
    let port = open.address().port();
    let whoami = format!("http://localhost:{port}/api/v1/whoami");
    // Without tokens, the host and the way of a request are the gate.
    for (args, status) in [
        (&["--http1.1"][..], 200),
        (&["--http1.0"], 200),
        (&["-H", "Host:"], 400),
        (&["-H", "Host: evil.example"], 403),
        (&["--request-target", "http://evil.example/api/v1/whoami"], 400),
        (&["--request-target", &whoami], 200),
        (&["-H", "Forwarded: for=192.0.2.1"], 403),
        (&["-H", "X-Forwarded-For: 192.0.2.1"], 403),
        (&["-H", "X-Forwarded-Host: localhost"], 403),
        (&["-H", "X-Real-IP: 192.0.2.1"], 403),
        (&["-H", "Via: 1.1 proxy"], 403),
        (&["-H", "Connection: close, X-Odd", "-H", "X-Odd: 1"], 200),
    ] {
        let (found, head, body) = curl(&[args, &[whoami.as_str()]].concat()).await;
        assert_eq!(found, status, "{args:?}: {head}\n{body}");
    }
    open.stop().await;

    let [_, _, admin] = with_roles(&scene, settings).await;
    let daemon = scene.site.start().await;
    let base = format!("http://{}/api/v1", daemon.address());
    let (whoami, events) = (format!("{base}/whoami"), format!("{base}/outboxes/orders/events"));
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        let header = format!("Authorization: {scheme} {admin}");
        assert_eq!(curl(&["-H", &header, &whoami]).await.0, 200, "{scheme}");
    }
    let header = format!("Authorization: Basic {admin}");
    assert_eq!(curl(&["-H", &header, &whoami]).await.0, 401);

    let bearer = format!("Authorization: Bearer {admin}");
    let event = r#"{"aggregate_type":"o","aggregate_id":"1","event_type":"T","payload":1}"#;
    let large = format!(r#"{{"aggregate_type":"{}"}}"#, "x".repeat(3_000));
    let json = "Content-Type: application/json";
    for (args, body, status) in [
        (&["-H", json][..], event, 201),
        (&["-H", json, "-H", "Transfer-Encoding: chunked"], event, 201),
        (&["-H", json, "-H", "Expect: 100-continue"], event, 201),
        (&["-H", "Content-Type: Application/JSON; Charset=UTF-8"], event, 201),
        (&["-H", json], large.as_str(), 413),
        (&["-H", json, "-H", "Transfer-Encoding: chunked"], large.as_str(), 413),
        (&["-H", "Content-Type: text/plain"], event, 415),
    ] {
        let call = [&["-H", &bearer, "--data", body], args, &[events.as_str()]].concat();
        let (found, head, said) = curl(&call).await;
        assert_eq!(found, status, "{args:?}: {head}\n{said}");
    }
    daemon.stop().await;
}

async fn curl_is_answered_by_the_gateway_as_by_its_upstream(place: Place) {
    if !has_curl(place) {
        return;
    }
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let upstream = Receiver::start(|request| {
        let headers = vec![
            ("etag", "\"1\"".to_owned()),
            ("connection", "x-hop".to_owned()),
            ("x-hop", "1".to_owned()),
        ];
        Reply::Full(200, headers, request.target.clone())
    });
    let upstream = upstream.await;
    let config = std::fs::read_to_string(scene.site.path("postrider.toml")).unwrap();
    scene.site.configure(&format!(
        "{config}\n[[outbox]]\nname = 'calls'\npreset = 'api-call'\nsink = 'shop'\n\
         dedupe = 'open'\n[[gateway]]\nname = 'shop'\nurl = '{}'\n\
         answer_headers = ['etag', 'x-hop']\nforward_headers = ['x-mine', 'x-odd']\n",
        upstream.url("/v1")
    ));
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let daemon = scene.site.start().await;
    let stock = format!("http://{}/gateway/shop/stock", daemon.address());
    for word in ["miss", "hit"] {
        let (status, head, _) = curl(&["--head", &stock]).await;
        assert_eq!(status, 200, "{head}");
        let wanted = [
            "\r\ncontent-length: 9",
            "\r\nvia: 1.1 postrider",
            &format!("\r\npostrider-cache: {word}"),
        ];
        assert!(wanted.iter().all(|line| head.contains(line)), "{wanted:?}: {head}");
        assert!(!head.contains("x-hop"), "{head}");
    }
    for (tags, status) in [("\"1\"", 304), ("W/\"1\", \"2\"", 304), ("*", 304), ("\"2\"", 200)] {
        let (found, head, body) = curl(&["-H", &format!("If-None-Match: {tags}"), &stock]).await;
        assert_eq!(found, status, "{tags}: {head}\n{body}");
    }
    let named = ["-H", "Connection: close, X-Odd", "-H", "X-Odd: 1", "-H", "X-Mine: 2"];
    let other = format!("{stock}/2");
    assert_eq!(curl(&[&named[..], &[other.as_str()]].concat()).await.0, 200);
    let received = upstream.received();
    let request = received.requests.last().unwrap();
    assert_eq!((request.header("x-mine"), request.header("x-odd")), (vec!["2"], vec![]));
    daemon.stop().await;
}
