-- Newest first below an id. An absent filter is NULL, and then a column is compared with itself.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, 'COMPLETED' AS status, retry_count, redrive_count,
    CAST(NULL AS DATETIME(6)) AS next_retry_at, CAST(NULL AS DATETIME(6)) AS expires_at,
    CAST(NULL AS CHAR) AS locked_by, CAST(NULL AS DATETIME(6)) AS locked_at,
    CAST(NULL AS CHAR) AS last_error, created_at, delivered_at
FROM `{outbox}_archive`
WHERE id < ? AND COALESCE(?, 'COMPLETED') = 'COMPLETED'
  AND event_type = COALESCE(?, event_type) AND aggregate_type = COALESCE(?, aggregate_type)
  AND aggregate_id = COALESCE(?, aggregate_id)
ORDER BY id DESC LIMIT ?
