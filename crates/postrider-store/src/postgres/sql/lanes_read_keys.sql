-- Reads rows of some keys: $1 from, $2 to (inclusive), $3 maximum rows, $4 maximum bytes, $5 and $6
-- the keys. IS TRUE keeps the planner from using a join, which would compare each row with each
-- key. Unordered: a join does not guarantee an order, and the caller sorts the few rows that this
-- returns.
WITH weighed AS MATERIALIZED (
    SELECT id, weight, sum(weight) OVER (ORDER BY id) AS total FROM (
        SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS weight
        FROM "{outbox}"
        WHERE id >= $1 AND id <= $2 AND dead_reason IS NULL
          AND ((aggregate_type, aggregate_id) IN (SELECT * FROM unnest($5::text[], $6::text[]))) IS TRUE
        ORDER BY id LIMIT $3
    ) AS found
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers::text AS headers, o.content_hash, o.created_at, o.expires_at, o.retry_count,
    o.max_retries, o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    now() AS claimed_at, o.version, o.ctid AS place, o.lane,
    CASE WHEN isfinite(o.next_retry_at)
        THEN (extract(epoch FROM o.next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM weighed AS w JOIN "{outbox}" AS o ON o.id = w.id
WHERE w.total - w.weight < $4
