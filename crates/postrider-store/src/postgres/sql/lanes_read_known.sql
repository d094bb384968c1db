-- Like lanes_read, for many rows and keys ($5, $6): NOT IN builds a hash of each list once. With
-- few of them, it skips 100,000 rows in 41 ms instead of 26.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text AS headers, content_hash, created_at, expires_at, retry_count, max_retries,
    redrive_count, crash_count, CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    now() AS claimed_at, version, ctid AS place, lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}"
WHERE id > $1 AND ($2::bigint >> lane) & 1 <> 0 AND dead_reason IS NULL
  AND (aggregate_type, aggregate_id) NOT IN (SELECT * FROM unnest($5::text[], $6::text[]))
  AND id NOT IN (SELECT unnest($4::bigint[]))
ORDER BY id LIMIT $3
