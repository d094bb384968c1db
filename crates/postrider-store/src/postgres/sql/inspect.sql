-- name: failed_rows
-- $1 maximum rows. By the index of waiting rows, soonest due first: it has failed rows and also
-- deferred ones, of which an outage creates millions.
SELECT count(*) FILTER (WHERE status = 'FAILED') AS failed, count(*) AS seen
FROM (
    SELECT status FROM "{outbox}" WHERE next_retry_at IS NOT NULL ORDER BY next_retry_at, id LIMIT $1
) AS waiting

-- name: live_states
-- $1 maximum rows, oldest first.
SELECT event_type, status, count(*) FROM (
    SELECT event_type, status FROM "{outbox}" ORDER BY id LIMIT $1
) AS oldest GROUP BY event_type, status ORDER BY event_type, status

-- name: unresolved_types
-- $1 maximum rows, newest first.
SELECT event_type, count(*) FROM (
    SELECT event_type FROM "{outbox}_dlq" WHERE NOT resolved ORDER BY id DESC LIMIT $1
) AS newest GROUP BY event_type ORDER BY count(*) DESC, event_type

-- name: find_parts
-- Valid tables and indexes, and enabled triggers, by name.
SELECT relname::text AS name FROM pg_class AS c
WHERE pg_table_is_visible(c.oid) AND relkind IN ('r', 'p', 'i', 'I')
  AND NOT EXISTS (SELECT 1 FROM pg_index AS i WHERE i.indexrelid = c.oid AND NOT i.indisvalid)
UNION ALL
SELECT tgname::text FROM pg_trigger AS t
WHERE NOT tgisinternal AND tgenabled <> 'D' AND pg_table_is_visible(t.tgrelid)

-- name: find_missing_rights
-- $1 tables, $2 privileges. Returns those that this user lacks.
SELECT name, wanted FROM unnest($1::text[], $2::text[]) AS r (name, wanted)
WHERE to_regclass(quote_ident(name)) IS NOT NULL
  AND NOT has_table_privilege(to_regclass(quote_ident(name)), wanted)

-- name: find_long_sessions
-- $1 age in ms. Sessions whose snapshot or transaction keeps vacuum from removing rows delivered
-- since, here and on standbys with feedback.
SELECT pid, coalesce(usename, '')::text, coalesce(nullif(application_name, ''), backend_type)::text,
    coalesce(state, '')::text, extract(epoch FROM now() - xact_start)::bigint AS seconds
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
  AND (datname = current_database() OR datname IS NULL)
  AND xact_start < now() - $1 * interval '1 millisecond' AND backend_type <> 'autovacuum worker'
ORDER BY xact_start

-- name: find_idle_slots
-- Replication slots without a reader: they retain the log, and most of them hold back vacuum.
SELECT slot_name::text, slot_type, (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AS holds_vacuum,
    coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint AS log_bytes
FROM pg_replication_slots WHERE NOT active ORDER BY slot_name

-- name: find_prepared
-- $1 age in ms. Prepared transactions hold back vacuum until they are committed or rolled back.
SELECT gid, owner::text, extract(epoch FROM now() - prepared)::bigint AS seconds
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < now() - $1 * interval '1 millisecond'
ORDER BY prepared
