-- Newest first, with ids from $13 to below $14. $16: with payloads and answers.
SELECT id, event_id::text, request_id, aggregate_type, aggregate_id, event_type,
    CASE WHEN $16 THEN payload END AS payload, headers::text, content_hash, 'COMPLETED' AS status, retry_count, redrive_count,
    NULL::timestamptz AS next_retry_at, NULL::timestamptz AS expires_at, NULL::text AS locked_by,
    NULL::timestamptz AS locked_at, NULL::text AS last_error, created_at, delivered_at,
    octet_length(payload)::bigint AS payload_bytes, CASE WHEN $16 THEN response END AS response
FROM "{outbox}_archive"
WHERE {filter} AND id >= $13 AND id < $14
ORDER BY id DESC LIMIT $15
