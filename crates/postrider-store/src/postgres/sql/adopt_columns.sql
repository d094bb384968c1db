-- The columns of a table ($1), with the properties that a mapping needs. No rows: the table does
-- not exist.
SELECT a.attname::text AS name, t.typname::text AS base, t.typtype::text AS class,
    format_type(a.atttypid, a.atttypmod) AS type_name,
    CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4
         THEN (a.atttypmod - 4)::bigint END AS chars_max,
    a.attnotnull AS not_null, a.atthasdef OR a.attidentity <> '' AS has_default,
    EXISTS (
        SELECT 1 FROM pg_index AS i
        WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
          AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum
    ) AS is_unique,
    ARRAY(SELECT e.enumlabel::text FROM pg_enum AS e WHERE e.enumtypid = t.oid
        ORDER BY e.enumsortorder) AS words
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
