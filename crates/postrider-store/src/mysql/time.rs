//! Reads and writes `DATETIME`, which may be zero or a day that does not exist.

use chrono::{DateTime, NaiveDateTime, Utc};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlRow, MySqlTypeInfo, MySqlValueRef};
use sqlx::{ColumnIndex, Decode, MySql, Row, Type};

use crate::contract::time::from_parts;

/// Converts a time to a parameter. The driver sends `DateTime<Utc>` as a TIMESTAMP, and MariaDB
/// converts those before 1970 to NULL.
pub(super) fn stored(time: DateTime<Utc>) -> NaiveDateTime {
    time.naive_utc()
}

/// A time.
pub(super) fn time(
    row: &MySqlRow,
    column: impl ColumnIndex<MySqlRow>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    Ok(row.try_get::<Time, _>(column)?.0)
}

/// Like [`time`], for a column that may be NULL.
pub(super) fn time_or_none(
    row: &MySqlRow,
    column: impl ColumnIndex<MySqlRow>,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    Ok(row.try_get::<Option<Time>, _>(column)?.map(|time| time.0))
}

/// A time; see [`crate::contract::time`]. The driver's own type fails on invalid times.
struct Time(DateTime<Utc>);

impl Type<MySql> for Time {
    fn type_info() -> MySqlTypeInfo {
        <DateTime<Utc> as Type<MySql>>::type_info()
    }

    fn compatible(ty: &MySqlTypeInfo) -> bool {
        <DateTime<Utc> as Type<MySql>>::compatible(ty)
    }
}

impl<'r> Decode<'r, MySql> for Time {
    /// Decodes the format of prepared statements: a length, year, month, day, hour, minute, second
    /// and microseconds; trailing zero parts are left out.
    fn decode(value: MySqlValueRef<'r>) -> Result<Self, BoxDynError> {
        let bytes: &[u8] = Decode::<MySql>::decode(value)?;
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        let part = |index: usize| u32::from(at(index));
        let year = i32::from(u16::from_le_bytes([at(1), at(2)]));
        let micros = u32::from_le_bytes([at(8), at(9), at(10), at(11)]);
        Ok(Self(from_parts((year, part(3), part(4)), (part(5), part(6), part(7), micros))))
    }
}
