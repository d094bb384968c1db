-- Moves rows marked DEAD_LETTER (ids as JSON, locked by move_marked_find) to the dead letters. If
-- an import from the backup file was faster, the dead letter exists and is not changed (the update
-- changes nothing; INSERT IGNORE would hide other errors too).
INSERT INTO `{outbox}_dlq` (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, failed_at, retry_count, max_retries,
    redrive_count, event_created_at, expires_at
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash, o.dead_reason, COALESCE(o.last_error, ''), o.updated_at,
    o.retry_count, o.max_retries, o.redrive_count, o.created_at,
    CASE WHEN o.expires_at >= '1000-01-01' THEN o.expires_at END
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ON DUPLICATE KEY UPDATE `{outbox}_dlq`.original_id = `{outbox}_dlq`.original_id
