//! Runs the example as described in its README: an outage under load, and what callers see of it.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postrider_testkit::{
    Installation, TempFolder, TestDb, TestServer, eventually,
    http_client::{Response, send},
    skip,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const RATE_PER_S: u32 = 200;
/// Seconds of outage; the variable `CHARACTER_OUTAGE_SECONDS` overrides it.
const OUTAGE_SECONDS: u64 = 10;
const CHARACTERS: u32 = 100;
/// Time within which a caller gets its 503 once the API counts as down.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// Time that a caller would wait for the silent API.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// The running example; killed when dropped.
struct Example {
    service: SocketAddr,
    upstream: SocketAddr,
    /// Part of the names of its characters, because a Redis keeps those of others and of earlier
    /// runs.
    family: String,
    _child: Child,
    _folder: TempFolder,
}

impl Example {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let folder = TempFolder::new();
        let mut child = Command::new(env!("CARGO_BIN_EXE_character-api"))
            .current_dir(folder.path())
            .env("CHARACTER_LISTEN", "127.0.0.1:0")
            .env("CHARACTER_UPSTREAM_LISTEN", "127.0.0.1:0")
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("the example starts");
        let mut addresses = line.split("http://").skip(1).map(|rest| {
            rest.trim_end_matches([',', ' ']).split([',', ' ']).next().unwrap().parse().unwrap()
        });
        let (service, upstream) = (addresses.next().unwrap(), addresses.next().unwrap());
        let family = uuid::Uuid::new_v4().simple().to_string();
        Self { service, upstream, family, _child: child, _folder: folder }
    }

    async fn character(&self, number: u32) -> Response {
        get(self.service, &format!("/characters/{}", self.name(number))).await
    }

    fn name(&self, number: u32) -> String {
        format!("{}-{number}", self.family)
    }

    async fn switch(&self, to: &str) {
        let switched = send(self.upstream, "POST", &format!("/switch/{to}"), &[], "").await;
        assert_eq!(switched.unwrap().status, 200);
    }

    async fn waiting(&self) -> u64 {
        get(self.service, "/waiting").await.json()["waiting"].as_u64().unwrap()
    }

    async fn calls(&self) -> BTreeMap<String, u32> {
        serde_json::from_str(&get(self.upstream, "/calls").await.body).unwrap()
    }
}

