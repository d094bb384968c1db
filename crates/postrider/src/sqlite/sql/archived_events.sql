-- Newest first below $1. An absent filter is NULL; $2 is the state, which all of these share.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, 'COMPLETED' AS status, retry_count, redrive_count, NULL AS next_retry_at,
    NULL AS expires_at, NULL AS locked_by, NULL AS locked_at, NULL AS last_error, created_at,
    delivered_at
FROM "{outbox}_archive"
WHERE id < $1 AND ($2 IS NULL OR $2 = 'COMPLETED') AND ($3 IS NULL OR event_type = $3)
  AND ($4 IS NULL OR aggregate_type = $4) AND ($5 IS NULL OR aggregate_id = $5)
ORDER BY id DESC LIMIT $6
