-- Rows of a share that are due: shares, share, maximum rows. A plain read: see claim_find_fresh.
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at <= UTC_TIMESTAMP(6) AND status IN ('PENDING', 'FAILED')
  AND id % ? = ?
ORDER BY next_retry_at, id LIMIT ?
