-- Newest first, with ids from $12 to below $13.
SELECT id, event_id::text, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text, content_hash, 'COMPLETED' AS status, retry_count, redrive_count,
    NULL::timestamptz AS next_retry_at, NULL::timestamptz AS expires_at, NULL::text AS locked_by,
    NULL::timestamptz AS locked_at, NULL::text AS last_error, created_at, delivered_at
FROM "{outbox}_archive"
WHERE {filter} AND id >= $12 AND id < $13
ORDER BY id DESC LIMIT $14
