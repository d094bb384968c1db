//! `postrider bench backlog`

use std::time::{Duration, Instant};

use postrider::store::{ClaimLimit, Cursor, Delivery, Lease, OnSuccess, RelayIdentity};
use serde::Serialize;

use super::outbox::BenchOutbox;
use crate::cli::BacklogArgs;
use crate::commands::Failure;
use crate::output::{self, Table};

/// Claims measured per case; their median is the figure.
const CLAIMS: usize = 15;
const PAYLOAD_BYTES: usize = 256;
const NOT_YET: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize)]
struct Case {
    case: &'static str,
    rows: u64,
    median_ms: f64,
    /// The first claim of a relay reads the table from its beginning.
    first_ms: f64,
    /// Against the first case.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    store: &'static str,
    batch: u32,
    cases: Vec<Case>,
}

pub(crate) async fn backlog(
    url: &str,
    connections_max: u32,
    args: &BacklogArgs,
) -> Result<(), Failure> {
    let need = args.batch as u64 * (CLAIMS as u64 + 1);
    if args.few < need {
        let why = format!("--few {}: at least {need} for {CLAIMS} claims of --batch", args.few);
        return Err(Failure::Usage(why));
    }
    let mut cases: Vec<Case> = Vec::new();
    let mut store = "";
    for (name, waiting, not_due) in [
        ("few due", args.few, 0),
        ("many due", args.many, 0),
        ("few due, many not yet due", args.few, args.many),
    ] {
        let bench = BenchOutbox::create(url, connections_max).await?;
        store = bench.store.kind().as_str();
        let measured = measure(&bench, waiting, not_due, args.batch).await;
        let (first_ms, median_ms) = bench.drop_after(measured).await?;
        let base = cases.first().map_or(median_ms, |case| case.median_ms);
        let ratio = median_ms / base;
        cases.push(Case { case: name, rows: waiting + not_due, median_ms, first_ms, ratio });
    }
    if args.json {
        let report = Report { bench: "backlog", store, batch: args.batch, cases };
        return output::print_json(&report);
    }
    let mut table = Table::new(&["CASE", "ROWS", "CLAIM (MEDIAN)", "FIRST CLAIM", "RATIO"]);
    for case in &cases {
        table.row(vec![
            case.case.to_owned(),
            output::number(i128::from(case.rows)),
            format!("{:.2} ms", case.median_ms),
            format!("{:.2} ms", case.first_ms),
            format!("{:.2}×", case.ratio),
        ]);
    }
    table.print()
}

/// Milliseconds of the first claim and of the median one.
async fn measure(
    bench: &BenchOutbox,
    due: u64,
    not_due: u64,
    batch: u32,
) -> Result<(f64, f64), Failure> {
    if not_due > 0 {
        bench.fill(not_due, PAYLOAD_BYTES, Some(NOT_YET)).await?;
    }
    bench.fill(due, PAYLOAD_BYTES, None).await?;
    let identity = RelayIdentity {
        id: format!("bench-{}", uuid::Uuid::new_v4().simple()),
        host: "bench".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serving: Vec::new(),
    };
    let lease = bench.store.register(&identity).await?;
    let mut cursor = Cursor::new();
    let first_ms = claim(bench, &lease, batch, &mut cursor).await?;
    let mut times = Vec::new();
    for _ in 0..CLAIMS {
        times.push(claim(bench, &lease, batch, &mut cursor).await?);
    }
    bench.store.retire(&lease).await?;
    times.sort_by(f64::total_cmp);
    Ok((first_ms, times[CLAIMS / 2]))
}

async fn claim(
    bench: &BenchOutbox,
    lease: &Lease,
    batch: u32,
    cursor: &mut Cursor,
) -> Result<f64, Failure> {
    let limit = ClaimLimit::new(batch, u64::MAX >> 1);
    let started = Instant::now();
    let claimed = bench.store.claim(&bench.outbox, lease, limit, cursor).await?;
    let ms = started.elapsed().as_secs_f64() * 1_000.0;
    if claimed.events.len() != batch as usize {
        let why = format!("a claim took {} of {batch} events", claimed.events.len());
        return Err(Failure::Partly(why));
    }
    let delivered: Vec<Delivery> = claimed.events.iter().map(Delivery::from).collect();
    bench.store.settle_delivered(&bench.outbox, lease, &delivered, OnSuccess::Delete).await?;
    Ok(ms)
}
