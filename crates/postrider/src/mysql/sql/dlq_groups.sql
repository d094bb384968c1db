-- By kind of error, event type and hour, with ids from one to below another.
SELECT fingerprint, event_type, TIMESTAMPDIFF(HOUR, '1970-01-01', failed_at) AS hour,
    COUNT(*), MAX(id), MIN(failed_at), MAX(failed_at)
FROM `{outbox}_dlq` FORCE INDEX (PRIMARY)
WHERE {filter} AND id >= ? AND id < ?
GROUP BY 1, 2, 3
