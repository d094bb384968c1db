//! Reads values of any type: SQLite checks neither types nor that text is UTF-8, and one odd row
//! must not fail the read of other rows.

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row, TypeInfo, ValueRef};

use crate::contract::time::from_parts;
use crate::operator::nearest;

type Result<T> = std::result::Result<T, sqlx::Error>;

/// The name or the position of a column.
pub(super) trait Column: ColumnIndex<SqliteRow> + Copy {}
impl<C: ColumnIndex<SqliteRow> + Copy> Column for C {}

/// Text as a program in another language wrote it; bytes that are not UTF-8 are replaced.
/// [`defect`] tells of them.
pub(super) fn text(row: &SqliteRow, column: impl Column) -> Result<Option<String>> {
    let bytes: Option<&[u8]> = row.try_get_unchecked(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// As [`text`], where the column is never NULL.
pub(super) fn required(row: &SqliteRow, column: impl Column) -> Result<String> {
    Ok(text(row, column)?.unwrap_or_default())
}

/// Returns a description of what is wrong with the texts in these columns, if anything: a text that
/// was partly replaced must not be delivered.
pub(super) fn defect(
    row: &SqliteRow,
    columns: impl Iterator<Item = (usize, &'static str)>,
) -> Result<Option<String>> {
    let mut found = Vec::new();
    for (column, name) in columns {
        let bytes: Option<&[u8]> = row.try_get_unchecked(column)?;
        if let Some(Err(error)) = bytes.map(std::str::from_utf8) {
            found.push(format!("{name} is not UTF-8 at byte {}", error.valid_up_to()));
        }
    }
    Ok((!found.is_empty()).then(|| found.join("; ")))
}

/// A whole number, or the nearest that fits; 0 where it is none.
pub(super) fn number<T: TryFrom<i64> + Default>(row: &SqliteRow, column: impl Column) -> Result<T> {
    Ok(nearest(number_or_none::<i64>(row, column)?.unwrap_or(0)))
}

/// As [`number`], where the column may be NULL.
pub(super) fn number_or_none<T: TryFrom<i64> + Default>(
    row: &SqliteRow,
    column: impl Column,
) -> Result<Option<T>> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    let found = match value.type_info().name() {
        "INTEGER" => row.try_get_unchecked::<i64, _>(column)?,
        "REAL" => row.try_get_unchecked::<f64, _>(column)? as i64,
        _ => 0,
    };
    Ok(Some(nearest(found)))
}

/// A time as the tables hold it; see [`crate::contract::time`] for what is none.
pub(super) fn time(row: &SqliteRow, column: impl Column) -> Result<DateTime<Utc>> {
    Ok(time_or_none(row, column)?.unwrap_or_else(|| from_parts((1, 1, 1), (0, 0, 0, 0))))
}

/// As [`time`], where the column may be NULL.
pub(super) fn time_or_none(row: &SqliteRow, column: impl Column) -> Result<Option<DateTime<Utc>>> {
    Ok(text(row, column)?.map(|text| parse_time(&text)))
}

/// Parses `2026-01-31T12:00:00.000Z` part by part: SQLite accepts the 31st of February and hour 24.
fn parse_time(text: &str) -> DateTime<Utc> {
    let part = |from: usize, to: usize| -> u32 {
        text.get(from..to).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    let year = i32::try_from(part(0, 4)).unwrap_or(1);
    let micros = part(20, 23) * 1_000;
    from_parts((year, part(5, 7), part(8, 10)), (part(11, 13), part(14, 16), part(17, 19), micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_they_say() {
        assert_eq!(
            parse_time("2026-01-31T12:34:56.789Z").to_rfc3339(),
            "2026-01-31T12:34:56.789+00:00"
        );
        assert_eq!(
            parse_time("2026-02-31T24:00:00.000Z").to_rfc3339(),
            "2026-02-28T23:00:00+00:00"
        );
        assert_eq!(parse_time("ü").to_rfc3339(), "0001-01-01T00:00:00+00:00");
    }
}
