-- $1 original id … $19 time to expire. Nothing happens when the entry is known.
INSERT INTO "{outbox}_dlq" (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, reason, error_message, error_detail, failed_at, retry_count, max_retries,
    redrive_count, event_created_at, fingerprint, expires_at
) VALUES ($1, $2::uuid, $3, $4, $5, $6, $7, $8::jsonb, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19)
ON CONFLICT (original_id, event_id) DO NOTHING
