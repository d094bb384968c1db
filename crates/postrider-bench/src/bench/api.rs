//! `postrider bench api`

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::gateway::Gateway;
use postrider_store::{Appender, ClaimMode, OnSuccess};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::event::Maker;
use super::facts::Facts;
use super::letters::fill_dead_letters;
use super::numbers::{Percentiles, ratio, rounded};
use super::relays::Plan;
use super::report::{Bars, Plot, Report};
use super::sinks::Sinks;
use super::stage::{Stage, bar};
use super::{details, relays};
use crate::ApiParts;
use crate::cli::ApiBenchArgs;

/// Number of events per claim while the archive is filled.
const ARCHIVE_BATCH: u32 = 2_000;
/// Delay that keeps events from becoming due during the run, so that nothing changes while it
/// measures.
const NOT_YET: Duration = Duration::from_secs(24 * 3_600);
/// So short that every request for statistics queries the database; by default, only one in two
/// seconds does.
pub(super) const FEED_EVERY: Duration = Duration::from_millis(1);
/// Different errors of the dead letters.
pub(super) const ERRORS: [&str; 8] = [
    "HTTP 422 from the partner: amount 17 is too small",
    "HTTP 400 from the partner: no such account 4711",
    "HTTP 409 from the partner: version 3 expected, found 4",
    "the schema has no field `currency`",
    "connection refused by 10.0.0.7:443",
    "timed out after 5000 ms",
    "certificate expired at 2026-01-31",
    "the content does not fit its hash",
];

#[derive(Debug, Serialize)]
struct Details {
    events: u64,
    archived: u64,
    dead_letters: u64,
    payload_bytes: u32,
    keys: u64,
    requests_per_kind: u32,
    clients: u32,
    target_ms: f64,
    within_target: bool,
    slowest: String,
    slowest_p99_ms: f64,
    /// Over all kinds of requests.
    requests_per_s: f64,
    /// For the kind that does not query the database.
    limit_requests_per_s: f64,
    ratio: f64,
    kinds: Vec<Kind>,
}

#[derive(Debug, Serialize)]
struct Kind {
    kind: &'static str,
    #[serde(flatten)]
    times: Percentiles,
    #[serde(skip)]
    requests: usize,
    #[serde(skip)]
    seconds: f64,
}

/// A kind of request; one with a body is a POST.
struct Ask {
    kind: &'static str,
    /// A single path is requested repeatedly; of several, each is requested once.
    paths: Vec<String>,
    body: Option<Value>,
}

