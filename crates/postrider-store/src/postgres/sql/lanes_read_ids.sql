-- Rows by id: $1 ascending.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text AS headers, content_hash, created_at, expires_at, retry_count, max_retries,
    redrive_count, crash_count, CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    now() AS claimed_at, version, ctid AS place, lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}" WHERE id = ANY ($1) AND dead_reason IS NULL ORDER BY id
