//! The sinks. Each file has the same order inside: settings, sink, delivery, helpers.

mod handler;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
mod null;

pub use handler::{HandlerError, HandlerSink};
#[cfg(feature = "http")]
pub use http::{HttpSettings, HttpSink};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaSettings, KafkaSink, Sasl, Tls};
pub use log::LogSink;
pub use null::NullSink;
