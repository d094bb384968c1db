//! # Postrider
//!
//! A transactional outbox. A program writes an event in the same database transaction as its
//! business change; the relay (`postrider-relay`, or the `postrider` binary) delivers it at least
//! once, and nothing is lost or dropped silently.
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{NewEvent, Outbox, postgres};
//!
//! let pool = sqlx::PgPool::connect("postgres://app@localhost/app").await?;
//! let outbox = Outbox::new("transfers")?;
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 42")
//!     .execute(&mut *tx)
//!     .await?;
//! let event = NewEvent::new("account", "42", "TransferCompleted", r#"{"amount":10}"#)
//!     .request_id("transfer-9001");
//! let appended = postgres::append(&mut tx, &outbox, &event).await?;
//! tx.commit().await?;
//! println!("event {} will be delivered", appended.id());
//! # Ok(())
//! # }
//! ```
//!
//! `append` and `append_all` have the same name and shape in [`postgres`], [`mysql`] and
//! [`sqlite`]. So do `receive`, for consumers that must process each event once, and `lock`.
//! Programs in other languages use a plain `INSERT`: see `docs/sql-contract.md`.
//!
//! Handlers may be dropped halfway, for example when a web framework drops them because the client
//! disconnected. If that happens while a transaction is being begun on PostgreSQL or MariaDB, sqlx
//! 0.9.0 leaves the transaction open, and the next user of the connection writes into it
//! ([issue](https://github.com/transact-rs/sqlx/issues/4393)). Begin the transaction in a task to
//! be safe: `tokio::spawn(async move { pool.begin().await }).await??`. Postrider does so for its
//! own transactions.

// With SQLite alone, no table can be adopted: SQLite refuses a mapping by its name.
#[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code, unused_imports))]
pub mod adopt;
mod append;
mod appender;
#[cfg(feature = "buffer")]
pub mod buffer;
mod connect;
mod error;
mod event;
mod fingerprint;
mod inbox;
mod job_runner;
#[cfg(feature = "kafka-consumer")]
pub mod kafka_consumer;
mod lock;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod operator;
mod outbox;
pub mod store;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Compiles the programs of that page.
#[cfg(all(doctest, feature = "postgres", feature = "kafka-consumer"))]
#[doc = include_str!("../../../docs/consumers.md")]
mod consumers_page {}

pub use append::Appended;
pub use appender::Appender;
pub use connect::{ConnectOptions, connect};
pub use error::{AppendError, InvalidEvent, StoreError, Transience, transience};
pub use event::{Event, NewEvent, Status, content_hash, limits};
pub use fingerprint::{FINGERPRINT_CHARS, error_kind, fingerprint};
pub use inbox::{
    DeadMessage, INBOX_RETENTION, Inbox, Incoming, InvalidMessage, ReceiveError, Received,
};
pub use job_runner::JobRunner;
pub use lock::LockError;
pub use outbox::{Dedupe, InvalidOutbox, Outbox, OutboxSpec};
