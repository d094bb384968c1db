-- Transactions that may have taken an id and not committed. An INSERT locks its table before it
-- takes an id, so no such transaction is missed; a snapshot's xmin would miss one without an xid,
-- and would wait for transactions that do not concern this table. A prepared transaction has the
-- name of its session; after a restart of the server it is -1/xid, which store/horizon.rs handles.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = '"{outbox}"'::regclass AND pid IS DISTINCT FROM pg_backend_pid()
