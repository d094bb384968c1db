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

// Without a database there is nothing to append to; what is shared with the stores is still built.
#![cfg_attr(
    not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
    allow(dead_code)
)]

mod append;
#[cfg(feature = "buffer")]
pub mod buffer;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod duration;
mod error;
mod event;
mod inbox;
#[doc(hidden)]
pub mod internal;
mod lock;
mod outbox;
mod wait;

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use append::Appended;
pub use error::{AppendError, InvalidEvent, Transience, transience};
pub use event::{NewEvent, content_hash, limits};
pub use inbox::{
    DeadMessage, INBOX_RETENTION, Inbox, Incoming, InvalidMessage, ReceiveError, Received,
};
pub use lock::LockError;
pub use outbox::{InvalidOutbox, Outbox};
