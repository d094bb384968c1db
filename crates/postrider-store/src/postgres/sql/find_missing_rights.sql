-- $1 tables, $2 privileges. Returns those that this user lacks.
SELECT name, wanted FROM unnest($1::text[], $2::text[]) AS r (name, wanted)
WHERE to_regclass(quote_ident(name)) IS NOT NULL
  AND NOT has_table_privilege(to_regclass(quote_ident(name)), wanted)
