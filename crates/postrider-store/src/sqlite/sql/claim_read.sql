-- The rows of a claim, after its commit: $1 relay, $2 ids ascending. Does not return rows that
-- recovery has taken away since.
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type,
    o.payload, o.headers, o.content_hash, o.created_at, o.expires_at, o.retry_count,
    o.max_retries, o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    o.locked_at AS claimed_at, o.version
FROM json_each($2) AS c CROSS JOIN "{outbox}" AS o ON o.id = c.value
WHERE o.locked_by = $1 AND o.status = 'PROCESSING'
