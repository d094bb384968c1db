-- $1 age in ms. Prepared transactions hold back vacuum until they are committed or rolled back.
SELECT gid, owner::text, extract(epoch FROM now() - prepared)::bigint AS seconds
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < now() - $1 * interval '1 millisecond'
ORDER BY prepared
