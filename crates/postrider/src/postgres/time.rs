//! Reading `timestamptz`, which may be infinite or a year that nothing else holds.

use chrono::{DateTime, Utc};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{ColumnIndex, Decode, Postgres, Row, Type};

use crate::store::time::from_micros;

/// From 1970 to 2000, where PostgreSQL counts from.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time.
pub(super) fn time(
    row: &PgRow,
    column: impl ColumnIndex<PgRow>,
) -> Result<DateTime<Utc>, sqlx::Error> {
    Ok(row.try_get::<Time, _>(column)?.0)
}

/// As [`time`], where the column may be NULL.
pub(super) fn time_or_none(
    row: &PgRow,
    column: impl ColumnIndex<PgRow>,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    Ok(row.try_get::<Option<Time>, _>(column)?.map(|time| time.0))
}

/// A time; see [`crate::store::time`]. The driver's own type panics at what is beyond.
struct Time(DateTime<Utc>);

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        <DateTime<Utc> as Type<Postgres>>::type_info()
    }
}

impl<'r> Decode<'r, Postgres> for Time {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        match value.format() {
            // Infinite ones are the largest and the smallest number.
            PgValueFormat::Binary => {
                let micros: i64 = Decode::<Postgres>::decode(value)?;
                Ok(Self(from_micros(micros.saturating_add(EPOCH_MICROS))))
            }
            PgValueFormat::Text => Ok(Self(Decode::<Postgres>::decode(value)?)),
        }
    }
}
