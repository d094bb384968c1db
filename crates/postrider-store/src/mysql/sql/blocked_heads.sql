-- Rows that were tried and wait, by their index: maximum rows to read (millions may wait without
-- having been tried), maximum rows to return. The oldest row of a key is its head.
SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at
FROM (
    SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at, status, queue
    FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue >= 0 AND next_retry_at IS NOT NULL
    ORDER BY queue, next_retry_at, id LIMIT ?
) AS looked_at
WHERE status = 'FAILED' OR last_error IS NOT NULL
ORDER BY queue, next_retry_at, id LIMIT ?
