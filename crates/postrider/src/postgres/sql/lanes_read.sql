-- Rows of the lanes, due or not, up to the one that reaches the limit of bytes. Weighed first: sums
-- over whole rows would copy each row, and took five times as long as the read.
-- $1 after, $2 lanes as bits, $3 rows, $4 bytes, weighed as Event::weight_bytes.
WITH cut AS MATERIALIZED (
    SELECT min(id) AS first_id, max(id) AS last_id FROM (
        SELECT id, weight, sum(weight) OVER (ORDER BY id) AS total FROM (
            SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS weight
            FROM "{outbox}"
            WHERE id > $1 AND ($2::bigint >> lane) & 1 = 1 AND dead_reason IS NULL
            ORDER BY id LIMIT $3
        ) AS found
    ) AS weighed
    WHERE total - weight < $4
)
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers::text AS headers, content_hash, created_at, expires_at, retry_count, max_retries,
    redrive_count, crash_count, CASE WHEN last_error IS NOT NULL THEN updated_at END AS last_failed_at,
    now() AS claimed_at, version, lane,
    (extract(epoch FROM next_retry_at - now()) * 1000)::bigint AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}"
WHERE id >= (SELECT first_id FROM cut) AND id <= (SELECT last_id FROM cut)
  AND ($2::bigint >> lane) & 1 = 1 AND dead_reason IS NULL
ORDER BY id
