-- $1 maximum rows. By the index of waiting rows, soonest due first: it has failed rows and also
-- deferred ones, of which an outage creates millions.
SELECT count(*) FILTER (WHERE status = 'FAILED') AS failed, count(*) AS seen
FROM (
    SELECT status FROM "{outbox}" WHERE next_retry_at IS NOT NULL ORDER BY next_retry_at, id LIMIT $1
) AS waiting
