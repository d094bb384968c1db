//! PostgreSQL 14 and newer.
//!
//! Under READ COMMITTED (the default) a repeated `request_id` returns a duplicate, whichever
//! program appended it first. Under REPEATABLE READ and SERIALIZABLE, a repeat that another
//! transaction committed after this one began fails with SQLSTATE 40001: repeat the whole
//! transaction.

mod append;
mod inbox;
mod lock;

pub use append::{append, append_all, known_requests};
pub use inbox::{receive, receive_all, receive_dead};
pub use lock::lock;
