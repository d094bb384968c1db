-- Original id … time to expire. Error 1062 when the entry is known.
INSERT INTO `{outbox}_dlq` (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, reason, error_message, error_detail, failed_at, retry_count, max_retries,
    redrive_count, event_created_at, fingerprint, expires_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
