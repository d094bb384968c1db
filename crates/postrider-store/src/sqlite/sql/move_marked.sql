-- $1 ids that move_marked_find.sql found. If an import from the backup file was faster, the dead
-- letter exists and the row is only deleted.
INSERT INTO "{outbox}_dlq" (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at
)
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, dead_reason, coalesce(last_error, ''), updated_at, retry_count,
    max_retries, redrive_count, created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at)
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO NOTHING
