-- As lanes_read, without rows that the owner knows ($5 ids) and those of keys that wait anyway
-- ($6, $7). NOT IN makes a hash of each list once; a million rows behind two keys are passed at the
-- speed of a scan.
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
        WHERE id > $1 AND ($2::bigint >> lane) & 1 = 1 AND dead_reason IS NULL
          AND (aggregate_type, aggregate_id) NOT IN (SELECT * FROM unnest($6::text[], $7::text[]))
          AND id NOT IN (SELECT unnest($5::bigint[]))
        ORDER BY id LIMIT $3
    ) AS found
) AS weighed
WHERE total - weight < $4
