-- As dlq_groups, of all unresolved ones, from the index alone: ids from one to below another.
SELECT fingerprint, event_type, TIMESTAMPDIFF(HOUR, '1970-01-01', failed_at) AS hour,
    COUNT(*), MAX(id), MIN(failed_at), MAX(failed_at)
FROM `{outbox}_dlq` FORCE INDEX (`{outbox}_dlq_groups`)
WHERE resolved = 0 AND id >= ? AND id < ?
GROUP BY 1, 2, 3
