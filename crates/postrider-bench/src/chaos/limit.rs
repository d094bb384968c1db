//! Measures the API's throughput with a bare client: an upper bound for the relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_command::Failure;

use super::target::Target;
use super::{CALL, PAYLOAD};

/// Long enough for the start to have no influence, short enough to wait for.
const MEASURED: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_millis(500);

/// Returns the calls per second of a loop that does nothing else.
pub(super) async fn measure(target: &Target, calls: u64, concurrency: u32) -> Result<f64, Failure> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .map_err(|error| Failure::Partly(format!("no HTTP client: {error}")))?;
    let (next, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let deadline = Instant::now() + WARM_UP + MEASURED;
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..concurrency {
        let (client, next, done) = (client.clone(), Arc::clone(&next), Arc::clone(&done));
        let base = format!("http://{}/calls/{CALL}", target.address);
        loops.spawn(async move {
            while Instant::now() < deadline {
                let number = next.fetch_add(1, Ordering::Relaxed) % calls;
                let request = client.post(format!("{base}/{number}"));
                let request = request.header("content-type", "application/json");
                let answer = request.body(PAYLOAD).send().await?;
                drop(answer.error_for_status()?.bytes().await?);
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, reqwest::Error>(())
        });
    }
    tokio::time::sleep(WARM_UP).await;
    let (before, started) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64();
    while let Some(ended) = loops.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Failure::Partly(format!("the bare client: {error}"))),
            Err(error) => return Err(Failure::Partly(format!("the bare client: {error}"))),
        }
    }
    Ok(rate)
}
