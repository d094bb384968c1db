//! One relay of the storm: a process that stops when its standard input ends.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_command::{Failure, connect};
use postrider_relay::{
    Backoff, OutboxConfig, Preset, Relay, RelayConfig, Sink,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::OnSuccess;
use tokio_util::sync::CancellationToken;

use crate::bench::kafka;
use crate::cli::ChaosRelayArgs;

/// Short, so that a kill is noticed before the next ones.
pub(super) const LEASE: Duration = Duration::from_millis(700);
pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_millis(150);
/// Short as well: many requests meet a receiver that hangs.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(250);
/// The maximum: events must not become dead letters because of the storm's faults.
const ATTEMPTS_MAX: u32 = 1_000;
const REQUESTS_AT_ONCE: usize = 16;
/// Maximum size of a Kafka message in bytes; poison is larger.
pub(super) const MESSAGE_BYTES_MAX: usize = 8_192;

/// Runs one relay of the storm until its standard input ends.
///
/// # Errors
/// If the store or the sink cannot be used.
pub async fn serve_relay(
    url: &str,
    connections_max: u32,
    args: &ChaosRelayArgs,
) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Partly(format!("the relay: {error}"));
    let store = connect(url, connections_max, false).await?;
    let outbox = Outbox::new(&args.outbox)?;
    let mut config = OutboxConfig::new(outbox, preset(), sink(args)?);
    config.claim = Some(args.claim);
    config.deliver_timeout = Duration::from_secs(5);
    let relay = RelayConfig {
        host: "storm".to_owned(),
        lease: LEASE,
        heartbeat_every: HEARTBEAT_EVERY,
        fold_every: Duration::from_secs(1),
        recover_every: Duration::from_secs(2),
        stalled_after: Duration::from_secs(10),
        move_marked_every: Duration::from_secs(1),
        report_every: Duration::ZERO,
        backup_folder: args.backup_folder.clone(),
        ..RelayConfig::default()
    };
    let stop = CancellationToken::new();
    let mut relaying = tokio::spawn(Relay::new(store, relay).outbox(config).run(stop.clone()));
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        ended = &mut relaying => ended.map_err(|error| failed(&error))??,
        _ = input => {
            stop.cancel();
            relaying.await.map_err(|error| failed(&error))??;
        }
    }
    Ok(())
}

fn preset() -> Preset {
    let ms = Duration::from_millis;
    Preset {
        idle_poll: ms(100),
        batch: 100,
        backoff: Backoff { first: ms(20), factor: 2.0, max: ms(500), jitter: 0.5 },
        max_retries: ATTEMPTS_MAX,
        on_success: OnSuccess::Delete,
        ..Preset::broker()
    }
}

fn sink(args: &ChaosRelayArgs) -> Result<Arc<dyn Sink>, Failure> {
    if let (Some(brokers), Some(topic)) = (&args.brokers, &args.topic) {
        return kafka::limited_sink(brokers, topic, MESSAGE_BYTES_MAX);
    }
    // The aggregate type is the port: each destination has its own keys.
    let url = "http://127.0.0.1:{aggregate_type}/events/{aggregate_id}";
    Ok(Arc::new(HttpSink::new(HttpSettings {
        timeout: REQUEST_TIMEOUT,
        host_concurrency_max: REQUESTS_AT_ONCE,
        ..HttpSettings::new("receiver", url)
    })?))
}
