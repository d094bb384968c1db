-- One at a time, fewest crashes first, so that an innocent event that was in flight next to the one
-- that crashes the relay is delivered first.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
taken AS MATERIALIZED (
    SELECT id FROM "{outbox}"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= now()) AND EXISTS (SELECT 1 FROM relay)
    ORDER BY crash_count, id LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE "{outbox}" AS o
SET status = 'PROCESSING', locked_by = $1, locked_at = now(), version = (o.version + 1) & 9007199254740991
FROM taken WHERE o.id = taken.id
RETURNING o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type,
    o.payload, o.headers::text, o.content_hash, o.created_at, o.expires_at, o.retry_count,
    o.max_retries, o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    now() AS claimed_at, o.version, o.ctid AS place
