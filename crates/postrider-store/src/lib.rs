//! The databases of Postrider: the contract that a store fulfils, and the stores for PostgreSQL,
//! MySQL, MariaDB and SQLite.
//!
//! The relay, the server and operators' tools use this crate. Applications that append or receive
//! events need only `postrider`.

#[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
compile_error!("name a database: feature `postgres`, `mysql` or `sqlite` of postrider-store");

// With SQLite alone, no table can be adopted: SQLite refuses a mapping by its name.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, unused_imports))]
pub mod adopt;
mod appender;
mod columns;
mod connect;
pub mod consumer;
mod contract;
mod error;
mod event;
mod fingerprint;
mod job_runner;
mod operator;
mod outbox;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use appender::Appender;
pub use connect::{ConnectOptions, connect};
pub use contract::*;
pub use error::StoreError;
pub use event::{Event, EventRecord, Status};
pub use fingerprint::{FINGERPRINT_CHARS, error_kind, fingerprint};
pub use job_runner::JobRunner;
pub use outbox::{Dedupe, OutboxSpec};
