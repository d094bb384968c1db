-- Fresh rows above the remembered low id. In this index they lie together, in the order asked for:
-- by primary key, a million waiting rows in front of them cost 1.3 s, and a sort would have SKIP
-- LOCKED lock all of them. weight_bytes instead of the columns: rows over the limit of bytes are
-- not taken, and their payload is not read either.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING'
ORDER BY id LIMIT ?
FOR UPDATE SKIP LOCKED
