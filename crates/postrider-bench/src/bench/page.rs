//! `postrider bench page`: the time that a person waits for each page of the dashboard, in a real
//! browser.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use postrider_command::Failure;
use postrider_command::output::number;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use super::api::{ERRORS, serve};
use super::details;
use super::event::Maker;
use super::facts::Facts;
use super::letters::fill_dead_letters;
use super::numbers::{Percentiles, ratio, rounded};
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use crate::cli::PageBenchArgs;

/// Delay that keeps events from becoming due during the run, so that nothing changes while it
/// measures.
const NOT_YET: Duration = Duration::from_secs(24 * 3_600);
/// The daemon's default.
const FEED_EVERY: Duration = Duration::from_secs(2);

/// Reports when the first paint happened and when everything that the page requested was shown, in
/// milliseconds since the navigation.
const MEASURE: &str = "
    const done = arguments[0];
    const look = () => {
        const busy = document.querySelector('.skeleton, main [aria-busy], .boot');
        const paint = performance.getEntriesByName('first-contentful-paint')[0];
        const plain = !document.querySelector('#app');
        const waits = busy || !document.querySelector('main h1') || !paint;
        if (waits && !plain) return requestAnimationFrame(look);
        done([paint?.startTime ?? performance.now(), performance.now()]);
    };
    look();
";

#[derive(Debug, Serialize)]
struct Details {
    events: u64,
    dead_letters: u64,
    loads: u32,
    target_ms: f64,
    within_target: bool,
    slowest: String,
    slowest_max_ms: f64,
    /// The time of a two-letter document in the same browser.
    limit_ms: f64,
    ratio: f64,
    pages: Vec<Timed>,
}

#[derive(Debug, Serialize)]
struct Timed {
    page: &'static str,
    first_paint: Percentiles,
    /// Until everything that it requested was shown.
    whole: Percentiles,
}

pub(super) async fn page(stage: &Stage, args: &PageBenchArgs) -> Result<Report, Failure> {
    let outbox = stage.outbox("").await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    fill_dead_letters(stage, &outbox, &maker, args.dead_letters, &ERRORS).await?;
    let later = maker.deliver_after(NOT_YET);
    stage.fill(&outbox, &later, args.events).await?;
    while stage.store.fold_ledger(&outbox, 10_000).await? > 0 {}
    let stop = stage.stop.child_token();
    let address = serve(stage, &outbox, Vec::new(), FEED_EVERY, stop.clone()).await?;
    let browser = Driver::start(args).await?;

    let name = outbox.name();
    let pages = [
        ("overview", "/".to_owned()),
        ("events", format!("/events?outbox={name}")),
        ("events of an unknown type", format!("/events?outbox={name}&event_type=Never")),
        ("one event", format!("/events/{name}/{}", args.dead_letters + 1)),
        ("dead letters", format!("/dead-letters?outbox={name}")),
        ("one dead letter", format!("/dead-letters/{name}/1")),
        ("outboxes and sinks", "/outboxes".to_owned()),
        ("alerts", "/alerts".to_owned()),
        ("audit", "/audit".to_owned()),
    ];
    let bar = bar("loading", pages.len() as u64 + 1);
    let limit = browser.times(&format!("http://{address}/healthz"), args.loads).await?;
    bar.inc(1);
    let mut timed = Vec::new();
    for (page, path) in pages {
        let loads = browser.times(&format!("http://{address}{path}"), args.loads).await?;
        let of = |which: fn(&(f64, f64)) -> f64| {
            let mut times: Vec<f64> = loads.iter().map(which).collect();
            times.sort_by(f64::total_cmp);
            Percentiles::of(&times)
        };
        timed.push(Timed { page, first_paint: of(|load| load.0), whole: of(|load| load.1) });
        bar.inc(1);
    }
    bar.finish_and_clear();
    browser.end().await?;
    stop.cancel();
    let mut limit: Vec<f64> = limit.into_iter().map(|load| load.1).collect();
    limit.sort_by(f64::total_cmp);
    report(stage, args, timed, Percentiles::of(&limit).p50_ms).await
}

