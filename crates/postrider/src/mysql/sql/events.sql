-- Newest first, with ids from one to below another.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, status, retry_count, redrive_count, next_retry_at, expires_at, locked_by,
    locked_at, last_error, created_at, CAST(NULL AS DATETIME(6)) AS delivered_at
FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE {filter} AND id >= ? AND id < ?
ORDER BY id DESC LIMIT ?
