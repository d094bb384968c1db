//! What the other crates of Postrider share with this one. It is not part of the public interface,
//! and changes without notice.

pub mod statement;

pub use crate::__sql as sql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use crate::duration::*;
pub use crate::event::{fit, hex};
pub use crate::inbox::{IDENTITY_CHARS_MAX, fit_error, identities};
#[cfg(feature = "mysql")]
pub use crate::mysql::reported_ids::*;
#[cfg(feature = "sqlite")]
pub use crate::sqlite::connection::{BUSY_TIMEOUT, WAL_BYTES_KEPT};
pub use crate::wait::DoublingWait;
