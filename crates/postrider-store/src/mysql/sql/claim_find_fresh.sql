-- Fresh rows of a share: low id, shares, share, maximum rows. A plain read, because a locking read
-- would briefly lock rows of other shares, and their relays would skip those rows; see claim_lock.
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING' AND id % ? = ?
ORDER BY id LIMIT ?
