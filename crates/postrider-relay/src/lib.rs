//! The relay of Postrider: claims events from an outbox, delivers them to a sink, and settles the
//! outcome. Embed it, or run the `postrider` binary, which is this crate with a configuration file.
//!
//! An event crosses three hops out, [`Store::claim`](postrider::store::Store::claim) → [`Relay`] →
//! [`Sink::deliver`], and two back, [`policy::decide`] → a settle of the store.

pub mod alert;
mod auto_retry;
pub mod backup;
#[cfg(feature = "http")]
mod body;
mod breaker;
#[cfg(feature = "buffer")]
mod buffer;
pub mod config;
mod courier;
mod dead_batch;
mod destinations;
mod failed_calls;
mod fan_out;
#[cfg(feature = "filters")]
mod filter;
#[cfg(test)]
mod fuzz;
mod gate;
#[cfg(feature = "gateway")]
pub mod gateway;
mod health;
mod heart;
mod jobs;
mod lanes;
mod live_calls;
pub mod message;
pub mod monitor;
pub mod policy;
pub mod preset;
mod rate;
mod reachability;
mod relay;
mod routes;
mod rows;
mod safety_net;
mod settling;
mod shares;
mod sink;
pub mod sinks;
mod supervisor;
pub mod telemetry;
pub mod template;
#[cfg(any(
    feature = "http",
    feature = "email",
    feature = "redis",
    feature = "rabbitmq",
    feature = "nats"
))]
mod tls;
mod trace;
mod trouble;
mod upkeep;
mod view;
mod waker;
mod window;

pub use auto_retry::{AutoRetry, ErrorPattern};
#[cfg(feature = "buffer")]
pub use buffer::{BufferConfig, Durability, RecoveredBuffer, recover_buffers};
pub use config::{FailingKey, OutboxConfig, RelayConfig};
pub use destinations::{BreakerState, DestinationBook, KnownDestination};
pub use fan_out::{BranchSettings, FanOut};
pub use gate::Place;
pub use health::{Health, HealthView, Turn};
pub use lanes::LaneLimits;
pub use monitor::Thresholds;
pub use preset::{Backoff, Preset};
pub use rate::RateLimit;
pub use relay::{Relay, RelayError};
pub use routes::{RouteSettings, Router};
pub use sink::{Batch, Cause, Outcome, Sink, SinkError};
pub use trace::TraceSettings;
pub use trouble::TROUBLE_KIND;
pub use view::EventView;
pub use waker::Waker;