pub(super) async fn api(stage: &Stage, args: &ApiBenchArgs) -> Result<Report, Failure> {
    let outbox = stage.outbox("").await?;
    let maker = Maker::new(args.event.keys, args.event.payload);
    fill_archive(stage, &outbox, &maker, args.archived).await?;
    fill_dead_letters(stage, &outbox, &maker, args.dead_letters, &ERRORS).await?;
    let later = maker.deliver_after(NOT_YET);
    stage.fill(&outbox, &later, args.events).await?;
    while stage.store.fold_ledger(&outbox, 10_000).await? > 0 {}

    let stop = stage.stop.child_token();
    let address = serve(stage, &outbox, Vec::new(), FEED_EVERY, stop.clone()).await?;
    let mut clients = Vec::new();
    for _ in 0..args.clients {
        clients.push(Client::connect(address, &outbox).await?);
    }
    let asks = clients[0].asks(args.requests as usize).await?;
    let bar = bar("asking", asks.len() as u64);
    let mut kinds = Vec::new();
    for ask in &asks {
        kinds.push(time(&clients, ask, args.requests as usize).await?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    stop.cancel();
    report(stage, args, kinds).await
}

/// Sends the requests from all clients at once, each with its share.
async fn time(clients: &[Client], ask: &Ask, requests: usize) -> Result<Kind, Failure> {
    let again = std::iter::repeat_n(&ask.paths[0], requests);
    let paths: Vec<&String> =
        if ask.paths.len() == 1 { again.collect() } else { ask.paths.iter().collect() };
    let asking = clients.iter().enumerate().map(async |(number, client)| {
        let mut times = Vec::new();
        for path in paths.iter().skip(number).step_by(clients.len()) {
            let asked = Instant::now();
            client.send(ask.kind, path, ask.body.as_ref()).await?;
            times.push(asked.elapsed().as_secs_f64() * 1_000.0);
        }
        Ok::<_, Failure>(times)
    });
    let started = Instant::now();
    let mut times = try_join_all(asking).await?.concat();
    let seconds = started.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let (requests, times) = (times.len(), Percentiles::of(&times));
    Ok(Kind { kind: ask.kind, times, requests, seconds })
}

/// Fills the archive with delivered events, as a relay would.
async fn fill_archive(
    stage: &Stage,
    outbox: &Outbox,
    maker: &Maker,
    events: u64,
) -> Result<(), Failure> {
    stage.fill(outbox, maker, events).await?;
    let plan = Plan::new(outbox, &Sinks::Null, ClaimMode::default(), ARCHIVE_BATCH, 1);
    let plan = Plan { on_success: OnSuccess::Archive, ..plan };
    relays::drain(stage, &plan, events, 0).await?;
    Ok(())
}

/// Serves API and dashboard like the daemon, without a relay.
pub(super) async fn serve(
    stage: &Stage,
    outbox: &Outbox,
    gateways: Vec<Gateway>,
    feed_every: Duration,
    stop: CancellationToken,
) -> Result<SocketAddr, Failure> {
    let refused = |error| Failure::Listen { address: ([127, 0, 0, 1], 0).into(), error };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let serving = (stage.serve_api)(ApiParts {
        listener,
        store: stage.another_store().await?,
        appender: Appender::connect(&stage.url, 1).await?,
        outbox: outbox.clone(),
        gateways,
        feed_every,
        stop,
    })?;
    // Tracked by the stage, so that it ends before its tables are dropped.
    stage.running.spawn(serving);
    Ok(address)
}

/// One connection that is kept open, like a browser's.
struct Client {
    connection: Mutex<SendRequest<Full<Bytes>>>,
    host: String,
    outbox: String,
}

impl Client {
    async fn connect(address: SocketAddr, outbox: &Outbox) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Partly(format!("no client: {error}"));
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let outbox = format!("/outboxes/{}", outbox.name());
        Ok(Self { connection: Mutex::new(sender), host: address.to_string(), outbox })
    }

    async fn send(&self, kind: &str, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::Partly(format!("{kind} ({path}): {error}"));
        let body = body.map(Value::to_string);
        let request = Request::builder()
            .method(if body.is_some() { "POST" } else { "GET" })
            .uri(format!("/api/v1{path}"))
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::from(body.unwrap_or_default()))
            .map_err(|error| failed(&error))?;
        let mut connection = self.connection.lock().await;
        connection.ready().await.map_err(|error| failed(&error))?;
        let answer = connection.send_request(request).await.map_err(|error| failed(&error))?;
        let (status, body) = (answer.status(), answer.into_body().collect().await);
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        match status.is_success() {
            true => Ok(serde_json::from_slice(&body).unwrap_or_default()),
            false => Err(failed(&format!("{status}: {}", String::from_utf8_lossy(&body)))),
        }
    }

    /// Returns every request that an operator's dashboard makes, followed by those that change
    /// something.
    async fn asks(&self, requests: usize) -> Result<Vec<Ask>, Failure> {
        let of = &self.outbox;
        let get = |kind, path: String| Ask { kind, paths: vec![path], body: None };
        let first_id = async |path: String| {
            let page = self.send("first page", &path, None).await?;
            Ok::<_, Failure>((page["rows"][0]["id"].clone(), page["rows"][0]["event_id"].clone()))
        };
        let (event, identity) = first_id(format!("{of}/events?limit=1")).await?;
        let (letter, _) = first_id(format!("{of}/dead-letters?limit=1")).await?;
        let identity = identity.as_str().unwrap_or_default().to_owned();
        let middle = event.as_i64().unwrap_or_default() / 2;
        let dry = json!({ "work": { "kind": "dlq_retry", "filter": { "error": "account" } },
                          "dry_run": true });
        let event_body = json!({ "aggregate_type": "bench", "aggregate_id": "7",
                                 "event_type": "Measured", "payload": { "amount": 17 } });
        let letters = self.dead_letters(2 * requests).await?;
        let (retried, resolved) = letters.split_at(letters.len() / 2);
        let act = |kind, ids: &[i64], verb: &str| Ask {
            kind,
            paths: ids.iter().map(|id| format!("{of}/dead-letters/{id}/{verb}")).collect(),
            body: Some(json!({ "note": "measured" })),
        };
        Ok(vec![
            get("who am I", "/whoami".to_owned()),
            get("statistics", "/outboxes".to_owned()),
            get("one outbox", of.clone()),
            get("history", format!("{of}/history")),
            get("events, first page", format!("{of}/events?limit=50")),
            get("events, in the middle", format!("{of}/events?limit=50&before={middle}")),
            get("events of a key", format!("{of}/events?aggregate_type=bench&aggregate_id=7")),
            get("events of an unknown type", format!("{of}/events?event_type=Never")),
            get("events by error text", format!("{of}/events?error=nothing+says+this")),
            get("delivered events", format!("{of}/events?status=COMPLETED")),
            get("count of events", format!("{of}/events/count?event_type=Measured")),
            get("one event", format!("{of}/events/{event}")),
            get("an identity", format!("{of}/identities/{identity}")),
            get("dead letters, first page", format!("{of}/dead-letters?limit=50")),
            get("dead letters by text", format!("{of}/dead-letters?error=no+such+text")),
            get("dead letters by group", format!("{of}/dead-letters/groups?resolved=false")),
            get("count of dead letters", format!("{of}/dead-letters/count?resolved=false")),
            get("one dead letter", format!("{of}/dead-letters/{letter}")),
            Ask { kind: "dry run", paths: vec![format!("{of}/jobs")], body: Some(dry) },
            get("jobs", "/jobs".to_owned()),
            get("relays", "/relays".to_owned()),
            get("lanes", format!("{of}/lanes")),
            get("blocked keys", format!("{of}/blocked-keys")),
            get("sinks", "/sinks".to_owned()),
            get("audit", "/audit?operator=nobody".to_owned()),
            get("alerts", "/alerts".to_owned()),
            get("ledger", "/reconcile".to_owned()),
            Ask { kind: "append", paths: vec![format!("{of}/events")], body: Some(event_body) },
            act("retry", retried, "retry"),
            act("resolve", resolved, "resolve"),
        ])
    }

    /// Returns the ids of `count` dead letters, or of all if there are fewer: each can be retried
    /// or resolved only once.
    async fn dead_letters(&self, count: usize) -> Result<Vec<i64>, Failure> {
        let (mut ids, mut before) = (Vec::new(), String::new());
        loop {
            let path = format!("{}/dead-letters?limit=500&resolved=false{before}", self.outbox);
            let page = self.send("dead letters", &path, None).await?;
            let rows = page["rows"].as_array().into_iter().flatten();
            ids.extend(rows.filter_map(|row| row["id"].as_i64()));
            match page["next"].as_i64().filter(|_| ids.len() < count) {
                Some(next) => before = format!("&before={next}"),
                None => break,
            }
        }
        ids.truncate(count);
        Ok(ids)
    }
}

