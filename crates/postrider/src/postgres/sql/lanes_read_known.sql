-- As lanes_read, without rows that the owner knows ($5 ids) and those of keys that wait anyway
-- ($6, $7). NOT IN makes a hash of each list once. Read by id, not by range: rows that were passed
-- are not passed twice.
WITH weighed AS MATERIALIZED (
    SELECT id, weight, sum(weight) OVER (ORDER BY id) AS total FROM (
        SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS weight
        FROM "{outbox}"
        WHERE id > $1 AND ($2::bigint >> lane) & 1 = 1 AND dead_reason IS NULL
          AND (aggregate_type, aggregate_id) NOT IN (SELECT * FROM unnest($6::text[], $7::text[]))
          AND id NOT IN (SELECT unnest($5::bigint[]))
        ORDER BY id LIMIT $3
    ) AS found
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers::text AS headers, o.content_hash, o.created_at, o.expires_at, o.retry_count,
    o.max_retries, o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    now() AS claimed_at, o.version, o.lane,
    (extract(epoch FROM o.next_retry_at - now()) * 1000)::bigint AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM weighed AS w JOIN "{outbox}" AS o ON o.id = w.id
WHERE w.total - w.weight < $4
