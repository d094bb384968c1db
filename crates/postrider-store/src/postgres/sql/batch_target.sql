-- $1 table, $2 key, $3 count. The types of the two columns, and whether the key is unique. Types are
-- without their length: a cast to varchar(20) would cut a longer key, and count it for another one.
SELECT
    (SELECT format_type(a.atttypid, -1) FROM pg_attribute AS a
     WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attname = $2 AND NOT a.attisdropped),
    (SELECT format_type(a.atttypid, -1) FROM pg_attribute AS a
     WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attname = $3 AND NOT a.attisdropped),
    EXISTS (SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a
                ON a.attrelid = i.indrelid AND a.attname = $2 AND i.indkey[0] = a.attnum
            WHERE i.indrelid = to_regclass(quote_ident($1)) AND i.indisunique AND i.indpred IS NULL
              AND i.indnkeyatts = 1),
    to_regclass(quote_ident($1)) IS NOT NULL