async fn report(
    stage: &Stage,
    args: &PageBenchArgs,
    pages: Vec<Timed>,
    limit_ms: f64,
) -> Result<Report, Failure> {
    let by_max = |a: &&Timed, b: &&Timed| a.whole.max_ms.total_cmp(&b.whole.max_ms);
    let slowest = pages.iter().max_by(by_max);
    let (slowest, slowest_max_ms) =
        slowest.map_or((String::new(), 0.0), |timed| (timed.page.to_owned(), timed.whole.max_ms));
    let target_ms = args.target.as_secs_f64() * 1_000.0;
    let missed = pages.iter().filter(|timed| timed.whole.max_ms > target_ms);
    let missed: Vec<&str> = missed.map(|timed| timed.page).collect();
    let share = rounded(ratio(limit_ms, slowest_max_ms), 4);
    let words = |timed: &Timed| {
        let (paint, whole) = (timed.first_paint, timed.whole);
        format!(
            "first paint {:.0} ms, whole {:.0} ms, at most {:.0} ms",
            paint.p50_ms, whole.p50_ms, whole.max_ms
        )
    };
    let bar = |timed: &Timed| (timed.page.to_owned(), timed.whole.max_ms, Some(target_ms));
    let title = "Until the page is whole, at most";
    Ok(Report {
        facts: Facts::gather("page", stage).await?,
        headline: format!(
            "each page is whole within {slowest_max_ms:.0} ms (the slowest: {slowest}) with {} \
             events and {} dead letters; the target is {target_ms} ms",
            number(i128::from(args.events)),
            number(i128::from(args.dead_letters)),
        ),
        against: format!("of a document of two letters in the same browser ({limit_ms:.0} ms)"),
        ratio: share,
        figures: pages.iter().map(|timed| (timed.page.to_owned(), words(timed))).collect(),
        plots: vec![Plot::Bars(Bars { title, unit: "ms", bars: pages.iter().map(bar).collect() })],
        failure: (!missed.is_empty())
            .then(|| Failure::Partly(format!("above {target_ms} ms: {}", missed.join(", ")))),
        details: details(&Details {
            events: args.events,
            dead_letters: args.dead_letters,
            loads: args.loads,
            target_ms,
            within_target: missed.is_empty(),
            slowest,
            slowest_max_ms,
            limit_ms,
            ratio: share,
            pages,
        })?,
    })
}

/// The browser's driver with a session: four requests of the WebDriver protocol.
struct Driver {
    address: SocketAddr,
    session: String,
    _process: Child,
    _said: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    async fn start(args: &PageBenchArgs) -> Result<Self, Failure> {
        let mut command = Command::new(&args.chromedriver);
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(|error| {
            let program = args.chromedriver.display();
            Failure::Usage(format!(
                "--chromedriver {program}: {error}; install the Debian packages chromium and \
                 chromium-driver"
            ))
        })?;
        let ended = || Failure::Partly("the browser's driver ended".to_owned());
        let mut said = BufReader::new(process.stdout.take().ok_or_else(ended)?).lines();
        let port = loop {
            let line = said.next_line().await.map_err(Failure::Output)?.ok_or_else(ended)?;
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap_or(0);
            }
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let options = json!({
            "binary": args.chromium,
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--window-size=1280,900"],
        });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options,
        } } });
        let mut driver = Self { address, session: String::new(), _process: process, _said: said };
        let opened = driver.ask("POST", "/session", &wanted).await?;
        driver.session = opened["sessionId"].as_str().unwrap_or_default().to_owned();
        Ok(driver)
    }

    /// Returns first paint and whole page, for this many loads.
    async fn times(&self, url: &str, loads: u32) -> Result<Vec<(f64, f64)>, Failure> {
        let mut times = Vec::new();
        for _ in 0..loads {
            let session = format!("/session/{}", self.session);
            self.ask("POST", &format!("{session}/url"), &json!({ "url": url })).await?;
            let script = json!({ "script": MEASURE, "args": [] });
            let found = self.ask("POST", &format!("{session}/execute/async"), &script).await?;
            let at = |place: usize| found[place].as_f64().unwrap_or(f64::INFINITY);
            times.push((at(0), at(1)));
        }
        Ok(times)
    }

    async fn end(self) -> Result<(), Failure> {
        self.ask("DELETE", &format!("/session/{}", self.session), &json!({})).await.map(drop)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::Partly(format!("the browser's driver: {path}: {error}"))
        };
        let stream = TcpStream::connect(self.address).await.map_err(|error| failed(&error))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::<hyper::body::Bytes>::from(body.to_string()))
            .map_err(|error| failed(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let (status, body) = (answer.status(), answer.into_body().collect().await);
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        let found: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status.is_success() {
            true => Ok(found["value"].clone()),
            false => Err(failed(&found["value"]["message"])),
        }
    }
}
