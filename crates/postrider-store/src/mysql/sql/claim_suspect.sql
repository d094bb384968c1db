-- One at a time, fewest crashes first (queue is crash_count from 2 on), so that an innocent event
-- that was in flight next to the one that crashes the relay is delivered first.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue >= 2 AND (next_retry_at IS NULL OR next_retry_at <= UTC_TIMESTAMP(6))
  AND status IN ('PENDING', 'FAILED')
ORDER BY queue, next_retry_at, id LIMIT 1
FOR UPDATE SKIP LOCKED
