-- Fresh rows of a share: low id, shares, share, rows. A plain read, because a locking one would lock
-- rows of other shares for a moment, and their relays would skip and pass them; see claim_lock.
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING' AND id % ? = ?
ORDER BY id LIMIT ?