async fn get(address: SocketAddr, path: &str) -> Response {
    send(address, "GET", path, &[], "").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_embedded_default() {
    outage_under_load(Example::start(&[]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql_and_redis() {
    let Some((db, redis)) = servers("on_postgresql_and_redis", TestServer::Postgres).await else {
        return;
    };
    let settings = [("CHARACTER_STORE", db.url.as_str()), ("CHARACTER_CACHE", redis.as_str())];
    outage_under_load(Example::start(&settings).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_and_redis() {
    let Some((db, redis)) = servers("on_mariadb_and_redis", TestServer::Mariadb).await else {
        return;
    };
    let settings = [("CHARACTER_STORE", db.url.as_str()), ("CHARACTER_CACHE", redis.as_str())];
    outage_under_load(Example::start(&settings).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mysql_and_redis() {
    let Some((db, redis)) = servers("on_mysql_and_redis", TestServer::Mysql).await else {
        return;
    };
    let settings = [("CHARACTER_STORE", db.url.as_str()), ("CHARACTER_CACHE", redis.as_str())];
    outage_under_load(Example::start(&settings).await).await;
}

/// A service whose relay cannot work must end: it would save calls and never repeat them.
#[tokio::test]
async fn a_relay_that_cannot_work_ends_the_service() {
    let Some(db) = TestDb::open_empty(TestServer::Sqlite, "a_relay_that_cannot_work").await else {
        return;
    };
    db.store.migrate(&[]).await.unwrap();
    db.refuse_relays().await;
    let variables = [
        ("CHARACTER_STORE", db.url.as_str()),
        ("CHARACTER_LISTEN", "127.0.0.1:0"),
        ("CHARACTER_UPSTREAM_LISTEN", "127.0.0.1:0"),
    ];
    let example = Installation::new(env!("CARGO_BIN_EXE_character-api"), "");
    example.run_with(&[], &variables, "").await.exits(1).says(&["no_relays_here"]);
}

/// Opens a database for this test, and finds a Redis.
async fn servers(test: &str, server: TestServer) -> Option<(TestDb, String)> {
    let Ok(redis) = std::env::var("REDIS_URL") else {
        skip(test, "the variable REDIS_URL is not set");
        return None;
    };
    Some((TestDb::open_empty(server, test).await?, redis))
}

async fn outage_under_load(example: Example) {
    let example = Arc::new(example);
    assert_eq!(example.character(0).await.headers["postrider-cache"], "miss");
    assert_eq!(example.character(0).await.headers["postrider-cache"], "hit");

    // No caller gets an answer, and none waits for one once the API counts as down.
    example.switch("silent").await;
    until_it_counts_as_down(&example).await;
    let seconds = std::env::var("CHARACTER_OUTAGE_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(OUTAGE_SECONDS);
    let answers = load(&example, Duration::from_secs(seconds)).await;
    assert!(answers.len() as u64 >= seconds * u64::from(RATE_PER_S) * 9 / 10);
    for (answer, _) in &answers {
        assert_eq!((answer.status, answer.headers["retry-after"].as_str()), (503, "60"));
        assert_eq!(answer.json()["saved"], true, "{}", answer.body);
    }
    let mut times: Vec<Duration> = answers.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let slowest = times[times.len() - 1];
    println!("{} callers got 503: p50 {p50:?}, p99 {p99:?}, slowest {slowest:?}", times.len());
    // The slow ones are due to the machine, which other tests keep busy; but none waited for the
    // API.
    assert!(p50 < ANSWER_WITHIN, "p50 {p50:?}");
    assert!(slowest < UPSTREAM_TIMEOUT, "slowest {slowest:?}");

    // The API is back, and callers continue: each character is called once, by the relay or by a
    // caller.
    example.switch("on").await;
    let recovered = eventually("no call waits", async || {
        let answers = load(&example, Duration::from_millis(500)).await;
        (example.waiting().await == 0).then_some(answers)
    });
    recovered.await;
    for number in 1..=CHARACTERS {
        let answer = example.character(number).await;
        assert_eq!((answer.status, answer.headers["postrider-cache"].as_str()), (200, "hit"));
    }
    let calls = example.calls().await;
    let more_than_once: Vec<_> = calls.iter().filter(|(_, calls)| **calls != 1).collect();
    assert!(more_than_once.is_empty(), "{more_than_once:?}");
    let asked = (1..=CHARACTERS).filter(|number| calls.contains_key(&example.name(*number)));
    assert_eq!(asked.count() as u32, CHARACTERS);
}

/// Makes five calls at a time for different characters until the API counts as down.
async fn until_it_counts_as_down(example: &Example) {
    eventually("it counts as down", async || {
        let callers = (1..=5).map(|number| example.character(number));
        let answers = join_all(callers).await;
        answers.iter().all(|answer| answer.body.contains("counts as down")).then_some(())
    })
    .await;
}

/// Requests every character in turn, at a fixed rate, whatever the answers: a caller that waits
/// does not delay the others.
async fn load(example: &Arc<Example>, time: Duration) -> Vec<(Response, Duration)> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE_PER_S);
    let (started, mut callers) = (Instant::now(), Vec::new());
    while started.elapsed() < time {
        ticks.tick().await;
        let (example, number) = (Arc::clone(example), callers.len() as u32 % CHARACTERS + 1);
        callers.push(tokio::spawn(async move {
            let asked = Instant::now();
            (example.character(number).await, asked.elapsed())
        }));
    }
    join_all(callers).await.into_iter().map(Result::unwrap).collect()
}
