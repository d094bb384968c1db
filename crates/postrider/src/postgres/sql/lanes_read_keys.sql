-- Rows of some keys: $1 from, $2 to (both included), $3 rows, $4 bytes, $5 and $6 the keys. IS TRUE
-- keeps the planner from a join, which would compare each row with each key.
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text AS headers, content_hash, created_at, expires_at, retry_count, max_retries,
    redrive_count, crash_count, CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    now() AS claimed_at, version, lane,
    (extract(epoch FROM next_retry_at - now()) * 1000)::bigint AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM (
    SELECT *, sum(weight) OVER (ORDER BY id) AS total FROM (
        SELECT *, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS weight
        FROM "{outbox}"
        WHERE id >= $1 AND id <= $2 AND dead_reason IS NULL
          AND ((aggregate_type, aggregate_id) IN (SELECT * FROM unnest($5::text[], $6::text[]))) IS TRUE
        ORDER BY id LIMIT $3
    ) AS found
) AS weighed
WHERE total - weight < $4
