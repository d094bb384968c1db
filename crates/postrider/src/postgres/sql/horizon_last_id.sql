-- Read before the list of writers: see store/horizon.rs. NULL-safe for a sequence never used. The start
-- of the server tells whether another one answers; a standby has no timeline of its own to be asked for.
-- TRUNCATE … RESTART IDENTITY, ALTER SEQUENCE … RESTART and a restored table give the sequence another
-- file, even if its value is beyond the old one by now; setval and inserts do not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last_id, pg_postmaster_start_time(),
    pg_is_in_recovery(),
    (SELECT relfilenode::bigint FROM pg_class WHERE oid = '"{outbox}_id_seq"'::regclass)
FROM "{outbox}_id_seq"
