//! Reads `jsonb` as text, without parsing it.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Postgres, Type};

/// JSON as the server prints it.
pub(super) struct Jsonb(pub(super) String);

impl Type<Postgres> for Jsonb {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("jsonb")
    }
}

impl<'r> Decode<'r, Postgres> for Jsonb {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        let sent = match value.format() {
            // A version, then the text.
            PgValueFormat::Binary => {
                value.as_bytes()?.strip_prefix(&[1]).ok_or("jsonb of an unknown version")?
            }
            PgValueFormat::Text => value.as_bytes()?,
        };
        Ok(Self(std::str::from_utf8(sent)?.to_owned()))
    }
}
