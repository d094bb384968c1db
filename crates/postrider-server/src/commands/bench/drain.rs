//! `postrider bench drain`

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::store::OnSuccess;
use postrider_relay::sinks::NullSink;
use postrider_relay::{OutboxConfig, Preset, Relay, RelayConfig};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::outbox::{BenchOutbox, bar};
use super::process::resident_bytes;
use crate::cli::DrainArgs;
use crate::commands::Failure;
use crate::output::{self, number};

/// Without progress for this long, the run has failed.
const STALL: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    store: &'static str,
    server: String,
    sink: String,
    claim: &'static str,
    events: u64,
    payload_bytes: usize,
    batch: u32,
    on_success: &'static str,
    content_hash_verified: bool,
    seconds: f64,
    events_per_s: f64,
    rss_mb: f64,
    balanced: bool,
    /// What decides whether a commit survives a crash, as the server reports it.
    durability: std::collections::BTreeMap<String, String>,
}

pub(crate) async fn drain(
    url: &str,
    connections_max: u32,
    args: &DrainArgs,
) -> Result<(), Failure> {
    let bench = BenchOutbox::create(url, connections_max).await?;
    let measured = measure(&bench, args).await;
    let report = bench.drop_after(measured).await?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&format!(
            "{} events in {:.2} s: {} events/s ({} → {}, rows, batch {}, {} B, hash verified, \
             delete)\nresident memory {:.1} MB, books {}\n{}: {:?}\n",
            number(i128::from(report.events)),
            report.seconds,
            number(report.events_per_s as i128),
            report.store,
            report.sink,
            report.batch,
            report.payload_bytes,
            report.rss_mb,
            if report.balanced { "balanced" } else { "NOT BALANCED" },
            report.server,
            report.durability,
        ))?;
    }
    match report.balanced {
        true => Ok(()),
        false => Err(Failure::Unbalanced("after the drain".to_owned())),
    }
}

async fn measure(bench: &BenchOutbox, args: &DrainArgs) -> Result<Report, Failure> {
    bench.fill(args.events, args.payload, None).await?;
    let sink = Arc::new(NullSink::new("null"));
    let preset = Preset {
        batch: args.batch,
        on_success: OnSuccess::Delete,
        idle_poll: Duration::from_millis(100),
        ..Preset::broker()
    };
    let outbox = OutboxConfig::new(bench.outbox.clone(), preset, sink.clone());
    let relay = Relay::new(Arc::clone(&bench.store), RelayConfig::default()).outbox(outbox);
    let stop = CancellationToken::new();
    let started = Instant::now();
    let relaying = tokio::spawn(relay.run(stop.clone()));
    let outcome = watch(bench, &sink, args.events).await;
    let seconds = started.elapsed().as_secs_f64();
    stop.cancel();
    let rss = outcome?;
    match relaying.await {
        Ok(outcome) => outcome?,
        Err(error) => return Err(Failure::Partly(format!("the relay ended with {error}"))),
    }
    let books = bench.store.books(&bench.outbox).await?;
    let facts = bench.store.server_facts().await?;
    Ok(Report {
        bench: "drain",
        store: bench.store.kind().as_str(),
        server: facts.version,
        sink: args.sink.clone(),
        claim: "rows",
        events: args.events,
        payload_bytes: args.payload,
        batch: args.batch,
        on_success: "delete",
        content_hash_verified: true,
        seconds,
        events_per_s: args.events as f64 / seconds,
        rss_mb: rss as f64 / 1_000_000.0,
        balanced: books.iter().all(postrider::store::Books::balanced),
        durability: facts.durability,
    })
}

/// Waits until everything is settled, not only delivered. Answers the largest memory seen.
async fn watch(bench: &BenchOutbox, sink: &NullSink, events: u64) -> Result<u64, Failure> {
    let bar = bar("draining", events);
    let (mut rss, mut moved_at) = (0, Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        rss = rss.max(resident_bytes());
        let taken = sink.taken();
        if taken > bar.position() {
            bar.set_position(taken);
            moved_at = Instant::now();
        }
        if taken >= events && bench.store.statistics(&bench.outbox).await?.pending == 0 {
            bar.finish_and_clear();
            return Ok(rss);
        }
        if moved_at.elapsed() > STALL {
            let why = format!("no event was taken for {STALL:?}; {taken} of {events} were before");
            return Err(Failure::Partly(why));
        }
    }
}
