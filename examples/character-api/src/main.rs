//! A service that reads characters from an API that may be down.

mod service;
mod upstream;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_relay::{
    OutboxConfig, Preset, Relay, RelayConfig,
    gateway::{CacheSettings, Gateway, GatewaySettings, GatewaySink, Upstream},
};
use postrider_store::{Appender, ConnectOptions, Dedupe, OutboxSpec};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Short times, so that nobody who tries the example has to wait the half minutes of production.
const REPLAY_AFTER: Duration = Duration::from_secs(2);
const PROBE_EVERY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let store_url = setting("CHARACTER_STORE", "sqlite:./character-api-data/characters.db");
    let cache = setting("CHARACTER_CACHE", "memory");
    let (at, upstream_at) = (
        listen("CHARACTER_LISTEN", "127.0.0.1:8080").await?,
        listen("CHARACTER_UPSTREAM_LISTEN", "127.0.0.1:8081").await?,
    );
    let (address, upstream_address) = (at.local_addr()?, upstream_at.local_addr()?);

    // The outbox of waiting calls: each is saved once while it is open.
    let outbox = Outbox::new("characters")?;
    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    let store = postrider_store::connect(&store_url, &options).await?;
    let spec = OutboxSpec { dedupe: Dedupe::Open, ..OutboxSpec::new(outbox.clone()) };
    store.migrate(&[spec]).await?;

    // Shared by callers and the relay: the cache, the breaker, and the calls in flight.
    let preset = Preset { idle_poll: PROBE_EVERY, ..Preset::api_call() };
    let settings = GatewaySettings {
        timeout: TIMEOUT,
        replay_after: REPLAY_AFTER,
        cache: cache_settings(cache),
        ..GatewaySettings::new("nexon", format!("http://{upstream_address}"))
    };
    let upstream = Arc::new(Upstream::new(settings, &preset)?);
    let appender = Appender::connect(&store_url, 8).await?;
    let gateway = Gateway::new(Arc::clone(&upstream), outbox.clone(), appender);
    let sink = Arc::new(GatewaySink::new(upstream));
    let saved =
        OutboxConfig { dedupe: Dedupe::Open, ..OutboxConfig::new(outbox.clone(), preset, sink) };
    let backup_folder = "character-api-data/dead-letters".into();
    let config = RelayConfig { backup_folder, ..RelayConfig::default() };
    let relay = Relay::new(Arc::clone(&store), config).outbox(saved);

    let stop = CancellationToken::new();
    let mut relaying = tokio::spawn(relay.run(stop.clone()));
    let serving = axum::serve(at, service::router(gateway, store, outbox));
    let upstream_serving = axum::serve(upstream_at, upstream::router());
    println!("characters at http://{address}, the API behind them at http://{upstream_address}");
    tokio::select! {
        served = serving => served?,
        served = upstream_serving => served?,
        // Ends only with an error: the service must not look healthy if saved calls are never
        // repeated.
        relayed = &mut relaying => return Ok(relayed??),
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.cancel();
    Ok(relaying.await??)
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

async fn listen(name: &str, default: &str) -> Result<TcpListener, Box<dyn Error>> {
    let address: SocketAddr = setting(name, default).parse()?;
    TcpListener::bind(address)
        .await
        .map_err(|error| format!("{name}: cannot listen on {address}: {error}").into())
}

/// Parses `memory`, or the URL of a Redis that several processes share.
fn cache_settings(cache: String) -> CacheSettings {
    match cache.as_str() {
        "memory" => CacheSettings::default(),
        _ => CacheSettings::Redis { url: cache, timeout: Duration::from_millis(250) },
    }
}
