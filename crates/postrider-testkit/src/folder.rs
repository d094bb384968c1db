//! A folder that is gone when the test is.

use std::path::{Path, PathBuf};

/// A fresh folder, removed with everything in it when this value is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// Makes a folder.
    #[allow(clippy::new_without_default, reason = "it makes something outside of the program")]
    pub fn new() -> Self {
        let name = format!("postrider_test_{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
