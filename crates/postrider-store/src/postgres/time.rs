//! Reads `timestamptz`, which may be infinite or a year that other types cannot hold.

use chrono::{DateTime, Utc};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{ColumnIndex, Decode, Postgres, Row, Type};

use crate::contract::time::from_micros;

/// Microseconds from 1970 to 2000, PostgreSQL's epoch.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time.
pub(super) fn time(
    row: &PgRow,
    column: impl ColumnIndex<PgRow>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    Ok(row.try_get::<Time, _>(column)?.0)
}

/// Like [`time`], for a column that may be NULL.
pub(super) fn time_or_none(
    row: &PgRow,
    column: impl ColumnIndex<PgRow>,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    Ok(row.try_get::<Option<Time>, _>(column)?.map(|time| time.0))
}

/// A time; see [`crate::contract::time`]. The driver's own type panics on times beyond its range.
struct Time(DateTime<Utc>);

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        <DateTime<Utc> as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for Time {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        match value.format() {
            // Infinite times are the largest and the smallest number.
            PgValueFormat::Binary => {
                let micros: i64 = Decode::<Postgres>::decode(value)?;
                Ok(Self(from_micros(micros.saturating_add(EPOCH_MICROS))))
            }
            PgValueFormat::Text => Ok(Self(Decode::<Postgres>::decode(value)?)),
        }
    }
}
