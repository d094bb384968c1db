-- Newest first, with ids from $11 to below $12.
SELECT id, original_id, event_id, request_id, aggregate_type, aggregate_id, event_type,
    NULL AS payload, headers, content_hash, reason, error_message, error_detail, failed_at,
    retry_count, max_retries, redrive_count, event_created_at, resolved, resolved_at, resolved_by,
    resolution_note, retried_as, created_at, updated_at, fingerprint,
    octet_length(payload) AS payload_bytes, expires_at
FROM "{outbox}_dlq"
WHERE {filter} AND id >= $11 AND id < $12
ORDER BY id DESC LIMIT $13
