-- Newest first, with ids from one to below another. First of all: with payloads and answers.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type,
    CASE WHEN ? THEN payload END AS payload, headers,
    content_hash, status, retry_count, redrive_count, next_retry_at, expires_at, locked_by,
    locked_at, last_error, created_at, CAST(NULL AS DATETIME(6)) AS delivered_at,
    CAST(LENGTH(payload) AS SIGNED) AS payload_bytes, CASE WHEN ? THEN response END AS response
FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE {filter} AND id >= ? AND id < ?
ORDER BY id DESC LIMIT ?
