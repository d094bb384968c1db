//! MariaDB 10.6 and newer, MySQL 8.0.16 and newer.
//!
//! A repeated `request_id` in a plain `INSERT` fails with error 1062, which names the key
//! `<outbox>_keys` (MySQL: `<outbox>_keys.<outbox>_keys`); only that statement is rolled back, and
//! the transaction stays open. [`append`] returns a duplicate under every isolation level.

mod append;
mod inbox;
mod lock;
pub(crate) mod reported_ids;

use sqlx::mysql::MySqlDatabaseError;

pub use append::{append, append_all, known_requests};
pub use inbox::{receive, receive_all, receive_dead};
pub use lock::lock;

/// "Duplicate entry … for key …".
const DUPLICATE_ENTRY: u16 = 1062;

/// Returns the server's error number; SQLSTATE is too coarse to distinguish errors.
fn error_number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(error.number())
}
