-- Newest first below an id. An absent filter is NULL, and then a column is compared with itself.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, status, retry_count, redrive_count, next_retry_at, expires_at, locked_by,
    locked_at, last_error, created_at, CAST(NULL AS DATETIME(6)) AS delivered_at
FROM `{outbox}`
WHERE id < ? AND status = COALESCE(?, status) AND event_type = COALESCE(?, event_type)
  AND aggregate_type = COALESCE(?, aggregate_type) AND aggregate_id = COALESCE(?, aggregate_id)
ORDER BY id DESC LIMIT ?
