-- Replication slots without a reader: they retain the log, and most of them hold back vacuum.
SELECT slot_name::text, slot_type, (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AS holds_vacuum,
    coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint AS log_bytes
FROM pg_replication_slots WHERE NOT active ORDER BY slot_name
