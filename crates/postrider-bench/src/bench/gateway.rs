//! `postrider bench gateway`

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::{
    Preset,
    gateway::{Gateway, GatewaySettings, Upstream},
};
use postrider_store::Appender;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::facts::Facts;
use super::numbers::{Percentiles, ratio, rounded};
use super::report::{Bars, Plot, Report};
use super::stage::{Stage, bar};
use super::{api, details};
use crate::cli::GatewayBenchArgs;

/// Name of the gateway.
const NAME: &str = "bench";

#[derive(Debug, Serialize)]
struct Details {
    seconds: f64,
    clients: u32,
    keys: u32,
    answer_bytes: u32,
    target_requests_per_s: u32,
    requests: u64,
    requests_per_s: f64,
    /// Rate of the same requests to a server that only answers.
    limit_requests_per_s: f64,
    ratio: f64,
    #[serde(flatten)]
    times: Percentiles,
    upstream_calls: u64,
}

/// The results of a load.
struct Load {
    requests: u64,
    requests_per_s: f64,
    times: Percentiles,
}

pub(super) async fn gateway(stage: &Stage, args: &GatewayBenchArgs) -> Result<Report, Failure> {
    let outbox = stage.outbox("").await?;
    let stop = stage.stop.child_token();
    let (upstream, calls) = bare_server(stage, args.answer, stop.clone()).await?;
    let settings = GatewaySettings::new(NAME, format!("http://{upstream}"));
    let called = Upstream::new(settings, &Preset::api_call())
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let appender = Appender::connect(&stage.url, 1).await?;
    let gateway = Gateway::new(Arc::new(called), outbox.clone(), appender);
    let address = api::serve(stage, &outbox, vec![gateway], api::FEED_EVERY, stop.clone()).await?;

    let prefix = format!("/gateway/{NAME}");
    // Fills the cache; all later requests are hits.
    let fill = Clients { address, prefix: &prefix, args };
    fill.ask_each_key_once().await?;
    let upstream_calls = calls.load(Ordering::Relaxed);
    let bar = bar("asking", 2);
    // Half before and half after the limit, so that a machine that slows down affects both equally.
    let (limited, half) = (Clients { address: upstream, prefix: "", args }, args.seconds / 2);
    let first = fill.ask_for(half).await?;
    let limit = limited.ask_for(args.seconds).await?;
    bar.inc(1);
    let second = fill.ask_for(half).await?;
    bar.finish_and_clear();
    stop.cancel();
    let load = Load {
        requests: first.requests + second.requests,
        requests_per_s: (first.requests_per_s + second.requests_per_s) / 2.0,
        times: if first.times.p99_ms > second.times.p99_ms { first.times } else { second.times },
    };
    report(stage, args, load, &limit, upstream_calls).await
}

/// Starts a server that answers with this many bytes, and does nothing else.
async fn bare_server(
    stage: &Stage,
    answer_bytes: u32,
    stop: CancellationToken,
) -> Result<(SocketAddr, Arc<AtomicU64>), Failure> {
    let refused = |error| Failure::Listen { address: ([127, 0, 0, 1], 0).into(), error };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let body = Bytes::from(vec![b'x'; answer_bytes as usize]);
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    stage.running.spawn(stop.clone().run_until_cancelled_owned(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (body, counted) = (body.clone(), Arc::clone(&counted));
            let service = service_fn(move |_: Request<Incoming>| {
                counted.fetch_add(1, Ordering::Relaxed);
                let answer = Response::new(Full::new(body.clone()));
                async move { Ok::<_, Infallible>(answer) }
            });
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        }
    }));
    Ok((address, asked))
}

/// Connections that are kept open, each with one request at a time.
struct Clients<'a> {
    address: SocketAddr,
    prefix: &'a str,
    args: &'a GatewayBenchArgs,
}

