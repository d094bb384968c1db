-- Rows by id, due or not: $1 ids ascending. No lane, because this store has none. The time is a
-- subquery of its own, which is evaluated once instead of once per row.
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type,
    o.payload, o.headers, o.content_hash, o.created_at, o.expires_at, o.retry_count,
    o.max_retries, o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) AS claimed_at, o.version,
    CASE WHEN o.next_retry_at IS NOT NULL THEN
        CAST((julianday(o.next_retry_at) - julianday('now')) * 86400000 AS INTEGER)
    END AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM json_each($1) AS c CROSS JOIN "{outbox}" AS o ON o.id = c.value
WHERE o.dead_reason IS NULL
