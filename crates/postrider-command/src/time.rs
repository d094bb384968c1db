//! Times on command lines and in the configuration.

use std::time::Duration;

/// 100 years. A time that is much longer cannot be added to the clock.
const TIME_MAX: Duration = Duration::from_secs(36_525 * 24 * 3_600);

/// Parses a time such as `30s` or `7d`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| {
        format!(
            "`{text}` is not a time ({error}); write it like \"250ms\", \"30s\", \"5m\" or \"7d\""
        )
    })?;
    match time <= TIME_MAX {
        true => Ok(time),
        false => Err(format!("`{text}` is too long; at most 36525d (100 years)")),
    }
}
