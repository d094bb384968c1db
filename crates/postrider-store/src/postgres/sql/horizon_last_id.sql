-- Read before the list of writers: see store/horizon.rs. 0 for a sequence that was never used. The
-- start time of the server shows whether another server replies; a standby has no timeline of its
-- own to be read. TRUNCATE … RESTART IDENTITY, ALTER SEQUENCE … RESTART and a restored table give
-- the sequence another file, even if its value has passed the old one by now; setval and inserts do
-- not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last_id, pg_postmaster_start_time(),
    pg_is_in_recovery(),
    (SELECT relfilenode::bigint FROM pg_class WHERE oid = '"{outbox}_id_seq"'::regclass)
FROM "{outbox}_id_seq"
