-- Reads rows of the lanes, due or not: $1 after, $2 lanes as bits, $3 maximum rows. Leaves out rows
-- that the owner knows ($4 ids) and rows of keys that wait anyway (from $5 on, one line each).
-- There are few of both, so they are compared one by one. `<> 0`, because with `= 1` the planner
-- expects one row in 200 and uses parallel workers to read a large table.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text AS headers, content_hash, created_at, expires_at, retry_count, max_retries,
    redrive_count, crash_count, CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    now() AS claimed_at, version, ctid AS place, lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}"
WHERE id > $1 AND ($2::bigint >> lane) & 1 <> 0 AND dead_reason IS NULL
  AND id <> ALL ($4::bigint[]){hidden}
ORDER BY id LIMIT $3
