-- Unique indexes (true) and foreign keys (false) of a table ($1), with their columns.
SELECT i.indexrelid::regclass::text, true, ARRAY(
    SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) AND a.attnum > 0)
FROM pg_index AS i
WHERE i.indrelid = to_regclass(quote_ident($1)) AND i.indisunique
UNION ALL
SELECT c.conname::text, false, ARRAY(
    SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
FROM pg_constraint AS c
WHERE c.conrelid = to_regclass(quote_ident($1)) AND c.contype = 'f'
