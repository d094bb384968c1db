//! Times that every table, message and display can hold: the years 1 to 9999. A time beyond them
//! becomes the nearest valid one, so that one odd row does not fail the read of other rows.

#[cfg(any(feature = "mysql", feature = "sqlite"))]
use chrono::NaiveDate;
use chrono::{DateTime, Utc};

/// The first microsecond of the year 1, since 1970.
#[cfg(feature = "postgres")]
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
/// The last microsecond of the year 9999, since 1970.
#[cfg(feature = "postgres")]
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// Returns the time this many microseconds after 1970, or the nearest valid time.
#[cfg(feature = "postgres")]
pub(crate) fn from_micros(micros: i64) -> DateTime<Utc> {
    let micros = micros.clamp(FIRST_MICROS, LAST_MICROS);
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

/// Returns the time with these parts, or the nearest that exists: databases hold days such as the
/// 31st of February or the 0th of a 0th month.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) fn from_parts(
    (year, month, day): (i32, u32, u32),
    (hour, minute, second, micros): (u32, u32, u32, u32),
) -> DateTime<Utc> {
    let (year, month) = (year.clamp(1, 9999), month.clamp(1, 12));
    let last = |day: u32| NaiveDate::from_ymd_opt(year, month, day);
    let date = (1..=day.clamp(1, 31)).rev().find_map(last).unwrap_or_default();
    let time = (hour.min(23), minute.min(59), second.min(59), micros.min(999_999));
    date.and_hms_micro_opt(time.0, time.1, time.2, time.3).unwrap_or_default().and_utc()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn what_lies_beyond_is_the_nearest_time() {
        assert_eq!(from_micros(i64::MAX).to_rfc3339(), "9999-12-31T23:59:59.999999+00:00");
        assert_eq!(from_micros(i64::MIN).to_rfc3339(), "0001-01-01T00:00:00+00:00");
        assert_eq!(from_micros(1_000_000).to_rfc3339(), "1970-01-01T00:00:01+00:00");
    }

    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    #[test]
    fn days_that_do_not_exist_are_the_nearest_day() {
        let day = |parts| from_parts(parts, (24, 60, 61, 0)).to_rfc3339();
        assert_eq!(day((2025, 2, 31)), "2025-02-28T23:59:59+00:00");
        assert_eq!(day((0, 0, 0)), "0001-01-01T23:59:59+00:00");
    }
}
