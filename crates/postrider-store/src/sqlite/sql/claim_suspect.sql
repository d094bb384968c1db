-- One at a time, fewest crashes first, so that an innocent event that was in flight next to the one
-- that crashes the relay is delivered first.
UPDATE "{outbox}"
SET status = 'PROCESSING', locked_by = $1, locked_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    version = (version + 1) & 9007199254740991
WHERE id = (
    SELECT id FROM "{outbox}" INDEXED BY "{outbox}_suspects"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
      AND EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)
    ORDER BY crash_count, id LIMIT 1
)
RETURNING id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, created_at, expires_at, retry_count, max_retries, redrive_count, crash_count,
    CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    locked_at AS claimed_at, version
