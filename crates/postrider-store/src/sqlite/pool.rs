//! Checks of connections that leave or return to a pool.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Connection;
use sqlx::sqlite::SqlitePoolOptions;

/// Returns options for pools of connections to an existing file.
///
/// SQLite rolls back by itself if the disk is full or fails. The driver's own `ROLLBACK` then
/// fails, and from then on the driver considers the transaction open and cannot begin another. Such
/// a connection is closed, and so is one whose file is no longer the one at its path.
pub(crate) fn pool_options(file: &Path) -> SqlitePoolOptions {
    let watched = Arc::new(WatchedFile::new(file));
    SqlitePoolOptions::new()
        // A connection to a file does not break while it is idle.
        .test_before_acquire(false)
        .before_acquire(move |_, of| {
            let is_current = watched.is_current(of.age);
            Box::pin(async move { Ok(is_current) })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                // The rollback of a dropped transaction may still be running.
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        })
}

/// A file that may be deleted or replaced while connections have it open. SQLite does not check:
/// their writes succeed, and are lost when the last connection closes.
#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    /// The file that was last seen, and when it was first seen.
    seen: Mutex<(Option<FileIdentity>, Instant)>,
}

/// Device and inode.
type FileIdentity = (u64, u64);

impl WatchedFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), seen: Mutex::new((identity(path), Instant::now())) }
    }

    /// Returns whether a connection of this age has the current file open.
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
    // A call of about a microsecond: a separate thread would cost more.
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// On other systems an open file cannot be deleted.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<FileIdentity> {
    Some((0, 0))
}
