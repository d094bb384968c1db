//! Tests that cannot run here report that to a place that a script can check.

use std::io::Write;

/// Notes that `test` does not run because of `reason`: on standard error, and in the file named by
/// `POSTRIDER_SKIP_LOG`.
///
/// # Panics
/// With `POSTRIDER_REQUIRE_ALL=1`: then nothing may be skipped.
pub fn skip(test: &str, reason: &str) {
    let required = std::env::var("POSTRIDER_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(!required, "{test} must run (POSTRIDER_REQUIRE_ALL=1), but {reason}");
    eprintln!("skipped {test}: {reason}");
    let Ok(path) = std::env::var("POSTRIDER_SKIP_LOG") else {
        return;
    };
    let line = format!("{test}: {reason}\n");
    // One write of one line in append mode, so that lines of concurrent test processes do not mix.
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("POSTRIDER_SKIP_LOG names {path}, which cannot be written: {error}");
    }
}
