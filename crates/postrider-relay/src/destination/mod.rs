//! The health of destinations: breakers, windows, rate limits.

mod breaker;
mod failed_calls;
pub(crate) mod health;
mod list;
pub(crate) mod live_calls;
mod rate;
mod window;

pub use health::{Health, HealthView, Turn};
pub use list::{BreakerState, DestinationRegistry, KnownDestination};
pub use rate::RateLimit;
