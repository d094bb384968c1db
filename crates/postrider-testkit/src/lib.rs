//! Building blocks of Postrider's tests.
//!
//! | module | contents |
//! |---|---|
//! | [`db`] | [`TestDb`]: a fresh, migrated database per test, on each store |
//! | [`conformance`] | the suite that every store passes: one `async fn` per case |
//! | [`proxy`] | [`FaultProxy`]: a network that fails on demand |
//! | `browser` | `Browser`: headless Chromium, with its requests and log |
//! | [`http_target`] | [`HttpTarget`]: a receiver that replies by rule and records everything |
//! | [`installation`] | [`Installation`], [`Daemon`]: the real binary, its commands and processes |
//! | [`private_server`] | [`PrivateServer`]: a database server or broker that a test may kill |
//! | [`http`] | [`Receiver`](http::Receiver): an HTTP server that replies as a test specifies |
//! | [`smtp`] | [`MailServer`](smtp::MailServer): a mail server that accepts or refuses as a test specifies |
//! | [`buffer`] | [`TestBuffer`](buffer::TestBuffer): a buffer on Redis and the table it is saved to |
//! | [`sinks`] | the suite that every sink passes, with real servers |
//! | [`relay`] | [`ScriptedSink`](relay::ScriptedSink), relays with short times, recorded alerts |
//!
//! A store's test file is one line:
//!
//! ```text
//! postrider_testkit::store_conformance!(postgres);
//! ```
//!
//! and so is a sink's:
//!
//! ```text
//! postrider_testkit::sink_conformance!(kafka: postrider_testkit::sinks::KafkaDestination);
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `POSTGRES_URL`, `MARIADB_URL` | a server to create databases on; if unset, its tests are skipped |
//! | `PGBOUNCER_URL` | a pool in transaction mode in front of that PostgreSQL; if unset, its test is skipped |
//! | `KAFKA_BROKERS`, `RABBITMQ_URL`, `NATS_URL` | brokers to create topics, queues and streams on; if unset, their tests are skipped |
//! | `CHROMEDRIVER`, `CHROMIUM`, `AXE` | a browser, its driver and axe-core; if unset, the tests of the dashboard are skipped |
//! | `POSTRIDER_SKIP_LOG` | file to which each skipped test appends its name and the reason |
//! | `POSTRIDER_REQUIRE_ALL` | `1`: a test that would be skipped fails instead, with the reason |

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

#[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
compile_error!("the testkit needs a store: enable the feature postgres, mysql or sqlite");

#[cfg(feature = "browser")]
pub mod browser;
#[cfg(feature = "buffer")]
pub mod buffer;
pub mod conformance;
pub mod db;
mod folder;
pub mod http;
pub mod http_client;
pub mod http_target;
pub mod installation;
pub mod metrics;
pub mod private_server;
pub mod proxy;
pub mod relay;
pub mod sinks;
mod skip;
pub mod smtp;
mod tls;
mod tripwire;
mod wait;

#[cfg(feature = "browser")]
pub use browser::Browser;
pub use db::{TestDb, TestServer, TestTx};
pub use folder::TempFolder;
pub use http_target::{Answer, HttpTarget, Received};
pub use installation::{Daemon, Installation, Ran};
pub use private_server::PrivateServer;
pub use proxy::FaultProxy;
pub use skip::skip;
pub use tls::TlsFront;
pub use tripwire::Tripwire;
pub use wait::{PATIENCE, eventually};
