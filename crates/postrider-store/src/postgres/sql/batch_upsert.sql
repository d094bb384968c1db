-- $1 fields, sorted; $2 counts. {type} is the type of the key's column, as the catalogue spells it.
INSERT INTO "{table}" AS target ("{key}", "{count}")
SELECT entry.field::{type}, entry.amount FROM unnest($1::text[], $2::bigint[]) AS entry (field, amount)
ON CONFLICT ("{key}") DO UPDATE SET "{count}" = COALESCE(target."{count}", 0) + excluded."{count}"
