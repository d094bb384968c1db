-- Maximum rows. By the index of waiting rows, soonest due first: it has failed rows and also
-- deferred ones, of which an outage creates millions.
SELECT CAST(COALESCE(SUM(status = 'FAILED'), 0) AS SIGNED) AS failed, COUNT(*) AS seen
FROM (
    SELECT status FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue = 0 AND next_retry_at IS NOT NULL ORDER BY next_retry_at, id LIMIT ?
) AS waiting
