-- The history that the server is on: each promotion of a standby and each restore to a point in time
-- begins another one.
SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
