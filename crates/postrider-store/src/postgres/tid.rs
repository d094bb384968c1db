//! The physical position of a row: PostgreSQL's type `tid`, a block and a line in it.

use std::num::NonZeroU64;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};

const TID: Oid = Oid(27);
const TID_ARRAY: Oid = Oid(1010);

/// The block, then two bytes of the line; lines count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tid(pub(super) NonZeroU64);

impl Type<Postgres> for Tid {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID)
    }
}

impl PgHasArrayType for Tid {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TID_ARRAY)
    }
}

impl Decode<'_, Postgres> for Tid {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let sent: [u8; 6] = value.as_bytes()?.try_into()?;
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&sent);
        NonZeroU64::new(u64::from_be_bytes(bytes))
            .map(Self)
            .ok_or_else(|| "line 0 of block 0".into())
    }
}

impl Encode<'_, Postgres> for Tid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.get().to_be_bytes()[2..]);
        Ok(IsNull::No)
    }
}
