//! What a pool asks of a connection that goes out or comes back.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Connection;
use sqlx::sqlite::SqlitePoolOptions;

/// For pools of connections to a file that is there.
///
/// SQLite rolls back by itself when the disk is full or fails. The driver's own `ROLLBACK` then fails,
/// and the driver takes the transaction for open from then on: it could begin no other. Such a
/// connection is closed, and so is one whose file is no longer the one at its path.
pub(crate) fn pool_options(file: &Path) -> SqlitePoolOptions {
    let watched = Arc::new(WatchedFile::new(file));
    SqlitePoolOptions::new()
        // A connection to a file does not break while it lies idle.
        .test_before_acquire(false)
        .before_acquire(move |_, of| {
            let is_current = watched.is_current(of.age);
            Box::pin(async move { Ok(is_current) })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                // The rollback of a dropped transaction may still be under way.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
}

/// A file that may be deleted or replaced while connections have it open. What they write then is
/// answered, and gone when the last one is closed; SQLite does not look.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    /// Which file was there, and since when.
    seen: Mutex<(Option<FileIdentity>, Instant)>,
}

/// Device and inode.
type FileIdentity = (u64, u64);

impl WatchedFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: Mutex::new((identity(path), Instant::now())) }
    }

    /// Whether a connection of that age has the file that is there now.
    fn is_current(&self, age: Duration) -> bool {
        let found = identity(&self.path);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != found {
            *seen = (found, Instant::now());
        }
        found.is_some() && age <= seen.1.elapsed()
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    // A call of about a microsecond: a thread for it would cost more.
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Elsewhere an open file cannot be deleted.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<FileIdentity> {
    Some((0, 0))
}
