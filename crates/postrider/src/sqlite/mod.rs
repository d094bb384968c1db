//! SQLite 3.35 and newer.
//!
//! SQLite has one writer at a time, over all processes that use the file. Programs that append
//! should use WAL (the store turns it on, and it stays on in the file), `busy_timeout = 5000`,
//! `synchronous = FULL`, and begin their transactions with `BEGIN IMMEDIATE`. A deferred
//! transaction that has read before it writes fails with `SQLITE_BUSY_SNAPSHOT` if another program
//! has written since; no timeout helps against that.

mod append;
pub(crate) mod connection;
mod inbox;
mod lock;

pub use append::{append, append_all, known_requests};
pub use connection::connect_options;
pub use inbox::{receive, receive_all, receive_dead};
pub use lock::lock;
