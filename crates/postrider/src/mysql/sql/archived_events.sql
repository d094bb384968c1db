-- Newest first, with ids from one to below another. First of all: with payloads and answers.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type,
    CASE WHEN ? THEN payload END AS payload, headers,
    content_hash, 'COMPLETED' AS status, retry_count, redrive_count,
    CAST(NULL AS DATETIME(6)) AS next_retry_at, CAST(NULL AS DATETIME(6)) AS expires_at,
    CAST(NULL AS CHAR) AS locked_by, CAST(NULL AS DATETIME(6)) AS locked_at,
    CAST(NULL AS CHAR) AS last_error, created_at, delivered_at,
    CAST(LENGTH(payload) AS SIGNED) AS payload_bytes, CASE WHEN ? THEN response END AS response
FROM `{outbox}_archive` FORCE INDEX (PRIMARY)
WHERE {filter} AND id >= ? AND id < ?
ORDER BY id DESC LIMIT ?