impl Clients<'_> {
    fn request(&self, key: u32) -> Vec<u8> {
        let (prefix, host) = (self.prefix, self.address);
        format!("GET {prefix}/character/{key} HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes()
    }

    async fn ask_each_key_once(&self) -> Result<(), Failure> {
        let mut client = Client::connect(self.address).await?;
        for key in 0..self.args.keys {
            client.ask(&self.request(key)).await?;
        }
        Ok(())
    }

    async fn ask_for(&self, time: Duration) -> Result<Load, Failure> {
        let requests: Arc<[Vec<u8>]> = (0..self.args.keys).map(|key| self.request(key)).collect();
        let started = Instant::now();
        let asking = (0..self.args.clients).map(async |number| {
            let (requests, mut times) = (Arc::clone(&requests), Vec::new());
            let mut client = Client::connect(self.address).await?;
            // A separate task, so that the clients use all cores as well.
            let asking = tokio::spawn(async move {
                let mut key = number as usize;
                while started.elapsed() < time {
                    let asked = Instant::now();
                    client.ask(&requests[key % requests.len()]).await?;
                    times.push(asked.elapsed().as_secs_f64() * 1_000.0);
                    key += 1;
                }
                Ok::<_, Failure>(times)
            });
            asking.await.map_err(|error| Failure::Partly(format!("a client ended: {error}")))?
        });
        let mut times = try_join_all(asking).await?.concat();
        let seconds = started.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        let requests = times.len() as u64;
        let requests_per_s = rounded(ratio(requests as f64, seconds), 1);
        Ok(Load { requests, requests_per_s, times: Percentiles::of(&times) })
    }
}

/// One connection. It parses only as much of an answer as it needs to find the end, since the
/// server is what is measured.
struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Ok(Self { stream, read: Vec::with_capacity(16 * 1024) })
    }

    async fn ask(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(request).await.map_err(|error| failed(&error))?;
        self.read.clear();
        loop {
            if let Some(end) = answer_end(&self.read)? {
                if self.read.len() >= end {
                    return Ok(());
                }
                self.read.reserve(end - self.read.len());
            }
            let read =
                self.stream.read_buf(&mut self.read).await.map_err(|error| failed(&error))?;
            if read == 0 {
                return Err(failed(&"the server closed the connection"));
            }
        }
    }
}

/// Returns where the answer ends, once its head has arrived. Any status but 200 fails the bench.
fn answer_end(read: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(head) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&read[..head]);
    if !text.starts_with("HTTP/1.1 200") {
        return Err(failed(&text.lines().next().unwrap_or_default()));
    }
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.map(|length| Some(head + 4 + length)).ok_or_else(|| failed(&"no content-length"))
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::Partly(format!("a request failed: {error}"))
}

async fn report(
    stage: &Stage,
    args: &GatewayBenchArgs,
    load: Load,
    limit: &Load,
    upstream_calls: u64,
) -> Result<Report, Failure> {
    let (found, bare) = (load.requests_per_s, limit.requests_per_s);
    let share = rounded(ratio(found, bare), 4);
    let target = f64::from(args.target);
    let words = |per_s: f64| format!("{} requests/s", number(per_s.round() as i128));
    let Percentiles { p50_ms, p99_ms, max_ms, .. } = load.times;
    let bars = vec![
        ("cache hits".to_owned(), found, Some(target)),
        ("bare server".to_owned(), bare, None),
    ];
    Ok(Report {
        facts: Facts::gather("gateway", stage).await?,
        headline: format!(
            "{} from the cache, {} clients at once; the target is {}",
            words(found),
            args.clients,
            words(target)
        ),
        against: format!("of a server that does nothing but answer ({})", words(bare)),
        ratio: share,
        figures: vec![
            ("answers".to_owned(), format!("{} B, {} keys", args.answer, args.keys)),
            (
                "time of a hit".to_owned(),
                format!("{p50_ms:.2} ms, p99 {p99_ms:.2} ms, at most {max_ms:.1} ms"),
            ),
            ("calls of the upstream".to_owned(), number(i128::from(upstream_calls))),
        ],
        plots: vec![Plot::Bars(Bars { title: "Requests per second", unit: "requests/s", bars })],
        failure: (found < target).then(|| {
            Failure::Partly(format!("{} are less than the target, {}", words(found), words(target)))
        }),
        details: details(&Details {
            seconds: args.seconds.as_secs_f64(),
            clients: args.clients,
            keys: args.keys,
            answer_bytes: args.answer,
            target_requests_per_s: args.target,
            requests: load.requests,
            requests_per_s: found,
            limit_requests_per_s: bare,
            ratio: share,
            times: load.times,
            upstream_calls,
        })?,
    })
}
