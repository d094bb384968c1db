-- Newest first, with ids from $13 to below $14. $16: with payloads and answers.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type,
    CASE WHEN $16 THEN payload END AS payload, headers, content_hash, status, retry_count, redrive_count, next_retry_at, expires_at,
    locked_by, locked_at, last_error, created_at, NULL AS delivered_at,
    octet_length(payload) AS payload_bytes, CASE WHEN $16 THEN response END AS response
FROM "{outbox}"
WHERE {filter} AND id >= $13 AND id < $14
ORDER BY id DESC LIMIT $15
