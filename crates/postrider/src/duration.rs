//! Durations that a statement adds to the database's clock.

use std::time::Duration;

/// Longest duration. The sum must stay a valid time for every setting: "keep forever" is a way to
/// write a retention, and SQLite returns NULL beyond the year 9999, which would mean "due now".
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Converts a delay or an age to milliseconds, for PostgreSQL and MariaDB.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.min(DURATION_MAX).as_millis()).unwrap_or(i64::MAX)
}

/// Formats a duration that SQLite's strftime adds to the clock.
#[cfg(feature = "sqlite")]
pub fn plus(duration: Duration) -> String {
    format!("+{:.3} seconds", duration.min(DURATION_MAX).as_secs_f64())
}

/// Formats a duration that SQLite's strftime subtracts from the clock.
#[cfg(feature = "sqlite")]
pub fn minus(duration: Duration) -> String {
    format!("-{:.3} seconds", duration.min(DURATION_MAX).as_secs_f64())
}
