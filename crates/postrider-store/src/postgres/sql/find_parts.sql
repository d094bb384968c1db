-- Valid tables and indexes, and enabled triggers, by name.
SELECT relname::text AS name FROM pg_class AS c
WHERE pg_table_is_visible(c.oid) AND relkind IN ('r', 'p', 'i', 'I')
  AND NOT EXISTS (SELECT 1 FROM pg_index AS i WHERE i.indexrelid = c.oid AND NOT i.indisvalid)
UNION ALL
SELECT tgname::text FROM pg_trigger AS t
WHERE NOT tgisinternal AND tgenabled <> 'D' AND pg_table_is_visible(t.tgrelid)
