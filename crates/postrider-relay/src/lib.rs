//! The relay of Postrider: claims events from an outbox, delivers them to a sink, and settles the
//! outcome. Embed it, or run the `postrider` binary, which is this crate with a configuration file.
//!
//! An event crosses three hops out, [`Store::claim`](postrider_store::Store::claim) → [`Relay`] →
//! [`Sink::deliver`], and two back, [`policy::decide`] → a settle of the store.

// The modules are in layers: see ARCHITECTURE.md and `RELAY_LAYERS` in the test `tidy`.
pub mod alerts;
#[cfg(feature = "buffer")]
mod buffer;
pub mod config;
pub mod delivery;
mod destination;
mod engine;
mod error;
#[cfg(test)]
mod fuzz;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "http")]
mod http;
mod lease;
pub mod message;
pub mod monitor;
mod observations;
pub mod outcome;
pub mod policy;
pub mod preset;
mod sink;
pub mod sinks;
pub mod telemetry;
mod timer;
#[cfg(any(
    feature = "http",
    feature = "email",
    feature = "redis",
    feature = "rabbitmq",
    feature = "nats"
))]
mod tls;
mod waker;

#[cfg(feature = "buffer")]
pub use buffer::{BufferConfig, Durability, RecoveredBuffer, recover_buffers};
pub use config::{AutoRetry, ErrorPattern, FailingKey, LaneLimits, OutboxConfig, RelayConfig};
pub use delivery::trace::TraceSettings;
pub use delivery::trouble::TROUBLE_KIND;
pub use destination::{
    BreakerState, DestinationRegistry, Health, HealthView, KnownDestination, RateLimit, Turn,
};
pub use engine::Relay;
pub use error::RelayError;
pub use message::routes::{RouteSettings, Router};
pub use message::view::EventView;
pub use outcome::{Cause, Outcome};
pub use preset::{Backoff, Preset, Thresholds};
pub use sink::{Batch, Permit, Sink, SinkError};
pub use sinks::{BranchSettings, FanOut};
pub use waker::Waker;
