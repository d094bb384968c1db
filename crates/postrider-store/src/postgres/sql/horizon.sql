-- name: next_id_step
-- The last id of the next step of a walk: $1 from (excluded), $2 maximum rows.
SELECT max(id) FROM (SELECT id FROM "{outbox}" WHERE id > $1 ORDER BY id LIMIT $2) AS step

-- name: horizon_last_id
-- Read before the list of writers: see store/horizon.rs. 0 for a sequence that was never used. The
-- start time of the server shows whether another server replies; a standby has no timeline of its
-- own to be read. TRUNCATE … RESTART IDENTITY, ALTER SEQUENCE … RESTART and a restored table give
-- the sequence another file, even if its value has passed the old one by now; setval and inserts do
-- not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last_id, pg_postmaster_start_time(),
    pg_is_in_recovery(),
    (SELECT relfilenode::bigint FROM pg_class WHERE oid = '"{outbox}_id_seq"'::regclass)
FROM "{outbox}_id_seq"

-- name: horizon_writers
-- Transactions that may have taken an id and not committed. An INSERT locks its table before it
-- takes an id, so no such transaction is missed; a snapshot's xmin would miss one without an xid,
-- and would wait for transactions that do not concern this table. A prepared transaction has the
-- name of its session; after a restart of the server it is -1/xid, which store/horizon.rs handles.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = '"{outbox}"'::regclass AND pid IS DISTINCT FROM pg_backend_pid()

-- name: horizon_timeline
-- The timeline of the server: each promotion of a standby and each point-in-time restore starts a
-- new one.
SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
