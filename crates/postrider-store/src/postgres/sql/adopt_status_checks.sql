-- Checks of a table ($1) that only concern one column ($2), as expressions.
SELECT c.conname::text, pg_get_expr(c.conbin, c.conrelid)
FROM pg_constraint AS c JOIN pg_attribute AS a
    ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
WHERE c.conrelid = to_regclass(quote_ident($1)) AND c.contype = 'c' AND a.attname = $2
