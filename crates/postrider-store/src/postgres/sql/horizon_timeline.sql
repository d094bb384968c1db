-- The timeline of the server: each promotion of a standby and each point-in-time restore starts a
-- new one.
SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
