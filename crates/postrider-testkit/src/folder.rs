//! A folder that is removed after the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of attempts to remove a folder, 20 ms apart.
const REMOVALS_MAX: u32 = 50;

/// A new folder, removed with its contents when this value is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a folder.
    #[allow(clippy::new_without_default, reason = "it makes something outside of the program")]
    pub fn new() -> Self {
        let name = format!("postrider_test_{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // SQLite's threads close their files shortly after the test, and may still create one.
        for _ in 0..REMOVALS_MAX {
            drop(std::fs::remove_dir_all(&self.0));
            if !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("the folder {} is left behind", self.0.display());
    }
}
