//! `postrider bench` and `postrider chaos`: Postrider measured, and played through what goes wrong
//! in production. The binary calls them, and gives them the one thing that they need of the server:
//! its API.

mod bench;
mod chaos;
mod cli;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::Outbox;
use postrider_command::Failure;
use postrider_relay::gateway::Gateway;
use postrider_store::{Appender, Database};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use bench::bench;
pub use bench::takeover::serve as serve_bench_relay;
pub use chaos::api::serve as serve_api;
pub use chaos::{chaos, serve_relay as serve_chaos_relay};
pub use cli::{BenchCommand, BenchRelayArgs, ChaosApiArgs, ChaosCommand, ChaosRelayArgs};

/// Serves API and dashboard until stopped, as the daemon does, without a relay.
pub type ServeApi = fn(ApiParts) -> Result<BoxFuture<'static, ()>, Failure>;

/// What the API of a bench works on.
pub struct ApiParts {
    /// Where it listens.
    pub listener: TcpListener,
    /// A store of its own.
    pub store: Arc<dyn Database>,
    /// For events that the API appends.
    pub appender: Appender,
    /// The only outbox.
    pub outbox: Outbox,
    /// Gateways that it serves.
    pub gateways: Vec<Gateway>,
    /// Time between two reads of the statistics.
    pub feed_every: Duration,
    /// Ends it.
    pub stop: CancellationToken,
}
