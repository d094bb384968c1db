-- Due rows, by their index: it provides the order, so rows that are not due are neither read nor
-- locked. NULL (fresh rows) is outside of the range.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at <= UTC_TIMESTAMP(6) AND status IN ('PENDING', 'FAILED')
ORDER BY next_retry_at, id LIMIT ?
FOR UPDATE SKIP LOCKED