async fn report(stage: &Stage, args: &ApiBenchArgs, kinds: Vec<Kind>) -> Result<Report, Failure> {
    let by_p99 = |a: &&Kind, b: &&Kind| a.times.p99_ms.total_cmp(&b.times.p99_ms);
    let slowest = kinds.iter().max_by(by_p99);
    let (slowest, slowest_p99_ms) =
        slowest.map_or((String::new(), 0.0), |kind| (kind.kind.to_owned(), kind.times.p99_ms));
    let per_s = |kinds: &[Kind]| {
        let seconds: f64 = kinds.iter().map(|kind| kind.seconds).sum();
        let requests: usize = kinds.iter().map(|kind| kind.requests).sum();
        ratio(requests as f64, seconds)
    };
    let requests_per_s = rounded(per_s(&kinds), 1);
    let limit_requests_per_s = rounded(per_s(&kinds[..1]), 1);
    let share = rounded(ratio(requests_per_s, limit_requests_per_s), 4);
    let target_ms = args.target.as_secs_f64() * 1_000.0;
    let missed = kinds.iter().filter(|kind| kind.times.p99_ms > target_ms);
    let missed: Vec<&str> = missed.map(|kind| kind.kind).collect();
    let words = |kind: &Kind| {
        let Percentiles { p50_ms, p99_ms, max_ms, .. } = kind.times;
        format!("{p50_ms:.1} ms, p99 {p99_ms:.1} ms, at most {max_ms:.1} ms")
    };
    let figures = kinds.iter().map(|kind| (kind.kind.to_owned(), words(kind))).collect();
    let bar = |kind: &Kind| (kind.kind.to_owned(), kind.times.p99_ms, Some(target_ms));
    let bars =
        Bars { title: "p99 of each kind", unit: "ms", bars: kinds.iter().map(bar).collect() };
    Ok(Report {
        facts: Facts::gather("api", stage).await?,
        headline: format!(
            "p99 {slowest_p99_ms:.1} ms for the slowest kind ({slowest}) with {} events, {} \
             delivered ones and {} dead letters, {} clients at once; the target is {target_ms} ms",
            number(i128::from(args.events)),
            number(i128::from(args.archived)),
            number(i128::from(args.dead_letters)),
            args.clients
        ),
        against: format!(
            "of the requests that ask the database nothing ({limit_requests_per_s}/s)"
        ),
        ratio: share,
        figures,
        plots: vec![Plot::Bars(bars)],
        failure: (!missed.is_empty())
            .then(|| Failure::Partly(format!("p99 above {target_ms} ms: {}", missed.join(", ")))),
        details: details(&Details {
            events: args.events,
            archived: args.archived,
            dead_letters: args.dead_letters,
            payload_bytes: args.event.payload,
            keys: args.event.keys,
            requests_per_kind: args.requests,
            clients: args.clients,
            target_ms,
            within_target: missed.is_empty(),
            slowest,
            slowest_p99_ms,
            requests_per_s,
            limit_requests_per_s,
            ratio: share,
            kinds,
        })?,
    })
}
