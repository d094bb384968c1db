-- Newest first below $1. An absent filter is NULL.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, status, retry_count, redrive_count, next_retry_at, expires_at, locked_by,
    locked_at, last_error, created_at, NULL AS delivered_at
FROM "{outbox}"
WHERE id < $1 AND ($2 IS NULL OR status = $2) AND ($3 IS NULL OR event_type = $3)
  AND ($4 IS NULL OR aggregate_type = $4) AND ($5 IS NULL OR aggregate_id = $5)
ORDER BY id DESC LIMIT $6
