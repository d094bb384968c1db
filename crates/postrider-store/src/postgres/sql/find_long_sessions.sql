-- $1 age in ms. Sessions whose snapshot or transaction keeps vacuum from removing rows delivered
-- since, here and on standbys with feedback.
SELECT pid, coalesce(usename, '')::text, coalesce(nullif(application_name, ''), backend_type)::text,
    coalesce(state, '')::text, extract(epoch FROM now() - xact_start)::bigint AS seconds
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
  AND (datname = current_database() OR datname IS NULL)
  AND xact_start < now() - $1 * interval '1 millisecond' AND backend_type <> 'autovacuum worker'
ORDER BY xact_start
